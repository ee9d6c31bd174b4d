"""Eight concurrent processes bring up one name: one deployment is created, and every process reports its owner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUNNERS = 8
UP = ("up", "llama3-13b", "--budget", "5", "--name", "raced", "--no-wait", "--yes", "--json")


def race(program, folder, homes):
    """Return exit codes with envelopes."""
    folder.mkdir()
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("racing.py")),
            str(folder),
            program.url,
            program.access_key,
            homes,
            *UP,
        ],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    result = [json.loads((folder / f"{number}.json").read_text()) for number in range(RUNNERS)]
    return [(one["exit_code"], one) for one in result]


def ids(program, action):
    """Return the callers of creating calls that took effect, by the deployment's id."""
    return {
        value
        for call in program.calls(action)
        for name, value in call["params"].items()
        if name.endswith("Value") and call["params"].get(name.replace("Value", "Key")) == "tgi-deploy:id"
        if call["params"].get("DryRun") != "true"
    }


@pytest.mark.parametrize("homes", ["own", "shared"])
def test_eight_concurrent_ups_create_one_deployment(program, tmp_path, homes, monkeypatch):
    results = race(program, tmp_path / "race", homes)
    assert {code for code, _ in results} <= {0, 4}
    winners = [result for code, result in results if code == 0 and result["data"]["changed"]]
    losers = [result["errors"][0] for code, result in results if code == 4]
    assert len(winners) == 1
    assert len(losers) >= RUNNERS - 2, "another one may have come after the end, and found it done"
    for error in losers:
        if homes == "own":
            assert error["code"] == "name_taken"
            assert "'raced' belongs to runner" in error["message"]
        else:
            assert error["code"] == "locked"
            assert "tgi-deploy up" in error["message"]
    check_that_nothing_else_is_there(program, winners[0], monkeypatch)


def check_that_nothing_else_is_there(program, winner, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", program.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", program.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert len(ids(program, "RunInstances")) == 1, "nobody but the winner asked for a machine"
    gc = program.run("gc", "--older-than", "0s", "--dry-run", "--json").json
    assert gc["data"]["orphans"] == []
    (status,) = program.run("status", "raced", "--json").json["data"]["deployments"]
    own = {item["id"] for item in winner["data"]["deployment"]["resources"]}
    assert {item["id"] for item in status["resources"] if not item["attached"]} == own
    assert program.run("down", "raced", "--yes", "--json").code == 0
    assert program.run("list", "--json").json["data"]["deployments"] == []
