"""Another account of the computer can't access a sandbox through files, sockets, command lines or ports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tgi_deploy.sandbox.processes import processes

if TYPE_CHECKING:
    from conftest import Cloud

IMAGE = "ghcr.io/huggingface/text-generation-inference:3.3.7"
TINY = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
NOBODY = 65534
PORT = 8131
LISTENS = "0A"  # a socket's state in /proc/net/tcp
# What a second account tries, in a separate process. It prints what succeeded.
STRANGER = """
import http.client, json, os, socket, sys

given = json.loads(sys.argv[1])
os.setgroups([])
os.setgid(given["uid"])
os.setuid(given["uid"])
achieved = []


def attempt(action, *words):
    try:
        action(*words)
    except OSError:
        return
    achieved.append([action.__name__, *words])


def look(path):
    os.listdir(path)


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def plant(folder):
    with open(f"{folder}/planted", "x"):
        pass


def connect(path):
    os.chdir(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(os.path.basename(path))


def listen(address):
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((address, given["port"]))
        server.listen()


for path in given["folders"]:
    attempt(look, path)
    attempt(plant, path)
for path in given["files"]:
    attempt(read, path)
for path in given["sockets"]:
    attempt(connect, path)
for pid in given["pids"]:
    attempt(look, f"/proc/{pid}/cwd")
    attempt(look, f"/proc/{pid}/fd")
    attempt(read, f"/proc/{pid}/environ")
    attempt(os.kill, pid, 0)
for address in (given["address"], "0.0.0.0"):
    attempt(listen, address)
print(json.dumps(achieved))
"""
# Each would make the interpreter or the loader run code of the container's owner.
STEERING = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "HOME")


@dataclass
class Machine:
    """A machine with an engine at an open port, and its folder."""

    cloud: Cloud
    id: str
    folder: Path
    address: str

    @property
    def commands(self) -> dict[int, str]:
        """Return the command lines of its cloud and of all its processes, by process."""
        groups = {int(path.name) for path in (self.folder / "groups").iterdir()}
        found = processes()
        return {
            one.pid: one.command for one in found if str(self.cloud.home) in one.command or group(one.pid) in groups
        }

    @property
    def engine(self) -> int:
        return next(pid for pid, command in self.commands.items() if "sandbox.engine" in command)


def group(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def script(*lines):
    return "#!/bin/bash\n" + "\n".join(lines) + "\n"


def docker_run(options):
    return f"docker run --gpus all -p {PORT}:80 {options} {IMAGE} --num-shard 1"


def opened(cloud, user_data, port=PORT):
    """A machine with a security group that opens the port."""
    group = cloud.ec2.create_security_group(GroupName=f"port-{port}", Description="endpoint")["GroupId"]
    rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": "203.0.113.7/32"}]}
    cloud.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
    instance_id = cloud.run(user_data, SecurityGroupIds=[group])
    address = cloud.instance(instance_id)["PublicIpAddress"]
    return Machine(cloud, instance_id, cloud.home / "machines" / instance_id, address)


@pytest.fixture
def machine(cloud):
    """A machine whose Docker client runs as long as the engine, as in a service."""
    made = opened(cloud, script(docker_run(f"--name tgi -e MODEL_ID={TINY}")))
    cloud.wait_for_line(made.id, "Connected")
    return made


def is_open(path):
    """Return whether anyone except its owner has any access to it."""
    return bool(path.lstat().st_mode & 0o077)


def sockets(pid):
    """Return the inodes of a process's sockets, from Linux's /proc."""
    with contextlib.suppress(FileNotFoundError):  # it has just ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            name = link.readlink().name
            if name.startswith("socket:["):
                yield name.removeprefix("socket:[").removesuffix("]")


def listening(pids):
    """The addresses at which these processes listen."""
    inodes = {inode for pid in pids for inode in sockets(pid)}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = [row[1].split(":") for row in rows if row[3] == LISTENS and row[9] in inodes]
    return {(socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)) for host, port in found}


def needs_proc():
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs Linux' /proc")


def test_no_command_line_contains_a_key(machine):
    text = "\n".join(machine.commands.values())
    assert "shim.py" in text
    assert "sandbox.engine" in text
    assert machine.cloud.access_key not in text
    assert re.findall(r"\b[0-9a-f]{32,}\b", text) == []


def test_only_the_api_and_the_engine_listen_on_ports(machine):
    needs_proc()
    api = ("127.0.0.1", int(machine.cloud.url.rpartition(":")[2]))
    assert listening(machine.commands) == {api, (machine.address, PORT)}


def test_folders_and_sockets_are_private(machine):
    home = machine.cloud.home
    entries = [home, *home.rglob("*")]
    special = [path for path in entries if path.is_dir() or path.is_socket() or path.is_fifo()]
    assert any(path.is_socket() for path in special)
    assert [path for path in special if not path.is_symlink() and is_open(path)] == []
    # User data may give its files any mode, because their folders are private.
    guests = tuple(folder / "root" for folder in machine.folder.parent.iterdir())
    files = [path for path in entries if path.is_file() and not any(map(path.is_relative_to, guests))]
    assert home / "sandbox.json" in files
    assert [path for path in files if is_open(path)] == []


def test_a_second_account_has_no_access(machine):
    if os.geteuid() != 0:
        pytest.skip("only root can become another account")
    needs_proc()
    folders = [path for path in machine.folder.rglob("*") if path.is_dir() and not path.is_symlink()]
    given = {
        "uid": NOBODY,
        "folders": [str(machine.cloud.home), str(machine.folder), *map(str, folders)],
        "files": [str(machine.cloud.home / "sandbox.json"), str(machine.folder / "console.log")],
        "sockets": [str(path) for path in machine.cloud.home.rglob("*") if path.is_socket()],
        "pids": list(machine.commands),
        "address": machine.address,
        "port": PORT,
    }
    assert given["sockets"]
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, json.dumps(given)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == []


def test_container_variables_reach_only_the_engine(cloud):
    variables = " ".join(f"-e {name}=/opt/tgi-deploy/evil" for name in STEERING)
    made = opened(
        cloud,
        script(
            "mkdir -p /opt/tgi-deploy/evil",
            'echo \'open("/opt/tgi-deploy/evil/ran", "w")\' >/opt/tgi-deploy/evil/sitecustomize.py',
            docker_run(f"--name tgi {variables} -e MODEL_ID={TINY}"),
        ),
    )
    console = cloud.wait_for_line(made.id, "Connected")
    assert "ld.so" not in console
    assert TINY in console, "the model was named by a variable alone"
    assert (made.folder / "root/opt/tgi-deploy/evil/sitecustomize.py").exists()
    assert not (made.folder / "root/opt/tgi-deploy/evil/ran").exists()
    environ = Path(f"/proc/{made.engine}/environ")
    if environ.exists():
        assert b"evil" not in environ.read_bytes()


def test_the_endpoint_port_is_reserved_before_the_engine_answers(cloud):
    made = opened(cloud, script("sleep 600"))
    if made.address == "127.0.0.1":
        pytest.skip("machines have addresses of their own on Linux alone")
    with socket.socket() as impostor:
        impostor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            impostor.bind((made.address, PORT))
    with socket.socket() as caller:
        assert caller.connect_ex((made.address, PORT)) != 0, "nothing answers there yet"
    cloud.ec2.terminate_instances(InstanceIds=[made.id])
    cloud.wait_for_state(made.id, "terminated")
    with socket.socket() as next_one:
        next_one.bind((made.address, PORT))


def test_only_the_engine_answers_on_its_reserved_port(cloud):
    second = docker_run(f"--name second -e MODEL_ID={TINY}")
    made = opened(cloud, script(f"{docker_run(f'-d --name tgi -e MODEL_ID={TINY}')}", f"{second} || echo refused $?"))
    assert "port is already allocated" in cloud.wait_for_line(made.id, "refused 125")

    def healthy():
        try:
            with urllib.request.urlopen(f"http://{made.address}:{PORT}/health", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    cloud.wait(healthy)


def test_a_program_on_every_address_is_not_the_engine(cloud):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("0.0.0.0", PORT + 1))  # noqa: S104 -- every address of this computer is the point
        other.listen()
        made = opened(cloud, script(f"docker run -p {PORT + 1}:80 {IMAGE} --model-id {TINY}; echo status $?"), PORT + 1)
        if made.address == "127.0.0.1":
            pytest.skip("machines have addresses of their own on Linux alone")
        with socket.socket() as caller:
            assert caller.connect_ex((made.address, PORT + 1)) != 0
        console = cloud.wait_for_line(made.id, "status 125")
    assert "port is already allocated" in console
