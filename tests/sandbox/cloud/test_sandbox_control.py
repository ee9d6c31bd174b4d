from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import boto3
import pytest
from botocore.exceptions import ClientError
from builders.waiting import eventually

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.sandbox import api, control, processes
from tgi_deploy.sandbox.cloud import claim
from tgi_deploy.sandbox.processes import is_alive

UBUNTU = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
NOBODY = 65534
LONGEST_SOCKET_NAME = 107
SERVICE = """#!/bin/bash
cat >/etc/systemd/system/job.service <<'END'
[Service]
ExecStart=/bin/sh -c 'while :; do /bin/sleep 1; done'
END
systemctl start job
docker run -d -p 8130:80 ghcr.io/huggingface/text-generation-inference:3.3.7 --model-id x/y
echo all is up
"""


@pytest.fixture
def home(tmp_path):
    place = tmp_path / "sandbox"
    yield place
    control.stop(place)


def processes_of(home) -> list[str]:
    return [process.command for process in processes.processes() if str(home) in process.command]


def launch(info) -> str:
    options = {
        "region_name": "us-east-1",
        "endpoint_url": info.endpoint_url,
        "aws_access_key_id": info.access_key,
        "aws_secret_access_key": "b",
    }
    image = boto3.client("ssm", **options).get_parameter(Name=UBUNTU)["Parameter"]["Value"]
    ec2 = boto3.client("ec2", **options)
    launched = ec2.run_instances(ImageId=image, InstanceType="g6e.xlarge", MinCount=1, MaxCount=1, UserData=SERVICE)
    instance_id = launched["Instances"][0]["InstanceId"]
    eventually(lambda: "all is up" in ec2.get_console_output(InstanceId=instance_id).get("Output", ""))
    return instance_id


def test_another_user_is_rejected(home):
    info = control.start(home)
    stranger = boto3.client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=info.endpoint_url,
        aws_access_key_id="stranger",
        aws_secret_access_key="b",
    )
    with pytest.raises(ClientError, match=r"AuthFailure.*sandbox start"):
        stranger.describe_instances()


def test_only_the_owner_can_read_the_key(home):
    info = control.start(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert info.access_key not in repr(info)
    assert info.access_key not in json.dumps(api.control(info.endpoint, "GET", "/_sandbox/health"))


def test_concurrent_starts_create_one_sandbox(home):
    with ThreadPoolExecutor(3) as pool:
        found = set(pool.map(lambda _: control.start(home), range(3)))
    assert found == {control.start(home)} == {control.status(home)}
    assert len([line for line in processes_of(home) if "sandbox.cloud" in line]) == 1
    assert control.stop(home)
    assert control.status(home) is None
    assert not control.stop(home)


def test_stopping_leaves_no_process_and_no_file_behind(home):
    info = control.start(home, speed=600)
    instance_id = launch(info)
    groups = [int(path.name) for path in (home / "machines" / instance_id / "groups").iterdir()]
    assert len(groups) >= 2
    assert control.stop(home)
    assert not home.exists()
    assert list(home.parent.iterdir()) == []
    assert processes_of(home) == []
    assert [group for group in groups if is_alive(group)] == []
    assert not is_alive(info.pid)


def test_machines_end_when_the_server_is_killed(home):
    info = control.start(home, speed=600)
    instance_id = launch(info)
    groups = [int(path.name) for path in (home / "machines" / instance_id / "groups").iterdir()]
    os.kill(info.pid, signal.SIGKILL)
    eventually(lambda: processes_of(home) == [] and not any(map(is_alive, groups)), within_s=30)
    assert control.status(home) is None
    again = control.start(home)
    assert again.pid != info.pid
    assert list((home / "machines").iterdir()) == []


def test_the_server_outlives_its_starter_and_cleans_up_when_it_is_terminated(home):
    code = f"from pathlib import Path; from tgi_deploy.sandbox import control; control.start(Path({str(home)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    info = control.status(home)
    assert info is not None
    os.kill(info.pid, signal.SIGTERM)
    eventually(lambda: not home.exists() and not is_alive(info.pid))


def test_processes_are_found_until_they_are_reaped():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        eventually(lambda: processes.command_of(child.pid) == f"{sys.executable} -c input()")
        assert is_alive(child.pid)
        assert child.pid in {process.pid for process in processes.processes()}
        child.kill()
        eventually(lambda: not is_alive(child.pid))
    assert processes.command_of(child.pid) == ""


def record(url: str) -> dict[str, object]:
    return {"endpoint_url": url, "pid": os.getpid(), "started": "2026-01-01T00:00:00+00:00", "access_key": "k"}


@pytest.mark.parametrize("damage", ["access_key", "pid", "endpoint_url"])
def test_a_sandbox_with_a_damaged_record_is_stopped(home, damage):
    control.start(home)
    written = json.loads((home / "sandbox.json").read_text())
    del written[damage]
    (home / "sandbox.json").write_text(json.dumps(written))
    assert control.status(home) is None
    assert processes_of(home)
    assert control.stop(home)
    assert not processes_of(home)


def test_a_stale_record_is_ignored(home):
    claim(home)
    (home / "sandbox.json").write_text(json.dumps(record("http://127.0.0.1:9")))
    assert control.status(home) is None
    assert control.start(home).pid != os.getpid()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"endpoint_url": 1}',
        '{"endpoint_url": "http://127.0.0.1:9", "pid": "x", "started": "s", "access_key": "k"}',
        '{"endpoint_url": "http://127.0.0.1:port", "pid": 1, "started": "s", "access_key": "k"}',
    ],
)
def test_a_damaged_record_is_ignored(home, text):
    claim(home)
    (home / "sandbox.json").write_text(text)
    assert control.status(home) is None
    assert control.stop(home)
    assert not home.exists()


def test_another_server_at_the_recorded_port_is_not_ours(home):
    replayed = api.proof("k", "a challenge that the stranger once sent to the sandbox itself")

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"status": "ok", "proof": replayed}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever).start()
        claim(home)
        (home / "sandbox.json").write_text(json.dumps(record(f"http://127.0.0.1:{server.server_port}")))
        assert control.status(home) is None
        assert control.stop(home), "it removes the files, and ends nothing that is not the sandbox's"
        server.shutdown()


def test_a_home_that_scripts_cannot_quote_is_rejected(tmp_path):
    with pytest.raises(InputError) as error:
        control.start(tmp_path / "my $(sandbox)")
    assert error.value.code == "state_unusable"
    assert error.value.hint


def test_a_home_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "sandbox").write_text("")
    with pytest.raises(InputError) as error:
        control.start(tmp_path / "sandbox")
    assert error.value.code == "state_unusable"


def test_a_folder_of_other_files_is_neither_used_nor_removed(tmp_path):
    home = tmp_path / "sandbox"
    home.mkdir()
    (home / "precious").write_text("mine")
    with pytest.raises(InputError) as error:
        control.start(home)
    assert error.value.code == "state_unusable"
    assert not control.stop(home)
    assert (home / "precious").read_text() == "mine"


def test_another_users_folder_is_neither_used_nor_removed(home):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    claim(home)
    (home / "sandbox.json").write_text(json.dumps(record("http://127.0.0.1:9")))
    os.chown(home, NOBODY, NOBODY)
    assert control.status(home) is None
    assert not control.stop(home)
    with pytest.raises(InputError, match="somebody else") as error:
        control.start(home)
    assert error.value.code == "state_unusable"
    assert (home / "sandbox.json").exists()


def test_an_unreadable_home_is_not_a_sandbox(home):
    """As after `sudo`: it is not visible, and there is nothing to stop."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another account")
    home.mkdir()
    home.parent.chmod(0o700)
    code = (
        f"import os; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "from pathlib import Path\n"
        f"assert control.status(Path({str(home)!r})) is None\n"
        f"assert not control.stop(Path({str(home)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", f"from tgi_deploy.sandbox import control\n{code}"], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(("mode", "group"), [(0o777, os.getgid()), (0o770, NOBODY)])
def test_a_home_that_others_could_replace_is_rejected(home, mode, group):
    if group != os.getgid() and os.geteuid() != 0:
        pytest.skip("only root can give a folder to a group that is not its own")
    os.chown(home.parent, -1, group)
    home.parent.chmod(mode)
    with pytest.raises(InputError, match="others can write") as error:
        control.start(home)
    assert error.value.code == "state_unusable"


def test_a_home_in_a_folder_like_tmp_is_used(home):
    home.parent.chmod(0o1777)
    assert control.start(home)


def test_files_are_private_with_any_umask(tmp_path):
    """Including intermediate folders: anyone who may rename one controls what runs below it."""
    home = tmp_path / "state" / "tgi-deploy" / "sandbox"
    before = os.umask(0)
    try:
        info = control.start(home, speed=600)
        launch(info)
        made = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
        guests = [path for path in made if "root" in path.parts[len(home.parts) :]]
        open_to_others = [path for path in made if not path.is_symlink() and path.stat().st_mode & 0o077]
        assert [path for path in open_to_others if path not in guests or path.is_dir()] == []
    finally:
        os.umask(before)
        control.stop(home)


def test_a_home_path_longer_than_a_socket_name_works(tmp_path):
    home = tmp_path.joinpath(*["deep" * 10] * 5) / "sandbox"
    assert len(str(home)) > LONGEST_SOCKET_NAME
    try:
        launch(control.start(home, speed=600))
    finally:
        assert control.stop(home)


def test_stopping_without_a_sandbox(tmp_path):
    assert not control.stop(tmp_path / "no" / "such" / "sandbox")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named_before_the_server_starts(home, monkeypatch):
    monkeypatch.setattr(control, "find_spec", lambda _name: None)
    with pytest.raises(InputError, match="starting the sandbox needs the package 'moto'") as error:
        control.start(home)
    assert error.value.code == "extra_missing"
    assert "moto[" in error.value.hint
    assert not home.exists()


def test_a_server_that_cannot_start_reports_why(home, monkeypatch):
    monkeypatch.setattr(control, "_SERVER", ("-c", "import sys; sys.stderr.write('no such module')"))
    with pytest.raises(DeployError, match="no such module") as error:
        control.start(home)
    assert error.value.code == "sandbox_not_started"
    assert "pip install" in error.value.hint
    assert not home.exists()


def test_a_slow_server_is_not_reported_as_missing_packages(home, monkeypatch):
    monkeypatch.setattr(control, "_SERVER", ("-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(control, "_START_S", 0.2)
    with pytest.raises(DeployError, match="no answer within") as error:
        control.start(home)
    assert error.value.hint == "this computer may be busy: run the command again"


def test_an_unresponsive_server_counts_as_stopped():
    with pytest.raises(api.NoAnswerError):
        api.control(api.Endpoint(url="http://127.0.0.1:9", access_key="k"), "GET", "/_sandbox/health")
