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


MEDIANS = {"import click": 0.05, "--help": 0.1, "plan": 0.2, "plan, one region": 0.2, "plan, everywhere": 0.5}


def test_ratios(bench):
    found = {limit.command: ratio for limit, ratio in bench.ratios(MEDIANS)}
    assert found == pytest.approx({"--help": 2.0, "plan": 4.0, "plan, everywhere": 2.5})


@pytest.mark.parametrize(
    ("help_s", "arguments", "exit_code"), [(0.1, ["--check"], 0), (0.2, ["--check"], 1), (0.2, [], 0)]
)
def test_only_check_fails_and_only_over_the_limit(bench, monkeypatch, capsys, help_s, arguments, exit_code):
    monkeypatch.setattr(bench, "_seconds", lambda words: 0)
    monkeypatch.setattr(bench, "measure", lambda rounds: {**MEDIANS, "--help": help_s})
    monkeypatch.setattr(sys, "argv", ["bench_cli.py", *arguments])
    assert bench.main() == exit_code
    assert ("TOO SLOW" in capsys.readouterr().out) is (help_s > 0.125)


def test_measure_runs_every_command_each_round(bench, monkeypatch):
    ran = []
    monkeypatch.setattr(bench, "_seconds", lambda words: ran.append(words) or float(len(ran)))
    medians = bench.measure(3)
    assert len(ran) == 15
    assert medians["import click"] == 6.0
