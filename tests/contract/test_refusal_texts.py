"""A machine gives up on what its engine says without asking anybody: each such text must have a cause to be told."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from tgi_deploy.catalog.phases import read_phases
from tgi_deploy.diagnosis.grammar import grammar_from
from tgi_deploy.diagnosis.reader import read
from tgi_deploy.resources import templates_dir

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = (templates_dir() / "user-data" / "run-engine.j2").read_text(encoding="utf-8")
GRAMMAR = grammar_from(read_phases())
# A restart may mend these: a machine that gives up on them would be given up too early.
PASSING = {"network", "nccl_hang", "port_in_use", "rendezvous_port"}


def refusals() -> list[str]:
    """The patterns of bash on which the script writes the line down as a refusal."""
    (until,) = re.findall(r"ready=yes ;;\n(.+?)\)\n\s+printf '%s\\n' \"\$line\" >\"\$refusal\"", SCRIPT, re.DOTALL)
    words = re.sub(r"\\\n", " ", until).split(" | ")
    return [word.strip().replace("'", "") for word in words]


@cache
def lines() -> frozenset[str]:
    logs = (REPOSITORY / "tests" / "cases" / "diagnosis").glob("*/log.txt")
    return frozenset(line for log in logs for line in log.read_text(encoding="utf-8", errors="replace").splitlines())


def test_all_patterns_are_read():
    assert len(refusals()) >= 25
    assert all(pattern.strip("*") and pattern[0] == pattern[-1] == "*" for pattern in refusals())


@pytest.mark.parametrize("pattern", refusals())
def test_what_a_machine_gives_up_on_is_explained(pattern: str):
    said = [line for line in lines() if fnmatchcase(line.lower(), pattern)]
    assert said, "no log of tests/cases/diagnosis has such a line"
    found = {item.code for line in said for item in read(line, GRAMMAR).findings}
    assert found
    assert not found & PASSING
