"""The benchmark's arithmetic; the times themselves are measured by running it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_cli", Path(__file__).parents[3] / "scripts" / "bench_cli.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_cli"] = module
    spec.loader.exec_module(module)
    return module


FASTEST = {"import click": 0.05, "--help": 0.07, "plan": 0.17, "plan, one region": 0.2, "plan, everywhere": 0.45}


def test_a_command_is_held_to_so_many_times_its_base_or_so_many_seconds_more(bench):
    found = {limit.command: limit.check(FASTEST) for limit in bench.LIMITS}
    assert {command: check.ok for command, check in found.items()} == dict.fromkeys(found, True)
    assert found["plan"].found.startswith("3.40 x")
    assert found["plan, everywhere"].found.startswith("+0.25 s")


@pytest.mark.parametrize(
    ("slow", "arguments", "exit_code"),
    [
        ({}, ["--check"], 0),
        ({"--help": 0.08}, ["--check"], 1),
        ({"plan, everywhere": 0.6}, ["--check"], 1),
        ({"--help": 0.08}, [], 0),
    ],
)
def test_only_check_fails_and_only_over_a_limit(bench, monkeypatch, capsys, slow, arguments, exit_code):
    monkeypatch.setattr(bench, "_seconds", lambda words: 0)
    monkeypatch.setattr(bench, "measure", lambda rounds: FASTEST | slow)
    monkeypatch.setattr(sys, "argv", ["bench_cli.py", *arguments])
    assert bench.main() == exit_code
    assert ("TOO SLOW" in capsys.readouterr().out) is bool(slow)


def test_the_fastest_round_counts_and_each_round_runs_every_command(bench, monkeypatch):
    ran = []
    monkeypatch.setattr(bench, "_seconds", lambda words: ran.append(words) or float(len(ran)))
    fastest = bench.measure(3)
    assert len(ran) == 15
    assert fastest["import click"] == 1.0
