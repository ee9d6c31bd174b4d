"""A machine stops restarting its engine after certain log texts: each of them has a cause to report."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from builders.logs import DATA, GRAMMAR

from tgi_deploy.diagnosis.lines import log_lines
from tgi_deploy.diagnosis.reader import read

CASES = Path(__file__).resolve().parents[1] / "cases" / "diagnosis"
FINAL = [
    (page["code"], pattern)
    for page in DATA["codes"]
    for text in page["signatures"]
    if text.get("final")
    for pattern in text["match"]
]
# A restart may fix these, so a machine must not give up after them.
PASSING = {"network", "nccl_hang", "port_in_use", "rendezvous_port"}
# Forms of texts that have another form in the logs.
UNSEEN = {r"status client error \(401", r"401 Unauthorized.{0,80}huggingface", "CUDA error: out of memory"}


@cache
def lines() -> frozenset[str]:
    logs = (path.read_text(encoding="utf-8", errors="replace") for path in CASES.glob("*/log.*"))
    return frozenset(line for log in logs for line in log_lines(log, GRAMMAR))


def test_final_texts_exist():
    assert FINAL
    assert not {code for code, _ in FINAL} & PASSING


@pytest.mark.parametrize(("code", "pattern"), [item for item in FINAL if item[1] not in UNSEEN])
def test_texts_that_stop_retries_are_explained(code: str, pattern: str):
    found = [line for line in lines() if re.search(pattern, line, re.IGNORECASE)]
    assert found, "no log of tests/cases/diagnosis has such a line"
    codes = {item.code for line in found for item in read(line, GRAMMAR).findings}
    assert codes
    assert not codes & PASSING


def test_machine_and_reader_match_the_same_lines(tmp_path: Path):
    """GNU grep and bash read extended patterns with the same library."""
    written = tmp_path / "lines"
    every = sorted(lines())
    written.write_text("\n".join(every) + "\n", encoding="utf-8")
    command = ["grep", "-E", "-i", "-n", "-e", GRAMMAR.log_filter.refused, str(written)]
    surroundings = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    found = {int(line.partition(":")[0]) for line in ran.stdout.splitlines()}
    wanted = re.compile("|".join(f"(?:{pattern})" for _, pattern in FINAL), re.IGNORECASE)
    assert found == {number for number, line in enumerate(every, start=1) if wanted.search(line)}
    assert found
