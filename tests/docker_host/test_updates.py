"""Updates on a real engine with fifty open streams: callers count cut streams and refused requests."""

from __future__ import annotations

import json

import pytest
from builders.crowd import crowd_at

pytestmark = [pytest.mark.docker_engine, pytest.mark.xdist_group("docker_host")]
STREAMS = 50
# A tenth of a real start, and of a real grace, which is longer than a stream.
SPEED = 10
BODY = {"inputs": "on", "parameters": {"max_new_tokens": 60, "details": True}}


@pytest.fixture
def slow(docker_engine):
    """Engines that stream for seconds."""
    settings = docker_engine.fakes / "engine.json"
    before = settings.read_bytes() if settings.exists() else None
    settings.write_text(json.dumps({"STUB_SPEED": str(SPEED)}), encoding="utf-8")
    yield
    settings.unlink() if before is None else settings.write_bytes(before)


def crowd(tool):
    """Streams are open at every moment: who has read one asks for the next."""
    url = f"http://127.0.0.1:{tool.port}"
    return crowd_at(url, "/generate_stream", BODY, last=b'"finish_reason"', streams=STREAMS, renewed=True)


def up(tool, *words):
    code, document = tool.up("--num-shard", "1", *words, hardware="4xL40S")
    assert code == 0, document["errors"]
    return document["data"]


@pytest.mark.usefixtures("slow")
def test_behind_a_proxy_no_request_is_cut_or_refused(tool):
    up(tool, "--front", "proxy")
    for step in (("up", "--front", "proxy", "--quantize", "eetq"), ("rollback",)):
        with crowd(tool) as callers:
            done = change(tool, *step)
        assert done["update"]["strategy"] == "rolling"
        assert (callers.cut, callers.refused) == ([], [])
        assert callers.whole > STREAMS
    assert tool.run("down", tool.name, "--yes")[0] == 0
    assert tool.names() == []


@pytest.mark.usefixtures("slow")
def test_without_a_proxy_no_request_is_cut_and_refusals_are_measured(tool):
    up(tool)
    for step in (("up", "--quantize", "eetq"), ("rollback",)):
        with crowd(tool) as callers:
            done = change(tool, *step)
        assert done["update"]["strategy"] == "recreate"
        assert callers.cut == []
        assert callers.whole > STREAMS
        assert 0 < callers.refused_s <= done["refused_s"]


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("commands", [("stop", "start"), ("restart",)])
def test_stop_and_start_cut_no_open_request(tool, commands):
    up(tool)
    with crowd(tool) as callers:
        for command in commands:
            change(tool, command)
    assert callers.cut == []
    assert callers.whole > STREAMS
    assert callers.refused_s > 0


def change(tool, command, *words):
    if command == "up":
        return up(tool, *words)
    code, document = tool.run(command, tool.name, "--yes")
    assert code == 0, document["errors"]
    return document["data"]
