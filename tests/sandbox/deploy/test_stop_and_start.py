"""`stop`, `start` and `restart` by the command line: the machine goes down, boots from its disk and serves again."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

UP = ("up", "llama3-13b", "--budget", "5", "--yes")
QUESTION = {"inputs": "What is a GPU?", "parameters": {"max_new_tokens": 8}}


def answer(url):
    request = urllib.request.Request(  # noqa: S310 -- loopback
        f"{url}/generate", json.dumps(QUESTION).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310 -- loopback
        return json.load(reply)["generated_text"]


def console(program):
    (machine,) = program.control("GET", "machines")["machines"]
    return Path(machine["console"]).read_text(encoding="utf-8", errors="replace")


def done(result):
    assert result.code == 0, result.out + result.err
    return result.json["data"]


def test_stop_start_restart_and_down_account_for_every_cent(program):
    first = done(program.here(*UP, "--name", "demo", "--lease", "2h", "--idle-timeout", "30m"))["endpoint"]
    stopped = done(program.here("stop", "demo", "--yes"))
    assert (stopped["deployment"]["phase"], stopped["endpoint"]) == ("stopped", None)
    with pytest.raises(urllib.error.URLError):
        answer(first)
    assert program.here("status", "demo").code == 5
    (row,) = program.here("list").json["data"]["deployments"]
    assert (row["phase"], row["machine"], row["usd_per_hour"]) == ("stopped", "stopped", stopped["usd_per_hour"])
    assert 0 < float(row["usd_per_hour"]) < 0.1
    started = done(program.here("start", "demo", "--yes"))
    assert started["endpoint"] != first
    assert answer(started["endpoint"])
    restarted = done(program.here("restart", "demo", "--yes"))
    assert restarted["endpoint"] == started["endpoint"]
    text = console(program)
    assert (text.count("Linux version"), text.count("running 'init'")) == (3, 1)
    assert text.count("webserver terminated") == 2
    receipt = done(program.here("down", "demo", "--yes"))["receipt"]
    billed = [line for line in receipt["resources"] if line["usd"]]
    assert [line["kind"] for line in billed] == ["instance", "disk", "instance"]
    assert sum(float(line["usd"]) for line in billed) == pytest.approx(float(receipt["cost"]["usd"]))


def test_without_capacity_it_stays_stopped_and_up_starts_it_later(program):
    first = done(program.here(*UP, "--name", "demo"))
    done(program.here("stop", "demo", "--yes"))
    program.fault(action="StartInstances", code="InsufficientInstanceCapacity")
    result = program.here("start", "demo", "--yes")
    assert result.code == 1
    (problem,) = result.json["errors"]
    assert problem["code"] == "not_started"
    assert "'tgi-deploy start --sandbox demo' tries again" in problem["hint"]
    assert [row["phase"] for row in program.instances()] == ["stopped"]
    again = done(program.here(*UP, "--name", "demo"))
    ids = [
        {item["kind"]: item["id"] for item in came["deployment"]["resources"]}["instance"] for came in (first, again)
    ]
    assert ids[0] == ids[1]
    assert answer(again["endpoint"])
