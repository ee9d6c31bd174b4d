"""The engines' proof requests, and recorded answers of real ones."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders import engines

from tgi_deploy.errors import Problem
from tgi_deploy.readiness.http import payloads
from tgi_deploy.values.probing import HttpReply, ProbeRequest, Reply

if TYPE_CHECKING:
    from tgi_deploy.engines.protocol import ServingEngine

CASES = Path(__file__).parents[2] / "cases/engines"
STEPS = ["health", "info", "generate", "stream", "chat", "longest", "together", "repeat"]
NESTED = "[" * 100_000
BODIES = [
    "", "null", "0", '""', "[]", "{}", "not JSON", NESTED, '{"data": 1}', '{"data": [[]]}', '{"data": [{"id": 1}]}',
    '{"choices": null}', '{"choices": [null]}', '{"choices": [{"message": 1, "text": 1}]}', '{"usage": 7}',
    '{"choices": [{"text": "x"}], "usage": {"completion_tokens": "8"}}', '{"generated_text": 1, "details": 1}',
    '{"generated_text": "x", "details": {"generated_tokens": "8"}}', '{"error": {"message": 1}}', '{"error": 7}',
    '{"version": 1}', '{"model_id": [], "version": {}, "max_input_tokens": "x"}',
]  # fmt: skip

every_engine = pytest.mark.parametrize("engine", engines.EVERY, ids=lambda engine: engine.name)


def recorded() -> list[Any]:
    return [
        pytest.param(engine, answer, id=f"{engine.name}: {answer['name']}")
        for engine in engines.EVERY
        for answer in json.loads((CASES / engine.name / "answers.json").read_text())["answers"]
    ]


def reply_of(status: int, text: str, *, streamed: bool) -> HttpReply:
    """Return a raw answer as a client parses it."""
    if streamed and status == 200:
        return HttpReply(status=status, events=tuple(payloads(text.encode().splitlines(keepends=True))))
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    return HttpReply(status=status, body=body, text=text)


def whole(engine: ServingEngine) -> tuple[ProbeRequest, ...]:
    return engine.probes(engines.PROMISE)


@every_engine
def test_cheap_probes_come_first(engine: ServingEngine) -> None:
    assert list(dict.fromkeys(probe.step for probe in whole(engine))) == STEPS


@every_engine
def test_requests_are_data(engine: ServingEngine) -> None:
    for probe in whole(engine):
        assert probe.path.startswith("/")
        assert (probe.body is None) == (probe.method == "GET")
        assert json.loads(json.dumps(probe.body)) == probe.body


@every_engine
def test_the_worst_promised_case_is_probed(engine: ServingEngine) -> None:
    by_step: dict[str, list[str]] = {}
    for probe in whole(engine):
        by_step.setdefault(probe.step, []).append(json.dumps(probe.body))
    longest, together = by_step["longest"][0], by_step["together"]
    assert "3896" in longest  # 4096 less the 200 of the answer
    assert "200" in longest
    assert len(set(together)) == len(together) == 8
    assert all("1000" in body for body in together)
    assert len(by_step["repeat"]) == 2
    assert len(set(by_step["repeat"])) == 1


@every_engine
def test_a_prompt_has_a_word_per_requested_token(engine: ServingEngine) -> None:
    """A word is one token at least, so the cut is always reached."""
    for probe in whole(engine):
        for value in (probe.body or {}).values():
            if isinstance(value, str) and probe.step in ("longest", "together", "repeat"):
                assert len(value.split()) in (1, 3896, 1000, 24)


@pytest.mark.parametrize(("engine", "answer"), recorded())
def test_recorded_replies_are_understood(engine: ServingEngine, answer: dict[str, Any]) -> None:
    method = "GET" if answer["step"] in ("health", "info") else "POST"
    probe = ProbeRequest(step=answer["step"], method=method, path=answer["path"], streamed=answer["streamed"])
    reply = engine.read_reply(probe, reply_of(answer["status"], answer["text"], streamed=answer["streamed"]))
    expected = answer["expect"]
    if isinstance(reply, Problem):
        assert reply.code == expected["code"]
        assert expected["says"] in reply.message
        return
    if "identity" in expected:
        assert reply.identity is not None
        identity = {name: getattr(reply.identity, name) for name in reply.identity.__struct_fields__}
        assert {name: value for name, value in identity.items() if value is not None} == expected["identity"]
    assert reply.tokens == expected.get("tokens", 0)
    assert reply.detail == expected.get("detail", reply.detail)


@every_engine
@pytest.mark.parametrize("status", [200, 400, 422, 500])
def test_a_reply_of_any_shape_is_handled(engine: ServingEngine, status: int) -> None:
    for probe, text in product(whole(engine), BODIES):
        events = HttpReply(status=status, text=text, events=(text,) if status == 200 else ())
        reply = events if probe.streamed else reply_of(status, text, streamed=False)
        meaning = engine.read_reply(probe, reply)
        assert isinstance(meaning, Reply | Problem), text
        if isinstance(meaning, Problem):
            assert meaning.code in (f"{probe.step}_failed", "no_chat_template")


@every_engine
def test_a_failure_is_never_read_as_an_answer(engine: ServingEngine) -> None:
    for probe in whole(engine):
        meaning = engine.read_reply(probe, HttpReply(status=503, text="overloaded"))
        assert isinstance(meaning, Problem)
        assert "overloaded" in meaning.message


@pytest.mark.parametrize(
    ("engine", "status", "body"),
    [
        (engines.EVERY[0], 422, {"error": "Template error: template not found", "error_type": "template_error"}),
        (
            engines.EVERY[1],
            400,
            {"error": {"message": "As of transformers v4.44, default chat template is no longer allowed, so you must "
             "provide a chat template if the tokenizer does not define one.", "type": "BadRequestError", "code": 400}},
        ),
    ],
    ids=["tgi", "vllm"],
)  # fmt: skip
def test_a_model_without_chat_template_is_a_warning(engine: ServingEngine, status: int, body: dict[str, Any]) -> None:
    chat = next(probe for probe in whole(engine) if probe.step == "chat")
    problem = engine.read_reply(chat, HttpReply(status=status, body=body, text=json.dumps(body)))
    assert isinstance(problem, Problem)
    assert (problem.code, problem.severity) == ("no_chat_template", "warning")


@pytest.mark.parametrize("chat", [True, False])
@every_engine
def test_an_answer_can_be_streamed(engine: ServingEngine, *, chat: bool) -> None:
    asked = engine.question("org/model", "What is it?", 20, chat=chat, streamed=True)
    assert asked.streamed
    assert "What is it?" in json.dumps(asked.body)
    plain = engine.question("org/model", "What is it?", 20, chat=chat)
    assert not plain.streamed
    assert "20" in json.dumps(plain.body)


@pytest.mark.parametrize(("engine", "answer"), recorded())
def test_the_pieces_of_a_real_stream_are_its_text(engine: ServingEngine, answer: dict[str, Any]) -> None:
    if not answer["streamed"] or "tokens" not in answer["expect"]:
        return
    probe = ProbeRequest(step="stream", method="POST", path=answer["path"], streamed=True)
    reply = reply_of(200, answer["text"], streamed=True)
    meaning = engine.read_reply(probe, reply)
    assert isinstance(meaning, Reply)
    pieces = "".join(engine.read_piece(probe, event) for event in reply.events)
    assert pieces == meaning.text.replace("\ufffd", "")  # which stands for bytes of a character that never came


CHAT_STREAM = (
    '{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}',
    '{"choices":[{"index":0,"delta":{"role":"assistant","content":"It is"},"finish_reason":null}]}',
    '{"choices":[{"index":0,"delta":{"content":" a card."},"finish_reason":"stop"}]}',
    '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}',
)


@every_engine
@pytest.mark.parametrize(("events", "tokens"), [(CHAT_STREAM, 5), (CHAT_STREAM[:-1], 2)])
def test_a_streamed_chat_is_complete_after_its_last_event(
    engine: ServingEngine, events: tuple[str, ...], tokens: int
) -> None:
    asked = engine.question("org/model", "What is it?", 20, chat=True, streamed=True)
    meaning = engine.read_reply(asked, HttpReply(status=200, events=events))
    assert isinstance(meaning, Reply)
    assert (meaning.text, meaning.tokens) == ("It is a card.", tokens)
    assert [engine.read_piece(asked, event) for event in events][:3] == ["", "It is", " a card."]


@every_engine
def test_an_interrupted_chat_stream_is_not_an_answer(engine: ServingEngine) -> None:
    asked = engine.question("org/model", "What is it?", 20, chat=True, streamed=True)
    for events in (CHAT_STREAM[:2], (*CHAT_STREAM[:2], '{"error":{"message":"CUDA error"}}')):
        assert isinstance(engine.read_reply(asked, HttpReply(status=200, events=events)), Problem)


@every_engine
@pytest.mark.parametrize("chat", [True, False])
def test_a_stream_piece_of_any_shape_is_text(engine: ServingEngine, *, chat: bool) -> None:
    asked = engine.question("org/model", "What is it?", 20, chat=chat, streamed=True)
    for text in BODIES:
        assert isinstance(engine.read_piece(asked, text), str), text
        assert isinstance(engine.read_reply(asked, HttpReply(status=200, events=(text,))), Reply | Problem), text
