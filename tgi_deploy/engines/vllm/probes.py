"""vLLM's proof requests and the meaning of its replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.engines.openai import (
    COMPLETIONS,
    MODELS,
    chat_piece,
    chat_probe,
    chat_question,
    completion_piece,
    error_message,
    read_chat,
    read_chat_stream,
    read_completion,
    read_completion_stream,
    read_models,
)
from tgi_deploy.engines.replies import (
    NEW_TOKENS,
    OK,
    PROMPT,
    REPEATED_TOKENS,
    SHORT_PROMPT_TOKENS,
    failed,
    prompt_of,
)
from tgi_deploy.errors import Problem
from tgi_deploy.values.probing import HttpReply, Identity, ProbeRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.values.probing import Promise

_HEALTH: Final = "/health"
_VERSION: Final = "/version"
PAGES: Final = ((MODELS, "model, limit"), (_VERSION, "version"), ("/metrics", "Prometheus"))
_BAD_REQUEST: Final = 400


def probes(promise: Promise) -> Iterator[ProbeRequest]:
    """Yield the requests in order. One route has the name and the limit, another the version."""
    model = promise.model_id
    yield ProbeRequest(step="health", method="GET", path=_HEALTH)
    yield ProbeRequest(step="info", method="GET", path=MODELS)
    yield ProbeRequest(step="info", method="GET", path=_VERSION)
    short = _body(model, PROMPT, NEW_TOKENS)
    yield ProbeRequest(step="generate", method="POST", path=COMPLETIONS, body=short)
    yield ProbeRequest(step="stream", method="POST", path=COMPLETIONS, body=_streamed(short), streamed=True)
    yield chat_probe(model)
    longest = _exact(model, promise.longest_input_tokens, promise.output_tokens, seed=0)
    yield ProbeRequest(step="longest", method="POST", path=COMPLETIONS, body=longest)
    for seed in range(1, promise.concurrency + 1):
        body = _streamed(_exact(model, promise.input_tokens, promise.output_tokens, seed=seed))
        yield ProbeRequest(step="together", method="POST", path=COMPLETIONS, body=body, streamed=True)
    for _ in range(2):
        body = _exact(model, SHORT_PROMPT_TOKENS, REPEATED_TOKENS, seed=0)
        yield ProbeRequest(step="repeat", method="POST", path=COMPLETIONS, body=body)


def question(model: str, text: str, max_tokens: int, *, chat: bool, streamed: bool) -> ProbeRequest:
    if chat:
        return chat_question(model, text, max_tokens, streamed=streamed)
    body = _body(model, text, max_tokens)
    if streamed:
        return ProbeRequest(step="stream", method="POST", path=COMPLETIONS, body=_streamed(body), streamed=True)
    return ProbeRequest(step="generate", method="POST", path=COMPLETIONS, body=body)


def read_piece(probe: ProbeRequest, event: str) -> str:
    return chat_piece(event) if probe.step == "chat" else completion_piece(event)


def client_line(url: str, key_variable: str | None, asked: ProbeRequest) -> str:
    imports = "" if key_variable is None else "import os; "
    key = "'none'" if key_variable is None else f"os.environ[{key_variable!r}]"
    words = ", ".join(f"{name}={value!r}" for name, value in (asked.body or {}).items())
    call = f"OpenAI(base_url={f'{url}/v1'!r}, api_key={key}).completions.create({words})"
    return f"{imports}from openai import OpenAI; print({call}.choices[0].text)"


def _body(model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
    """Return a greedy request; the server samples by default."""
    return {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}


def _streamed(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def _exact(model: str, prompt_tokens: int, output_tokens: int, *, seed: int) -> dict[str, Any]:
    """Return a prompt of exactly that many tokens: each word is at least one, and the server truncates."""
    body = _body(model, prompt_of(prompt_tokens, seed), output_tokens)
    return {**body, "truncate_prompt_tokens": prompt_tokens}


def read_reply(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    if probe.path == _HEALTH:
        return Reply() if reply.status == OK else failed(probe, reply.text)
    if probe.path == MODELS:
        return read_models(probe, reply)
    if probe.path == _VERSION:
        return _version(probe, reply)
    if probe.step == "chat":
        if _lacks_template(reply):
            return _without_template()
        return read_chat_stream(probe, reply) if probe.streamed else read_chat(probe, reply)
    return read_completion_stream(probe, reply) if probe.streamed else read_completion(probe, reply)


def _version(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    version = reply.body.get("version") if isinstance(reply.body, dict) else None
    if reply.status != OK or not isinstance(version, str):
        return failed(probe, reply.text)
    return Reply(detail=f"version {version}", identity=Identity(version=version))


def _lacks_template(reply: HttpReply) -> bool:
    return reply.status == _BAD_REQUEST and "chat template" in error_message(reply).lower()


def _without_template() -> Problem:
    return Problem(
        code="no_chat_template",
        severity="warning",
        message="/v1/chat/completions answers 400; /v1/completions works. --set chat-template=FILE adds a template.",
    )
