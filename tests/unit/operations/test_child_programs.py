from __future__ import annotations

import sys
import threading
from contextlib import contextmanager

import pytest

from tgi_deploy.operations.deploying.child_programs import ChildPrograms

PATIENCE_S = 60
# Counts received signals, prints `ready`, and runs until the given file exists. Its handler writes
# past the buffer, which may be in use when the signal comes.
CHILD = """
import json, os, signal, sys, time
from pathlib import Path
stops = []
signal.signal(signal.SIGTERM, lambda *_: (stops.append(1), os.write(2, b"stopped\\n")))
print("ready", file=sys.stderr, flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
print(json.dumps({"data": {"stops": len(stops)}}))
"""


class Recorder:
    """Collects children's output; waiting for a line is possible."""

    def __init__(self):
        self.lines, self._came = [], threading.Condition()

    def __call__(self, _words, line):
        with self._came:
            self.lines.append(line)
            self._came.notify_all()

    def wait_for(self, line, *, times=1):
        with self._came:
            assert self._came.wait_for(lambda: self.lines.count(line) >= times, timeout=PATIENCE_S), self.lines


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def programs(recorder):
    return ChildPrograms(recorder, program=(sys.executable, "-c", CHILD))


@contextmanager
def running(programs, recorder, command, tmp_path):
    """Run a child during the block; its reply is in the list afterwards."""
    done, replies = tmp_path / "done", []
    thread = threading.Thread(target=lambda: replies.append(programs.run((command, str(done)))))
    thread.start()
    recorder.wait_for("ready")
    try:
        yield replies
    finally:
        done.touch()
        thread.join(PATIENCE_S)


def test_a_stop_request_reaches_a_launch(programs, recorder, tmp_path):
    with running(programs, recorder, "up", tmp_path) as replies:
        programs.stop()
        recorder.wait_for("stopped")
    assert programs.stopping
    assert replies[0].data["stops"] == 1


def test_a_removal_in_progress_finishes_unless_stopped_twice(programs, recorder, tmp_path):
    """An interrupted removal leaves resources, but a canceled CI job must leave nothing."""
    with running(programs, recorder, "down", tmp_path) as replies:
        programs.stop()
        assert "stopped" not in recorder.lines
        programs.stop()
        recorder.wait_for("stopped")
    assert replies[0].data["stops"] == 1


def test_a_launch_that_just_started_is_stopped(programs, tmp_path):
    """The stop request came between the check for one and the start of the process."""
    programs.stop()
    assert programs.run(("up", str(tmp_path / "never"))).exit_code != 0


def test_a_second_stop_request_does_not_wait_for_the_first(programs, recorder, tmp_path, monkeypatch):
    """A signal handler can be interrupted by the next signal."""
    with running(programs, recorder, "up", tmp_path) as replies:
        (process, _words) = next(iter(programs._running.items()))
        send, nested = process.send_signal, []

        def send_signal(number):
            if not nested:
                nested.append(number)
                programs.stop()
            send(number)

        monkeypatch.setattr(process, "send_signal", send_signal)
        stopper = threading.Thread(target=programs.stop, daemon=True)
        stopper.start()
        stopper.join(PATIENCE_S)
        assert not stopper.is_alive()
        recorder.wait_for("stopped")
    assert replies[0].data["stops"] >= 1
