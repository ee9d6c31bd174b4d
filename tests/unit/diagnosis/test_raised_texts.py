"""Errors of the engine and its libraries while a model loads, each tested separately."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.logs import GRAMMAR
from builders.samples import quick

from tgi_deploy.diagnosis.reader import read

RAISED = json.loads((Path(__file__).parents[2] / "cases" / "engine" / "raised.json").read_text(encoding="utf-8"))
STARTED = (
    "2025-06-02T07:11:04.1Z  INFO download: text_generation_launcher: Starting check and download process for a/b\n"
    "2025-06-02T07:11:40.1Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0\n"
)
FAILED = (
    "2025-06-02T07:11:58.1Z ERROR text_generation_launcher: Error when initializing model\n"
    "Traceback (most recent call last):\n"
    '  File "/usr/src/server/text_generation_server/server.py", line 268, in serve_inner\n'
    "{text}\n"
    "2025-06-02T07:11:59.1Z ERROR text_generation_launcher: Shard 0 failed to start\n"
    "Error: ShardCannotStart\n"
)
SERVES = (
    "2025-06-02T07:12:10.1Z  INFO text_generation_launcher: Starting Webserver\n"
    "2025-06-02T07:12:21.1Z  INFO text_generation_router::server: router/src/server.rs:2361: Connected\n"
)


@pytest.mark.parametrize(
    ("code", "text"), quick([(code, text) for code, texts in RAISED["texts"].items() for text in texts], 10), ids=str
)
def test_a_raised_text_is_a_cause_only_if_the_start_failed(code, text):
    found = read(STARTED + FAILED.format(text=text), GRAMMAR).findings
    assert (found[0].code, found[0].line) == (code, 6)
    warned = f"2025-06-02T07:11:50.1Z  WARN text_generation_launcher: {text}\n"
    assert not read(STARTED + warned + SERVES, GRAMMAR).failed
