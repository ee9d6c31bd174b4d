"""Proves that an endpoint serves what was planned: health, identity, then one plain, one streamed, one chat request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tgi_deploy import bounded_json
from tgi_deploy.errors import NotHealthyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.reconcile.ports import Clock

_T = TypeVar("_T")
_OK: Final = 200
_UNAUTHORIZED: Final = 401
_UNPROCESSABLE: Final = 422
_PROMPT: Final = "What is deep learning?"
_NEW_TOKENS: Final = 16
_SAID_CHARS: Final = 300
_LOOK_HINT: Final = "look at the engine's log with 'logs NAME'"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An HTTP answer. `body` is the parsed JSON, None where the body is no JSON."""

    status: int
    body: Any = None
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Streamed:
    """A whole event stream. `events` are the data payloads in order, without the closing `[DONE]`."""

    status: int
    events: tuple[str, ...] = ()
    text: str = ""
    first_event_ms: float | None = None


class EngineClient(Protocol):
    """Talks to one engine. Methods raise NotHealthyError `engine_unreachable` when no answer comes."""

    def get(self, path: str) -> Answer: ...

    def post(self, path: str, body: Mapping[str, Any]) -> Answer: ...

    def stream(self, path: str, body: Mapping[str, Any]) -> Streamed: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedService:
    """What the plan promised. `versions` are all that the release may report itself as; empty: any.

    `chat` False: the model is not made for chat, and a missing chat template is worth no warning.
    """

    model_id: str
    max_input_tokens: int
    max_total_tokens: int
    versions: tuple[str, ...] = ()
    chat: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofStep:
    name: str
    took_ms: float
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofWarning:
    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofReport:
    """Every step passed. `answer` is the text of the plain request; `info` what the engine says of itself."""

    steps: tuple[ProofStep, ...]
    answer: str
    info: Mapping[str, Any]
    first_token_ms: float | None = None
    warnings: tuple[ProofWarning, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finding:
    """What one step found out."""

    detail: str = ""
    answer: str = ""
    info: Mapping[str, Any] | None = None
    first_token_ms: float | None = None
    warning: ProofWarning | None = None


def prove(client: EngineClient, expected: ExpectedService, *, clock: Clock) -> ProofReport:
    """Ask the five questions in turn.

    Raises:
        NotHealthyError: `wrong_model`, `limits_differ`, `wrong_version`, `unauthorized`, `engine_unreachable`, or
            `<step>_failed` for the step health, info, generate, stream or chat.
    """
    found: dict[str, _Finding] = {}
    steps = []
    for name, ask in _STEPS.items():
        found[name], took_ms = timed(clock, partial(ask, client, expected))
        steps.append(ProofStep(name=name, took_ms=took_ms, detail=found[name].detail))
    return ProofReport(
        steps=tuple(steps),
        answer=found["generate"].answer,
        info=found["info"].info or {},
        first_token_ms=found["stream"].first_token_ms,
        warnings=tuple(item.warning for item in found.values() if item.warning is not None),
    )


def timed(clock: Clock, ask: Callable[[], _T]) -> tuple[_T, float]:
    """The answer, and how many milliseconds it took."""
    began = clock.monotonic()
    answer = ask()
    return answer, round((clock.monotonic() - began) * 1000, 3)


def _health(client: EngineClient, _expected: ExpectedService) -> _Finding:
    answer = client.get("/health")
    if answer.status != _OK:
        raise _failed("health", answer.status, answer.text)
    return _Finding()


def _info(client: EngineClient, expected: ExpectedService) -> _Finding:
    answer = client.get("/info")
    if answer.status != _OK or not isinstance(answer.body, dict):
        raise _failed("info", answer.status, answer.text)
    for check in (_check_model, _check_limits, _check_version):
        check(answer.body, expected)
    return _Finding(detail=f"{answer.body['model_id']}, version {answer.body.get('version')}", info=answer.body)


def _check_model(info: Mapping[str, Any], expected: ExpectedService) -> None:
    served = info.get("model_id")
    if served != expected.model_id:
        raise NotHealthyError(
            "wrong_model",
            f"checking the endpoint: it serves {served}, the plan says {expected.model_id}",
            hint="something else answers at this address: check the address, or remove it and deploy again",
            data={"expected": expected.model_id, "served": served},
        )


def _check_limits(info: Mapping[str, Any], expected: ExpectedService) -> None:
    """Releases before 3.0 name the input limit `max_input_length`."""
    served = {
        "max_input_tokens": info.get("max_input_tokens", info.get("max_input_length")),
        "max_total_tokens": info.get("max_total_tokens"),
    }
    planned = {"max_input_tokens": expected.max_input_tokens, "max_total_tokens": expected.max_total_tokens}
    if served != planned:
        differences = ", ".join(f"{key} is {served[key]}, planned {planned[key]}" for key in planned)
        raise NotHealthyError(
            "limits_differ",
            f"checking the endpoint's token limits: {differences}",
            hint="the engine runs with other options than the plan's: remove it and deploy again",
            data={"expected": planned, "served": served},
        )


def _check_version(info: Mapping[str, Any], expected: ExpectedService) -> None:
    served = info.get("version")
    if expected.versions and served not in expected.versions:
        raise NotHealthyError(
            "wrong_version",
            f"checking the endpoint: the engine's version is {served}, planned {' or '.join(expected.versions)}",
            hint="another image runs there: remove it and deploy again",
            data={"expected": list(expected.versions), "served": served},
        )


def _generate(client: EngineClient, _expected: ExpectedService) -> _Finding:
    body = plain_answer("generate", client.post("/generate", _request()))
    return _Finding(detail=f"{_generated(body)} tokens", answer=body["generated_text"])


def plain_answer(step: str, answer: Answer) -> Mapping[str, Any]:
    """The body of a `/generate` that generated something. Raises NotHealthyError `<step>_failed`."""
    body = answer.body
    if answer.status != _OK or not isinstance(body, dict):
        raise _failed(step, answer.status, answer.text)
    text = body.get("generated_text")
    if not isinstance(text, str) or not text or _generated(body) < 1:
        raise _failed(step, answer.status, f"no text was generated: {answer.text}")
    return body


def _stream(client: EngineClient, _expected: ExpectedService) -> _Finding:
    streamed = client.stream("/generate_stream", _request())
    whole_stream("stream", streamed)
    return _Finding(detail=f"{len(streamed.events)} events", first_token_ms=streamed.first_event_ms)


def whole_stream(step: str, streamed: Streamed) -> None:
    """Streams answer 200 even when they fail: the failure is an event. Raises NotHealthyError `<step>_failed`."""
    if streamed.status != _OK:
        raise _failed(step, streamed.status, streamed.text)
    events = [_event(step, payload) for payload in streamed.events]
    for event in events:
        if "error" in event:
            raise _failed(step, streamed.status, f"an event says {json.dumps(event)}")
    if not events or not isinstance(events[-1].get("generated_text"), str):
        raise _failed(step, streamed.status, f"it ended after {len(events)} events without the whole text")


def _event(step: str, payload: str) -> dict[str, Any]:
    try:
        return bounded_json.parse_object(payload)
    except ValueError:
        raise _failed(step, _OK, f"an event is not a JSON object: {payload}") from None


def _chat(client: EngineClient, expected: ExpectedService) -> _Finding:
    messages = [{"role": "user", "content": _PROMPT}]
    answer = client.post(
        "/v1/chat/completions", {"model": "tgi", "messages": messages, "max_tokens": _NEW_TOKENS, "stream": False}
    )
    if _lacks_template(answer):
        return _without_template(expected)
    if answer.status != _OK:
        raise _failed("chat", answer.status, answer.text)
    if _chat_message(answer.body) is None:
        raise _failed("chat", answer.status, f"no message came: {answer.text}")
    return _Finding(detail=f"{_chat_tokens(answer.body)} tokens")


def _lacks_template(answer: Answer) -> bool:
    return (
        answer.status == _UNPROCESSABLE
        and isinstance(answer.body, dict)
        and answer.body.get("error_type") == "template_error"
    )


def _without_template(expected: ExpectedService) -> _Finding:
    if not expected.chat:
        return _Finding(detail="no chat template")
    message = (
        f"{expected.model_id} has no chat template: /v1/chat/completions answers 422, /generate works. "
        "--set tokenizer-config-path=FILE gives it one."
    )
    return _Finding(detail="no chat template", warning=ProofWarning(code="no_chat_template", message=message))


def _chat_message(body: object) -> dict[str, Any] | None:
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else None


def _chat_tokens(body: Mapping[str, Any]) -> int:
    usage = body.get("usage")
    return int(usage.get("completion_tokens", 0)) if isinstance(usage, dict) else 0


def _request() -> dict[str, Any]:
    return {"inputs": _PROMPT, "parameters": {"max_new_tokens": _NEW_TOKENS, "details": True}}


def _generated(body: Mapping[str, Any]) -> int:
    details = body.get("details")
    tokens = details.get("generated_tokens") if isinstance(details, dict) else None
    return tokens if isinstance(tokens, int) else 0


def _failed(step: str, status: int, said: str) -> NotHealthyError:
    """The error of a step that was answered wrongly."""
    said = " ".join(said.split())[:_SAID_CHARS] or "nothing"
    data = {"step": step, "status": status}
    if status == _UNAUTHORIZED:
        return NotHealthyError(
            "unauthorized",
            f"checking the endpoint ({step}): it wants another API key (401)",
            hint="give the key that the engine was started with",
            data=data,
        )
    return NotHealthyError(
        f"{step}_failed",
        f"checking the endpoint ({step}): it answered {status} and said: {said}",
        hint=_LOOK_HINT,
        data=data,
    )


_STEPS: Final[Mapping[str, Callable[[EngineClient, ExpectedService], _Finding]]] = {
    "health": _health,
    "info": _info,
    "generate": _generate,
    "stream": _stream,
    "chat": _chat,
}
