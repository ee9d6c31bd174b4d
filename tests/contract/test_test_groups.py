"""Tests that share a thing of this machine say so with `xdist_group`: the runner must keep them on one worker."""

from __future__ import annotations

import os
import subprocess
import sys

GROUPED = """
import os
import pathlib

import pytest


@pytest.mark.xdist_group("shared")
@pytest.mark.parametrize("case", range(12))
def test_it(case):
    (pathlib.Path(__file__).parent / f"{case}.ran").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_a_group_stays_on_one_worker(tmp_path):
    (tmp_path / "test_grouped.py").write_text(GROUPED, encoding="utf-8")
    outer = ("PYTEST_", "COV_")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith(outer)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    workers = [found.read_text(encoding="utf-8") for found in tmp_path.glob("*.ran")]
    assert (len(workers), len(set(workers))) == (12, 1)
