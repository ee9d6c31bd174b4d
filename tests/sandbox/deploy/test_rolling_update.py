"""An update while callers stream: no request is cut, and the time in which new ones are refused is measured."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pytest
from builders.crowd import crowd_at
from builders.sandboxed import Program

from tgi_deploy.sandbox import control

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STREAMS = 5
JSON = {"Content-Type": "application/json"}
# How much faster machines, engines and timers are than real ones.
SPEED = 60.0
UP = ("up", "llama3-13b", "--budget", "5", "--quantize", "none", "--context", "4096", "--yes", "--name", "demo")
STATIC = (*UP, "--static-ip")
# An answer of known length: about a minute on a real engine, whose grace period is 90 s.
FIELDS = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(30)}}
BODY = json.dumps(
    {"inputs": "go on", "parameters": {"max_new_tokens": 3000, "grammar": {"type": "json", "value": FIELDS}}}
).encode()
SHORT = {"inputs": "go on", "parameters": {"max_new_tokens": 200, "details": True}}


@dataclass
class Callers:
    """Threads that stream one answer after another from the current URL. `cut`: incomplete answers."""

    url: Callable[[], str]
    done: int = 0
    cut: list[str] = field(default_factory=list)
    refused: int = 0
    _end: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=self._call, daemon=True) for _ in range(STREAMS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)

    def _call(self) -> None:
        while not self._end.is_set():
            try:
                asked = urllib.request.Request(f"{self.url()}/generate_stream", BODY, JSON)  # noqa: S310 -- loopback
                reply = urllib.request.urlopen(asked, timeout=60)  # noqa: S310 -- loopback
            except (OSError, http.client.HTTPException):
                with self._lock:
                    self.refused += 1
                time.sleep(0.05)
                continue
            self._read(reply)

    def _read(self, reply: object) -> None:
        try:
            text = reply.read().decode()  # type: ignore[attr-defined]
            whole = '"generated_text":"' in text.replace('": "', '":"')
            problem = "" if whole else text[-200:]
        except (OSError, http.client.HTTPException) as error:
            problem = repr(error)
        with self._lock:
            if problem:
                self.cut.append(problem)
            else:
                self.done += 1


@pytest.fixture
def program(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Program]:
    home: Path = tmp_path_factory.mktemp("rolling")
    info = control.start(home / "sandbox", speed=SPEED, timer_speed=SPEED)
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(home))
    yield Program(url=info.endpoint_url, access_key=info.access_key, home=home, capsys=capsys)
    control.stop(home / "sandbox")


def test_no_stream_is_cut_by_a_rolling_update(program: Program) -> None:
    first = program.here(*UP, "--num-shard", "1")
    assert first.code == 0, first.out
    old = first.json["data"]["endpoint"]
    (record,) = program.home.rglob("deployments/demo/deployment.json")
    with Callers(lambda: old) as callers, Callers(lambda: str(json.loads(record.read_text())["endpoint"])) as follower:
        second = program.here(*UP, "--num-shard", "2")
        assert second.code == 0, second.out
        time.sleep(1)
    data = second.json["data"]
    assert data["update"]["strategy"] == "rolling"
    assert callers.cut == []
    assert callers.done > STREAMS
    assert callers.refused, "the old machine was not ended"
    assert data["endpoint"] != old
    (machine,) = [one for one in program.control("GET", "machines")["machines"] if one["state"] == "running"]
    assert machine["address"] in data["endpoint"]
    assert (follower.refused, follower.cut) == (0, [])
    assert follower.done > STREAMS


def test_recreate_cuts_no_stream_and_measures_refusals(program: Program) -> None:
    first = program.here(*UP, "--num-shard", "1")
    assert first.code == 0, first.out
    url = first.json["data"]["endpoint"]
    with crowd_at(url, "/generate_stream", SHORT, last=b'"finish_reason"', streams=50, renewed=True) as crowd:
        second = program.here(*UP, "--num-shard", "2", "--strategy", "recreate")
    assert second.code == 0, second.out
    data = second.json["data"]
    assert data["update"]["strategy"] == "recreate"
    assert (crowd.cut, crowd.whole > 50) == ([], True)
    # Callers keep using the old address until the command exits, just after the new machine is proved.
    assert 0 < crowd.refused_s < data["refused_s"] + 2


def done(program, *words):
    run = program.here(*words)
    assert run.code == 0, run.out + run.err
    return run.json["data"]


def addresses(program):
    return program.client("ec2").describe_addresses()["Addresses"]


def test_a_static_ip_survives_an_update_and_a_stop(program: Program) -> None:
    url = done(program, *STATIC, "--num-shard", "1")["endpoint"]
    (address,) = addresses(program)
    assert address["PublicIp"] in url
    with crowd_at(url, "/generate_stream", SHORT, last=b'"finish_reason"', streams=50, renewed=True) as crowd:
        data = done(program, *STATIC, "--num-shard", "2")
    assert (data["update"]["strategy"], data["update"]["stable"], data["endpoint"]) == ("rolling", True, url)
    assert data["update"]["downtime_s"] == data["update"]["drain_s"] > 0
    assert (crowd.cut, crowd.whole > 50) == ([], True)
    assert 0 < crowd.refused_s < data["refused_s"] + 1
    (held,) = addresses(program)
    (machine,) = [one for one in program.control("GET", "machines")["machines"] if one["state"] == "running"]
    assert (held["AllocationId"], held["InstanceId"]) == (address["AllocationId"], machine["instance_id"])
    done(program, "stop", "demo", "--yes")
    assert done(program, "start", "demo", "--yes")["endpoint"] == url
    (receipt,) = done(program, "down", "demo", "--yes")["receipts"]
    assert addresses(program) == []
    (line,) = [line for line in receipt["resources"] if line["kind"] == "address"]
    assert (line["id"], line["usd_per_hour"]) == (address["AllocationId"], "0.005")
    assert line["seconds"] < receipt["cost"]["seconds"] / 2, "while a machine runs, its price has an address in it"
