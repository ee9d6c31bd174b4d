"""Secrets planted in the caller's environment reach the engine and appear nowhere else."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tgi_deploy.sandbox.addresses import can_bind

TOKEN = "hfcanary7Q2wRt9ZxLmK4vBn8P"
KEY = "keycanary3Hs6JdY1uGcE5aWf0"
CANARIES = (TOKEN, KEY)
ENVIRONMENT = {"HF_TOKEN": TOKEN, "CANARY_KEY": KEY}
UP = (
    "up",
    "llama3-8b",
    "--yes",
    "--api-key-from-env",
    "CANARY_KEY",
    "--ttl",
    "1h",
    "--external-ttl",
    "--ready",
    "fast",
)


def needles():
    """Return the secrets, plain and in base64 at every alignment."""
    for canary in CANARIES:
        yield canary.encode()
        for shift in range(3):
            encoded = base64.b64encode(b"x" * shift + canary.encode())
            yield encoded[4 if shift else 0 : -4]


NEEDLES = tuple(needles())


def leaks(data):
    """Return whether the bytes or text contain a secret, plain or in base64."""
    raw = data.encode() if isinstance(data, str) else data
    return any(needle in raw for needle in NEEDLES)


def files_with_leaks(folder):
    return [str(path) for path in Path(folder).rglob("*") if path.is_file() and leaks(path.read_bytes())]


class Watch(threading.Thread):
    """Checks the command line of every process repeatedly."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.leaks = set()
        self.seen = set()

    def run(self):
        while not self.stop.is_set():
            for entry in os.scandir("/proc"):
                if entry.name.isdigit():
                    self._look(entry.name)
            self.stop.wait(0.02)

    def _look(self, pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if pid not in self.seen and b"tgi_deploy" in words:
                self.seen.add(pid)
            if leaks(words):
                self.leaks.add(words.replace(b"\0", b" ").decode("utf-8", "replace"))


@pytest.fixture
def watch():
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("needs /proc")
    watching = Watch()
    watching.start()
    yield watching
    watching.stop.set()
    watching.join()


def run(*words):
    """Run the real program with the secrets in its environment; return exit code and all output."""
    done = subprocess.run(
        [sys.executable, "-m", "tgi_deploy", *words, "--sandbox"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ENVIRONMENT},
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr, done.stdout


def status_of(url, key=None):
    body = json.dumps({"inputs": "x", "parameters": {"max_new_tokens": 1}}).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        request = urllib.request.Request(f"{url}/generate", body, headers)  # noqa: S310 -- the sandbox's own
        with urllib.request.urlopen(request) as answer:  # noqa: S310 -- as above
            return answer.status
    except HTTPError as error:
        with error:
            return error.code


def stored(program):
    """The values in the parameter store."""
    asked = {"Path": "/tgi-deploy", "Recursive": True, "WithDecryption": True}
    return sorted(item["Value"] for item in program.client("ssm").get_parameters_by_path(**asked)["Parameters"])


def in_the_cloud(program):
    """Return everything in the cloud about it, as text: user data, templates, tags, policies, schedules, console."""
    ec2, iam, ssm, scheduler = (program.client(name) for name in ("ec2", "iam", "ssm", "scheduler"))
    (machine,) = (item for group in ec2.describe_instances()["Reservations"] for item in group["Instances"])
    shown = ec2.describe_instance_attribute(InstanceId=machine["InstanceId"], Attribute="userData")
    yield base64.b64decode(shown["UserData"]["Value"]).decode()
    yield str(machine)
    yield ec2.get_console_output(InstanceId=machine["InstanceId"])["Output"]
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        yield str(ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"]))
    yield str(ec2.describe_tags())
    yield str(iam.get_account_authorization_details())
    yield str(ssm.describe_parameters())
    for parameter in ssm.describe_parameters()["Parameters"]:
        yield str(ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=parameter["Name"]))
    for schedule in scheduler.list_schedules()["Schedules"]:
        yield str(scheduler.get_schedule(Name=schedule["Name"], GroupName=schedule["GroupName"]))


def test_the_search_finds_planted_secrets(tmp_path):
    (tmp_path / "plain").write_text(f"x {TOKEN} y")
    for shift in range(3):
        (tmp_path / f"encoded-{shift}").write_bytes(base64.b64encode(b"abc"[:shift] + f"{KEY} and more".encode()))
    (tmp_path / "clean").write_text("hf_token keycanary")
    assert len(files_with_leaks(tmp_path)) == 4


@pytest.mark.slow
def test_planted_secrets_reach_only_the_engine(program, watch):
    code, result, out = run(*UP, "--json")
    assert code == 0, result
    url = json.loads(out)["data"]["endpoint"]
    assert (status_of(url), status_of(url, "wrong"), status_of(url, KEY)) == (401, 401, 200)
    assert stored(program) == sorted(CANARIES)

    recorder = [result]
    for words in (("status", "llama3-8b"), ("logs", "llama3-8b"), ("open", "llama3-8b"), ("list",)):
        reported = program.run(*words, "--sandbox")
        recorder.extend((reported.out, reported.err))
    assert any('Bearer $CANARY_KEY"' in text for text in recorder)
    cloud = list(in_the_cloud(program))
    assert len(cloud) >= 10
    assert not [text for text in (*recorder, *cloud) if leaks(text)]
    assert not leaks(json.dumps(program.calls("PutParameter")))
    assert len(program.calls("PutParameter")) == 2
    assert files_with_leaks(program.home) == []

    down = program.here("down", "llama3-8b", "--yes")
    assert down.code == 0, down.out
    receipt = down.json["data"]["receipt"]
    kinds = [line["kind"] for line in receipt["resources"]]
    assert (kinds.count("parameter"), kinds.count("role"), kinds.count("instance-profile")) == (2, 2, 1)
    assert not leaks(down.out + down.err)
    assert files_with_leaks(program.home) == []
    assert stored(program) == []
    assert program.client("iam").list_roles(PathPrefix="/tgi-deploy/")["Roles"] == []
    assert watch.leaks == set()
    assert len(watch.seen) >= 5


@pytest.fixture
def planted(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "fault",
    [
        {"action": "PutParameter", "code": "ValidationException", "message": f"Value '{TOKEN}' is bad"},
        {"action": "CreateRole", "code": "AccessDenied", "status": 403, "message": "not allowed"},
    ],
)
@pytest.mark.usefixtures("planted")
def test_errors_show_no_secret(program, fault):
    """The cloud's error quotes one of them, and the created resources are removed."""
    program.fault(**fault, times=9)
    for words in ((), ("--json",)):
        reported = program.run(*UP, "--no-wait", "--sandbox", *words)
        assert reported.code == 1, reported.out
        assert fault["code"] in reported.out + reported.err
        assert not leaks(reported.out + reported.err)
    assert files_with_leaks(program.home) == []
    assert stored(program) == []


@pytest.fixture
def impostor():
    """Another account's program that accepts everything on every address of this computer, and records it."""
    received = []

    class Impostor(BaseHTTPRequestHandler):
        def do_GET(self):
            received.append(f"{self.path} {self.headers}")
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self):
            self.do_GET()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("0.0.0.0", 0), Impostor) as server:  # noqa: S104 -- every address is the point
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port, received
        server.shutdown()


@pytest.mark.usefixtures("planted")
def test_a_program_on_the_endpoint_port_receives_nothing(program, impostor):
    if not can_bind("127.77.1.1"):
        pytest.skip("machines have addresses of their own on Linux alone")
    port, received = impostor
    up = program.here("up", "smollm2-135m", "--yes", "--api-key-from-env", "CANARY_KEY", "--port", str(port))
    assert up.code == 5, up.out
    assert "port_in_use" in up.out
    assert received == []


@pytest.mark.usefixtures("planted")
def test_a_machine_reads_only_its_own_parameters(program):
    up = program.here(*UP, "--no-wait")
    assert up.code == 0, up.out
    program.client("ssm").put_parameter(Name="/others/secret", Value="x", Type="SecureString")
    made = {item["key"]: item["id"] for item in up.json["data"]["deployment"]["resources"]}
    assert program.parameter("get", made["api-key"]) == f"{KEY}\n"
    for verb, name in (("get", "/others/secret"), ("put", made["api-key"]), ("delete", made["api-key"])):
        assert "AccessDenied" in program.parameter(verb, name)
