from __future__ import annotations

import json
import socket
import threading
from collections import Counter

import pytest
from loopback_engine import PLAIN, serving, sse
from waiting_fakes import FakeClock

from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import NotHealthyError
from tgi_deploy.readiness.http import HttpEngine
from tgi_deploy.readiness.proof import Endpoint
from tgi_deploy.readiness.proof_load import CacheCapacity, measured_document, prove_load
from tgi_deploy.values.base import replaced
from tgi_deploy.values.probing import HttpReply, Promise

PROMISE = Promise(
    model_id="org/model",
    input_tokens=1024,
    output_tokens=256,
    concurrency=8,
    max_input_tokens=8191,
    max_total_tokens=8192,
)
TOKENS = tuple(json.dumps({"token": {"text": "a"}, "generated_text": None}) for _ in range(3))
LAST = json.dumps({"token": {"text": "b"}, "generated_text": "aaab"})


class Engine:
    """Answers at once; `beside` is the maximum number of concurrent requests."""

    def __init__(self, clock=None, **changes):
        self.clock = clock or FakeClock()
        self.plain = HttpReply(status=200, body=PLAIN)
        self.streamed = HttpReply(status=200, events=(*TOKENS, LAST), arrivals_ms=(120.0,))
        self.asked = []
        self.lock = threading.Lock()
        self.all_there = threading.Barrier(8, timeout=60)
        vars(self).update(changes)

    def ask(self, probe):
        with self.lock:
            self.asked.append((probe.path, probe.body))
        return self.stream() if probe.streamed else self.post()

    def post(self):
        self.clock.sleep(1.0)
        return self.plain() if callable(self.plain) else self.plain

    def stream(self):
        self.all_there.wait()
        with self.lock:
            self.clock.sleep(0.25)
        return self.streamed


def proof_by(client, kv=20_000, clock=None):
    capacity = CacheCapacity(planned_tokens=20_000, required_tokens=10_240, measured_tokens=kv)
    return prove_load(Endpoint(client=client, engine=Tgi()), PROMISE, capacity, clock=clock or FakeClock())


def proven(kv=20_000, **changes):
    clock = FakeClock()
    engine = Engine(clock, **changes)
    return proof_by(engine, kv, clock), engine


def refused(**changes):
    with pytest.raises(NotHealthyError) as caught:
        proven(**changes)
    assert caught.value.exit_code == 5
    assert caught.value.hint
    return caught.value


def test_a_failed_client_thread_is_reported():
    class Broken(Engine):
        def ask(self, probe):
            if probe.streamed and "river" in probe.body["inputs"].split()[0]:
                raise ValueError("nobody foresaw this")
            return self.streamed if probe.streamed else self.plain

    with pytest.raises(ValueError, match="nobody foresaw this"):
        proof_by(Broken())


def test_the_longest_promised_request_leaves_room_for_its_answer():
    _, engine = proven()
    (path, body), *_ = engine.asked
    assert path == "/generate"
    assert body["parameters"]["truncate"] == 8192 - 256
    assert body["parameters"]["max_new_tokens"] == 256
    assert len(body["inputs"].split()) == 8192 - 256


def test_the_input_limit_applies_if_lower():
    assert replaced(PROMISE, max_input_tokens=4000).longest_input_tokens == 4000


def test_concurrent_requests_have_different_prompts():
    _, engine = proven()  # the barrier lets nobody go on before all eight are there
    streams = [body for path, body in engine.asked if path == "/generate_stream"]
    assert len(streams) == 8
    assert len({body["inputs"] for body in streams}) == 8
    assert {body["parameters"]["truncate"] for body in streams} == {1024}


def test_the_same_greedy_request_is_asked_twice():
    report, engine = proven()
    bodies = [json.dumps(body) for path, body in engine.asked if path == "/generate"]
    assert sorted(Counter(bodies).values()) == [1, 2]
    assert report.warnings == ()


def test_two_answers_to_one_question_are_a_warning():
    texts = iter(["long", "one", "other"])
    report, _ = proven(plain=lambda: HttpReply(status=200, body={**PLAIN, "generated_text": next(texts)}))
    assert [warning.code for warning in report.warnings] == ["not_repeatable"]


def test_measurements_are_stored_with_the_plan():
    report, _ = proven(kv=21_000)
    document = measured_document(report.measured)
    assert document == {
        "first_token_ms": 120.0,
        "output_tokens_per_s": 16.0,  # 8 x 4 tokens in 8 x 0.25 s of the fake clock
        "requests": 8,
        "kv_capacity_tokens": 21_000,
        "kv_capacity_planned_tokens": 20_000,
        "kv_difference": 0.05,
    }
    assert [(step.name, step.took_ms) for step in report.steps] == [
        ("longest", 1000),
        ("together", 2000),
        ("repeat", 2000),
    ]


def test_a_log_without_the_capacity_is_not_a_failure():
    report, _ = proven(kv=None)
    assert measured_document(report.measured)["kv_difference"] is None


def test_too_small_a_kv_cache_is_rejected_first():
    error = refused(kv=10_239)
    assert error.code == "kv_capacity_short"
    assert "KV cache holds 10239 tokens, the plan needs 10240" in error.message


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"plain": HttpReply(status=424, text="CUDA out of memory")}, "longest_failed", "CUDA out of memory"),
        ({"plain": HttpReply(status=200, body={"generated_text": ""})}, "longest_failed", "no text"),
        ({"streamed": HttpReply(status=429, text="Model is overloaded")}, "together_failed", "overloaded"),
        (
            {"streamed": HttpReply(status=200, events=(*TOKENS, '{"error":"out of memory"}'))},
            "together_failed",
            "out of memory",
        ),
        ({"streamed": HttpReply(status=200, events=TOKENS)}, "together_failed", "without the complete text"),
    ],
)
def test_each_broken_promise_is_named(changes, code, says):
    error = refused(**changes)
    assert error.code == code
    assert says in error.message


def test_an_engine_that_dies_under_load_is_unreachable():
    def die(handler):
        handler.connection.shutdown(socket.SHUT_RDWR)

    routes = {"/generate": (200, PLAIN), "/generate_stream": (200, die)}
    with serving(routes) as server, pytest.raises(NotHealthyError) as caught:
        proof_by(HttpEngine(server.url), None)
    assert caught.value.code == "engine_unreachable"


def test_over_http():
    event = {"token": {"text": "a"}, "generated_text": None}
    routes = {"/generate": (200, PLAIN), "/generate_stream": (200, sse(event, {**event, "generated_text": "a"}))}
    with serving(routes) as server:
        report = proof_by(HttpEngine(server.url))
    assert report.measured.requests == 8
    assert report.measured.first_token_ms is not None
    assert report.measured.output_tokens_per_s is None  # no time passed on that clock
