"""Behavior that only a real process shows: closed pipes, full disks, signals, terminals with other encodings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_SLOW_COMMAND = """
import sys, time
from tgi_deploy.cli import frame, main
from tgi_deploy.cli.output import Result
@frame.command("wait", examples=())
def wait() -> Result:
    print("ready", file=sys.stderr, flush=True)
    time.sleep(60)
    return Result()
main.ROOT = frame.group("root", help_text="", commands=[wait])
main.main(["wait"])
"""


def tgi_deploy(*args, **settings):
    return subprocess.run([sys.executable, "-m", "tgi_deploy", *args], capture_output=True, check=False, **settings)


def test_version():
    finished = tgi_deploy("--version", text=True)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "tgi-deploy 0.1.0\n", "")


def test_a_closed_pipe_is_not_an_error():
    reader, writer = os.pipe()
    os.close(reader)
    finished = subprocess.run(
        [sys.executable, "-m", "tgi_deploy", "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        finished = subprocess.run(
            [sys.executable, "-m", "tgi_deploy", "completion", "bash"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert finished.returncode == 1
    assert finished.stderr == "error[output_failed]: writing the result failed: No space left on device\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_exit_130(number):
    process = subprocess.Popen([sys.executable, "-c", _SLOW_COMMAND], stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "ready\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130
    assert err.splitlines()[0] == "error[interrupted]: interrupted before the end"
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("encoding", "argument"), [("ascii", b"mod\xc3\xa8le"), ("latin-1", "日本".encode()), ("utf-8", b"\xff\xfe")]
)
def test_any_argument_on_any_terminal(encoding, argument):
    finished = tgi_deploy(argument, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert finished.returncode == 2
    assert finished.stderr.startswith(b"error[unknown_command]: ")
    assert b"Traceback" not in finished.stderr
