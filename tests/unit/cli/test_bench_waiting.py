"""The table of the waiting benchmark; what is in it is measured by running it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def bench():
    path = Path(__file__).parents[3] / "scripts" / "bench_waiting.py"
    spec = importlib.util.spec_from_file_location("bench_waiting", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_waiting"] = module
    spec.loader.exec_module(module)
    return module


def test_shares_are_told_as_multiples_of_the_target(bench):
    waited = bench.Waited(phase="pulling", seconds=120, cpu_s=0.6, memory_mib=84.4, calls=36)
    lines = bench.table([waited], [0.4, 0.5, 1.5]).splitlines()
    assert lines[2:] == [
        "| waiting in pulling: share of a core | 0.50% | x 0.50 |",
        "| the same for 10 minutes, CPU s | 3.0 | x 0.50 |",
        "| calls to the cloud a minute | 18 | |",
        "| largest memory, MiB | 84 | |",
        "| first 200 to the output of `up`, less its proof, s | 0.50 | x 0.50 |",
        "| the longest of 3 | 1.50 | x 1.50 |",
    ]


def test_its_own_process_can_be_measured(bench):
    pid = Path("/proc/self").resolve().name
    assert bench._cpu_s(int(pid)) > 0
    assert bench._memory_mib(int(pid)) > 5
