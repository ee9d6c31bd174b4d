from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from builders import engines
from fakes.wire import variants
from loopback_engine import CHAT, INFO, LAST, PLAIN, TOKEN, healthy, serving, sse
from waiting_fakes import FakeClock

from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.engines.vllm import Vllm
from tgi_deploy.errors import NotHealthyError
from tgi_deploy.readiness.http import HttpEngine
from tgi_deploy.readiness.proof import Endpoint, ExpectedService, prove
from tgi_deploy.values.base import replaced
from tgi_deploy.values.probing import HttpReply, Identity

PROMISE = replaced(
    engines.PROMISE, model_id="meta-llama/Llama-3.1-8B-Instruct", max_input_tokens=8191, max_total_tokens=8192
)
EXPECTED = ExpectedService(promise=PROMISE, versions=("3.3.7", "3.3.6-dev0"))


def proof_by(client, expected=EXPECTED, clock=None):
    return prove(Endpoint(client=client, engine=Tgi()), expected, clock=clock or FakeClock())


def proven(expected=EXPECTED, **changes):
    """`changes`: route name with underscores for slashes → (status, body)."""
    routes = healthy() | {"/" + name.replace("__", "/"): answer for name, answer in changes.items()}
    with serving(routes) as server:
        return proof_by(HttpEngine(server.url), expected)


def refused(expected=EXPECTED, **changes):
    with pytest.raises(NotHealthyError) as caught:
        proven(expected, **changes)
    assert caught.value.exit_code == 5
    assert caught.value.hint
    return caught.value


def test_a_healthy_engine_passes_every_step():
    report = proven()
    assert [step.name for step in report.steps] == ["health", "info", "generate", "stream", "chat"]
    assert report.answer == PLAIN["generated_text"]
    assert report.identity == Identity(**INFO)
    assert report.warnings == ()
    assert report.first_token_ms is not None
    assert [step.detail for step in report.steps][2:] == ["5 tokens", "2 events", "2 tokens"]


def test_the_proof_sends_the_expected_requests():
    with serving() as server:
        proof_by(HttpEngine(server.url))
        asked = server.requests
    assert [path for _, path, *_ in asked] == list(healthy())
    bodies = {path: sent for _, path, sent, _ in asked}
    assert bodies["/generate"]["parameters"]["details"] is True
    assert bodies["/v1/chat/completions"]["messages"][0]["role"] == "user"
    assert bodies["/v1/chat/completions"]["stream"] is False


TAKES_S = {"/health": 1.0, "/info": 1.0, "/generate": 2.0, "/generate_stream": 3.0, "/v1/chat/completions": 2.0}


@dataclass
class SlowClient:
    """Every answer takes its seconds of the fake clock."""

    clock: FakeClock

    def ask(self, probe):
        self.clock.sleep(TAKES_S[probe.path])
        if probe.streamed:
            return HttpReply(status=200, events=('{"generated_text": "x"}',), arrivals_ms=(40.0,))
        return HttpReply(status=200, body=healthy()[probe.path][1])


def test_steps_are_timed_in_milliseconds():
    clock = FakeClock()
    report = proof_by(SlowClient(clock), clock=clock)
    assert [step.took_ms for step in report.steps] == [1000, 1000, 2000, 3000, 2000]
    assert report.first_token_ms == 40.0


def test_a_different_model_is_rejected_by_name():
    error = refused(info=(200, INFO | {"model_id": "bigscience/bloom-560m"}))
    assert error.code == "wrong_model"
    assert error.data == {"expected": PROMISE.model_id, "served": "bigscience/bloom-560m"}
    assert "bigscience/bloom-560m" in error.message


@pytest.mark.parametrize(
    ("key", "value"), [("max_input_tokens", 4096), ("max_total_tokens", 4096), ("max_total_tokens", None)]
)
def test_different_limits_are_rejected_with_both_numbers(key, value):
    error = refused(info=(200, INFO | {key: value}))
    assert error.code == "limits_differ"
    assert f"{key} is {value}, planned {INFO[key]}" in error.message


def test_an_engine_without_an_input_limit_is_rejected():
    assert refused(info=(200, INFO | {"max_input_tokens": None})).code == "info_failed"


def test_the_old_name_of_the_input_limit_counts():
    old = {key: value for key, value in INFO.items() if key != "max_input_tokens"}
    assert proven(info=(200, old | {"max_input_length": 8191})).identity.max_input_tokens == 8191
    assert refused(info=(200, old | {"max_input_length": 5})).code == "limits_differ"


def test_a_different_version_is_rejected():
    error = refused(info=(200, INFO | {"version": "3.0.0"}))
    assert error.code == "wrong_version"
    assert "3.3.7 or 3.3.6-dev0" in error.message


def test_without_expected_versions_any_is_accepted():
    assert proven(replace(EXPECTED, versions=()), info=(200, INFO | {"version": "0"})).answer


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"health": (503, {"error": "unhealthy", "error_type": "healthcheck"})}, "health_failed", "503"),
        ({"info": (404, "x")}, "info_failed", "404"),
        ({"info": (200, "no object")}, "info_failed", "no object"),
        ({"generate": (424, {"error": "Request failed during generation: x"})}, "generate_failed", "during generation"),
        ({"generate": (200, {"generated_text": "", "details": {"generated_tokens": 1}})}, "generate_failed", "no text"),
        (
            {"generate": (200, {"generated_text": "x", "details": {"generated_tokens": 0}})},
            "generate_failed",
            "no text",
        ),
        ({"generate": (200, {"generated_text": "x"})}, "generate_failed", "no text"),
        ({"generate": (200, [])}, "generate_failed", "200"),
        ({"generate": (401, None)}, "unauthorized", "API key"),
        ({"generate_stream": (500, {"error": "x"})}, "stream_failed", "500"),
        ({"generate_stream": (401, None)}, "unauthorized", "stream"),
        ({"generate_stream": (200, b"")}, "stream_failed", "0 events"),
        ({"generate_stream": (200, sse(TOKEN))}, "stream_failed", "1 events"),
        ({"generate_stream": (200, b"data: not json\n\n")}, "stream_failed", "not json"),
        ({"generate_stream": (200, b"data: [1]\n\n")}, "stream_failed", "not a JSON object"),
        ({"v1__chat__completions": (500, {"error": "x"})}, "chat_failed", "500"),
        ({"v1__chat__completions": (422, {"error": "x", "error_type": "validation"})}, "chat_failed", "422"),
        ({"v1__chat__completions": (422, "plain")}, "chat_failed", "422"),
        ({"v1__chat__completions": (200, {"choices": []})}, "chat_failed", "no message"),
        ({"v1__chat__completions": (200, {"choices": [{"message": "x"}]})}, "chat_failed", "no message"),
        ({"v1__chat__completions": (200, None)}, "chat_failed", "no message"),
    ],
)
def test_a_failed_step_quotes_the_answer(changes, code, says):
    error = refused(**changes)
    assert error.code == code
    assert says in error.message


@pytest.mark.parametrize("events", [[TOKEN], [TOKEN, LAST]])
def test_an_error_event_inside_a_200_is_a_failure(events):
    overloaded = {"error": "Model is overloaded", "error_type": "overloaded"}
    error = refused(generate_stream=(200, sse(*events, overloaded)))
    assert error.code == "stream_failed"
    assert "overloaded" in error.message


def test_the_order_of_events_does_not_hide_an_error():
    error = refused(generate_stream=(200, sse({"error": {"message": "x", "http_status_code": 422}}, LAST)))
    assert error.code == "stream_failed"


NO_TEMPLATE = (422, {"error": "Template error: template not found", "error_type": "template_error"})


def test_a_missing_chat_template_is_a_warning():
    report = proven(v1__chat__completions=NO_TEMPLATE)
    assert [warning.code for warning in report.warnings] == ["no_chat_template"]
    assert report.steps[-1].detail == "no chat template"


def test_a_model_not_made_for_chat_needs_no_template():
    assert proven(replace(EXPECTED, chat=False), v1__chat__completions=NO_TEMPLATE).warnings == ()


def test_a_chat_answer_without_usage_is_fine():
    assert proven(v1__chat__completions=(200, {"choices": CHAT["choices"]})).steps[-1].detail == "0 tokens"


def test_the_key_goes_into_the_header_and_nowhere_else():
    with serving(healthy() | {"/generate": (401, {"key": "echo"})}) as server:
        client = HttpEngine(server.url, api_key=lambda: "sesame-7")
        with pytest.raises(NotHealthyError) as caught:
            proof_by(client)
        assert all(headers["Authorization"] == "Bearer sesame-7" for *_, headers in server.requests)
    assert "sesame-7" not in f"{caught.value.message}{caught.value.hint}{caught.value.data}"


VLLM_IDENTITY = {
    "/v1/models": {"data": [{"id": PROMISE.model_id, "max_model_len": 8192}]},
    "/version": {"version": "0.33.0"},
}


def vllm_proof(**changes):
    completion = {"choices": [{"text": " a kind", "finish_reason": "length"}], "usage": {"completion_tokens": 2}}
    bodies = {"/health": None, **VLLM_IDENTITY, "/v1/completions": completion, "/v1/chat/completions": CHAT, **changes}
    endpoint = Endpoint(client=Scripted(bodies), engine=Vllm())
    return prove(endpoint, ExpectedService(promise=PROMISE, versions=("0.33.0",)), clock=FakeClock())


def test_an_engine_that_names_model_and_version_in_two_places_is_proved():
    report = vllm_proof()
    assert report.identity == Identity(model_id=PROMISE.model_id, version="0.33.0", max_total_tokens=8192)
    assert report.steps[1].detail == f"{PROMISE.model_id}, version 0.33.0"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/models", {"data": [{"id": "another", "max_model_len": 8192}]}, "wrong_model"),
        ("/v1/models", {"data": [{"id": PROMISE.model_id, "max_model_len": 4096}]}, "limits_differ"),
        ("/version", {"version": "0.10.2"}, "wrong_version"),
    ],
)
def test_each_place_is_compared_with_the_plan(path, body, code):
    with pytest.raises(NotHealthyError) as caught:
        vllm_proof(**{path: body})
    assert caught.value.code == code


def test_a_long_error_page_is_cut_and_flattened():
    error = refused(generate=(500, {"error": "x\n" * 5000}))
    assert len(error.message) < 500
    assert "\n" not in error.message


@dataclass
class Scripted:
    """Answers each path with a body; the stream's is its last event."""

    bodies: dict[str, Any]

    def ask(self, probe):
        body = self.bodies[probe.path]
        return HttpReply(status=200, body=body, events=(json.dumps(body),) if probe.streamed else ())


@pytest.mark.parametrize("path", ["/info", "/generate", "/generate_stream", "/v1/chat/completions"])
def test_missing_or_mistyped_members_of_a_reply_are_handled(path):
    bodies = {
        "/health": None,
        "/info": INFO,
        "/generate": PLAIN,
        "/generate_stream": LAST,
        "/v1/chat/completions": CHAT,
    }
    codes = {code_of({**bodies, path: json.loads(body)}) for _, body in variants(json.dumps(bodies[path]).encode())}
    steps = {f"{step}_failed" for step in ("info", "generate", "stream", "chat")}
    assert codes - {""} <= {"wrong_model", "wrong_version", "limits_differ", *steps}
    assert codes - {""}


def code_of(bodies):
    """Of the failure that these answers are; empty for none."""
    try:
        proof_by(Scripted(bodies))
    except NotHealthyError as error:
        return error.code
    return ""


@pytest.mark.parametrize("path", ["info", "generate_stream"])
def test_a_deeply_nested_answer_is_a_failed_step(path):
    deep = b"[" * 100_000
    error = refused(**{path: (200, b"data: " + deep + b"\n\n" if "stream" in path else deep)})
    assert error.code == f"{path.removeprefix('generate_')}_failed"
