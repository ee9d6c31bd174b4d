"""Failures of real runs: a port in use, a cloud that dies midway, no terminal to ask on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
TOOL = (sys.executable, "-m", "tgi_deploy")
UP = ("up", "smollm2-135m", "--budget", "5", "--sandbox", "--yes")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A separate state folder, whose sandbox is always stopped and leaves nothing."""
    folder = tmp_path / "state"
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    stopped = run("sandbox", "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert processes_of(folder) == []
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def processes_of(folder):
    """Return the command lines that mention the folder, to find leftovers of the sandbox."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)  # noqa: S607 -- the system's own
    return [line for line in listed.stdout.splitlines() if str(folder) in line]


def run(*args):
    return subprocess.run(
        [*TOOL, *args], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120
    )


def last_error(finished):
    """Return (code, message, hint) of the last error line, after checking that it is one line without a traceback."""
    assert "Traceback" not in finished.stderr
    *lines, hint = finished.stderr.splitlines()
    error = next(line for line in reversed(lines) if line.startswith("error["))
    assert hint.startswith("hint: "), finished.stderr
    code, _, message = error.removeprefix("error[").partition("]: ")
    return code, message, hint


def test_an_occupied_port_is_reported(home):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", 0))  # noqa: S104 -- every address, as docker would have it
        taken.listen()
        port = taken.getsockname()[1]
        finished = run(*UP, "--port", str(port))
    code, message, hint = last_error(finished)
    assert (finished.returncode, code) == (5, "engine_failed")
    assert "port_in_use" in message
    assert "everything was removed" in hint
    assert json.loads(run("list", "--sandbox", "--json").stdout)["data"]["deployments"] == []


def up_until(line_start, act):
    """Run `up`, call `act(process)` when its output reaches the text, and return how it ended."""
    with subprocess.Popen([*TOOL, *UP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        result = []
        for line in process.stderr:
            result.append(line)
            if line.startswith(line_start):
                act(process)
                break
        result += process.stderr.readlines()
        out = process.stdout.read()
    return subprocess.CompletedProcess(process.args, process.returncode, out, "".join(result))


def test_a_sandbox_killed_midway(home):
    assert run("sandbox", "start").returncode == 0
    server = json.loads(run("sandbox", "status", "--json").stdout)["data"]["sandbox"]["pid"]
    finished = up_until("created instance", lambda _: os.kill(server, signal.SIGKILL))
    code, _, _ = last_error(finished)
    assert (finished.returncode, code) == (1, "cloud_unreachable")


def test_interrupted_while_waiting(home):
    """Ctrl-C: exit 130 and one line; what exists is on record, and the next `down` removes it."""
    finished = up_until("booting", lambda process: process.send_signal(signal.SIGINT))
    assert finished.returncode == 130
    assert "Traceback" not in finished.stderr
    removed = run("down", "--all", "--sandbox", "--yes")
    assert (removed.returncode, removed.stderr.count("error[")) == (0, 0), removed.stderr
    assert json.loads(run("list", "--sandbox", "--json").stdout)["data"]["deployments"] == []


def test_without_a_terminal_nothing_starts(home):
    finished = run("up", "smollm2-135m", "--budget", "5", "--sandbox")
    assert finished.returncode == 2
    assert last_error(finished)[0] == "confirmation_needed"
    assert processes_of(home) == []


def test_up_and_down_twice(home):
    first = run(*UP, "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["data"]["changed"] is True
    second = json.loads(run(*UP, "--json").stdout)
    assert (second["exit_code"], second["data"]["changed"]) == (0, False)
    down = ("down", "smollm2-135m", "--sandbox", "--yes", "--json")
    assert json.loads(run(*down).stdout)["data"]["removed"] == ["smollm2-135m"]
    again = json.loads(run(*down).stdout)
    assert (again["exit_code"], again["data"]["removed"], again["data"]["absent"]) == (0, [], ["smollm2-135m"])


def test_no_sandbox_runs_before_the_tests(home):
    assert not Path(home).exists()
