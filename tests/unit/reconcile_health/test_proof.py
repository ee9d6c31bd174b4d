from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from loopback_engine import CHAT, INFO, LAST, PLAIN, TOKEN, healthy, serving, sse
from waiting_fakes import FakeClock

from tgi_deploy.adapters.http import HttpEngine
from tgi_deploy.errors import NotHealthyError
from tgi_deploy.reconcile.proof import Answer, ExpectedService, Streamed, prove

EXPECTED = ExpectedService(
    model_id="meta-llama/Llama-3.1-8B-Instruct",
    max_input_tokens=8191,
    max_total_tokens=8192,
    versions=("3.3.7", "3.3.6-dev0"),
)


def proven(expected=EXPECTED, **changes):
    """`changes`: route name with underscores for slashes → (status, body)."""
    routes = healthy() | {"/" + name.replace("__", "/"): answer for name, answer in changes.items()}
    with serving(routes) as server:
        return prove(HttpEngine(server.url), expected, clock=FakeClock())


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
    assert report.info == INFO
    assert report.warnings == ()
    assert report.first_token_ms is not None
    assert [step.detail for step in report.steps][2:] == ["5 tokens", "2 events", "2 tokens"]


def test_what_is_asked_of_the_engine():
    with serving() as server:
        prove(HttpEngine(server.url), EXPECTED, clock=FakeClock())
        asked = server.requests
    assert [path for _, path, *_ in asked] == list(healthy())
    bodies = {path: sent for _, path, sent, _ in asked}
    assert bodies["/generate"]["parameters"]["details"] is True
    assert bodies["/v1/chat/completions"]["messages"][0]["role"] == "user"
    assert bodies["/v1/chat/completions"]["stream"] is False


@dataclass
class SlowClient:
    """Every answer takes a second of the fake clock."""

    clock: FakeClock
    answers: dict[str, Any] = field(default_factory=dict)

    def get(self, path):
        self.clock.sleep(1.0)
        return Answer(status=200, body=INFO if path == "/info" else None)

    def post(self, path, body):
        self.clock.sleep(2.0)
        return Answer(status=200, body=PLAIN if path == "/generate" else CHAT)

    def stream(self, path, body):
        self.clock.sleep(3.0)
        return Streamed(status=200, events=('{"generated_text": "x"}',), first_event_ms=40.0)


def test_steps_are_timed_in_milliseconds():
    clock = FakeClock()
    report = prove(SlowClient(clock), EXPECTED, clock=clock)
    assert [step.took_ms for step in report.steps] == [1000, 1000, 2000, 3000, 2000]
    assert report.first_token_ms == 40.0


def test_another_model_is_refused_by_name():
    error = refused(info=(200, INFO | {"model_id": "bigscience/bloom-560m"}))
    assert error.code == "wrong_model"
    assert error.data == {"expected": EXPECTED.model_id, "served": "bigscience/bloom-560m"}
    assert "bigscience/bloom-560m" in error.message


@pytest.mark.parametrize("key", ["max_input_tokens", "max_total_tokens"])
@pytest.mark.parametrize("value", [4096, None])
def test_other_limits_are_refused_with_both_numbers(key, value):
    error = refused(info=(200, INFO | {key: value}))
    assert error.code == "limits_differ"
    assert f"{key} is {value}, planned {INFO[key]}" in error.message


def test_the_old_name_of_the_input_limit_counts():
    old = {key: value for key, value in INFO.items() if key != "max_input_tokens"}
    assert proven(info=(200, old | {"max_input_length": 8191})).info["max_input_length"] == 8191
    assert refused(info=(200, old | {"max_input_length": 5})).code == "limits_differ"


def test_another_version_is_refused():
    error = refused(info=(200, INFO | {"version": "3.0.0"}))
    assert error.code == "wrong_version"
    assert "3.3.7 or 3.3.6-dev0" in error.message


def test_without_wanted_versions_any_will_do():
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
def test_a_step_that_fails_says_what_was_answered(changes, code, says):
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
            prove(client, EXPECTED, clock=FakeClock())
        assert all(headers["Authorization"] == "Bearer sesame-7" for *_, headers in server.requests)
    assert "sesame-7" not in f"{caught.value.message}{caught.value.hint}{caught.value.data}"


def test_a_long_error_page_is_cut_and_flattened():
    error = refused(generate=(500, {"error": "x\n" * 5000}))
    assert len(error.message) < 500
    assert "\n" not in error.message
