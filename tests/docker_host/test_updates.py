"""Updates on the real engine with fifty open streams: callers count what is cut, and for how long they are refused."""

from __future__ import annotations

import json

import pytest
from builders.crowd import crowd_at

pytestmark = [pytest.mark.docker_engine, pytest.mark.xdist_group("docker_host")]
STREAMS = 50
# A tenth of a real start; an answer of that many tokens outlives it.
SPEED = 10
GRAMMAR = {"type": "json", "value": {"const": "on and on " * 2000}}


@pytest.fixture
def slow(docker_engine):
    """Engines of a speed at which a stream lasts longer than the start of another one."""
    settings = docker_engine.stand_in / "engine.json"
    before = settings.read_bytes() if settings.exists() else None
    settings.write_text(json.dumps({"STAND_IN_SPEED": str(SPEED)}), encoding="utf-8")
    yield
    settings.unlink() if before is None else settings.write_bytes(before)


def crowd(tool, tokens):
    body = {"inputs": "on", "parameters": {"grammar": GRAMMAR, "max_new_tokens": tokens}}
    return crowd_at(f"http://127.0.0.1:{tool.port}", "/generate_stream", body, last=b'"finish_reason"', streams=STREAMS)


def up(tool, *words):
    code, document = tool.up("--num-shard", "1", *words, hardware="4xL40S")
    assert code == 0, document["errors"]
    return document["data"]


@pytest.mark.usefixtures("slow")
def test_behind_a_proxy_nothing_is_cut_or_refused(tool):
    up(tool, "--front", "proxy")
    for step in (("up", "--front", "proxy", "--quantize", "eetq"), ("rollback",)):
        with crowd(tool, 2500) as callers:
            done = change(tool, *step)
        assert callers.lasted_s > done["ready"]["elapsed_s"], "the streams were open when the requests moved"
        assert done["update"]["strategy"] == "rolling"
        assert (callers.whole, callers.cut, callers.refused) == (STREAMS, [], [])
    assert tool.run("down", tool.name, "--yes")[0] == 0
    assert tool.names() == []


@pytest.mark.usefixtures("slow")
def test_without_one_nothing_is_cut_and_the_refusal_is_measured(tool):
    up(tool)
    for step in (("up", "--quantize", "eetq"), ("rollback",)):
        with crowd(tool, 200) as callers:
            done = change(tool, *step)
        assert done["update"]["strategy"] == "recreate"
        assert (callers.whole, callers.cut) == (STREAMS, [])
        assert callers.refused[0][0] - callers.began < callers.lasted_s, "streams were open when it began to refuse"
        assert 0 < callers.refused_s <= done["refused_s"]


def change(tool, command, *words):
    if command == "up":
        return up(tool, *words)
    code, document = tool.run("rollback", tool.name, "--yes")
    assert code == 0, document["errors"]
    return document["data"]
