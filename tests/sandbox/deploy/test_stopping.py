"""Signals to the real program in the sandbox: exit 130, and no unrecorded resources."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.records import is_untouched
from builders.waiting import eventually

UP = ("up", "llama3-13b", "--budget", "5", "--yes", "--sandbox", "--json")
DOWN = ("down", "llama3-13b", "--yes", "--sandbox", "--json")


class Running:
    """The program as a separate process, without a terminal."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tgi_deploy", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, happened):
        def look():
            found = happened()
            assert found or self.process.poll() is None, self.process.communicate()
            return found

        eventually(look)
        return self

    def send(self, *numbers, pause_s=0.0):
        self.sent_at = time.monotonic()
        for number in numbers:
            self.process.send_signal(number)
            time.sleep(pause_s)
        return self

    def end(self):
        try:
            out, err = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"it did not end: {self.process.communicate()}")
        self.took_s = time.monotonic() - self.sent_at
        assert "Traceback" not in err, err
        assert self.process.returncode == 130, (out, err)
        answer = json.loads(out)
        assert (answer["exit_code"], answer["errors"][0]["code"]) == (130, "interrupted")
        return answer


def alive(program):
    """Return the live machines in the cloud, regardless of records."""
    kept = program.run("gc", "--older-than", "1d", "--sandbox", "--json").json["data"]["kept"]
    return [thing for group in kept for thing in group["resources"]]


def recorded(program):
    return [row["name"] for row in program.here("list").json["data"]["deployments"] if row["recorded"]]


def test_ctrl_c_during_the_launch(program):
    program.fault(action="RunInstances", delay_s=1.5)
    running = Running(*UP, "--no-wait").until(lambda: program.calls("RunInstances"))
    answer = running.send(signal.SIGINT).end()
    assert answer["data"]["outcome"] == "removed"
    assert re.search(r"\(llama3-13b ran \d+ s, cost about \$0\.0[01]\)", answer["errors"][0]["message"])
    assert alive(program) == []
    assert recorded(program) == []
    assert is_untouched(answer["data"]["receipt"])
    assert [item["kind"] for item in answer["data"]["receipt"]["resources"]].count("instance") == 1


def test_a_hanging_launch_is_aborted_and_found(program):
    """The reply takes longer than anyone waits: the request is aborted, and its machine must still be found."""
    program.fault(action="RunInstances", delay_s=4.5)
    running = Running(*UP, "--no-wait").until(lambda: program.calls("RunInstances"))
    running.send(signal.SIGINT).end()
    time.sleep(5)  # delayed requests arrive
    assert alive(program) == []


def waiting(program):
    def happened():
        rows = program.here("list").json["data"]["deployments"]
        return [row for row in rows if row["phase"] == "running"]

    return happened


def test_sigterm_while_waiting_removes_within_ten_seconds(program):
    program.fault(name="slow-boot", boot_s=120)
    running = Running(*UP).until(waiting(program))
    answer = running.send(signal.SIGTERM).end()
    assert running.took_s < 2 * 10  # twice the promised time: the computer may be busy with other tests
    assert answer["data"]["outcome"] in {"removed", "removing"}
    if answer["data"]["outcome"] == "removing":
        assert recorded(program) == ["llama3-13b"]
        assert program.run(*DOWN).code == 0
    assert alive(program) == []


def test_a_second_ctrl_c_exits_at_once_and_lists_what_exists(program):
    program.fault(action="TerminateInstances", delay_s=20)
    program.fault(name="slow-boot", boot_s=120)
    running = Running(*UP).until(waiting(program)).send(signal.SIGINT)
    running.until(lambda: program.calls("TerminateInstances"))
    answer = running.send(signal.SIGINT).end()
    assert running.took_s < 15
    assert answer["data"]["outcome"] == "not_removed"
    assert "instance" in {item["kind"] for item in answer["data"]["exists"]}
    assert recorded(program) == ["llama3-13b"]
    assert program.run(*DOWN).code == 0
    assert alive(program) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_down_keeps_its_record_and_prints_the_command(program, number):
    program.run(*UP, "--no-wait")
    program.fault(action="TerminateInstances", delay_s=1)
    running = Running(*DOWN).until(lambda: program.calls("TerminateInstances"))
    answer = running.send(number).end()
    assert "tgi-deploy down --sandbox llama3-13b" in answer["errors"][0]["hint"]
    assert recorded(program) == ["llama3-13b"]
    result = program.run(*DOWN)
    assert (result.code, result.json["data"]["removed"]) == (0, ["llama3-13b"])
    assert result.json["data"]["receipt"]["cost"]["usd"] is not None
    assert alive(program) == []


def test_gc_from_a_computer_without_records(program, monkeypatch):
    program.run(*UP, "--no-wait")
    records = program.home / "sandbox" / "records" / "deployments"
    records.rename(program.home / "lost")
    kept = program.run("gc", "--older-than", "0s", "--yes", "--sandbox", "--json").json["data"]
    assert (kept["orphans"], len(kept["kept"])) == ([], 1)
    asked = program.run("gc", "--older-than", "0s", "--include-unrecorded", "--sandbox", "--json")
    assert (asked.code, asked.json["errors"][0]["code"]) == (2, "confirmation_needed")
    result = program.run("gc", "--older-than", "0s", "--include-unrecorded", "--yes", "--sandbox", "--json")
    assert (result.code, result.json["data"]["removed"]) == (0, ["llama3-13b"])
    assert alive(program) == []
    (path,) = result.json["data"]["receipt_files"]
    assert is_untouched(json.loads(Path(path).read_text()))
