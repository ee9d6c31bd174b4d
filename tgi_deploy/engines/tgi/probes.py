"""TGI's proof requests and the meaning of its replies (3.3.7, and releases before 3.0 if different)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.engines.openai import (
    CHAT,
    COMPLETIONS,
    chat_piece,
    chat_probe,
    chat_question,
    read_chat,
    read_chat_stream,
)
from tgi_deploy.engines.replies import (
    NEW_TOKENS,
    OK,
    PROMPT,
    REPEATED_TOKENS,
    SHORT_PROMPT_TOKENS,
    events_of,
    failed,
    object_of,
    prompt_of,
)
from tgi_deploy.errors import Problem
from tgi_deploy.values.probing import HttpReply, Identity, ProbeRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.values.probing import Promise

HEALTH: Final = "/health"
INFO: Final = "/info"
GENERATE: Final = "/generate"
STREAM: Final = "/generate_stream"
PAGES: Final = ((INFO, "model, limits, version"), ("/metrics", "Prometheus"))
# All routes that take a prompt, except `/chat_tokenize`, which generates nothing.
GUARDED: Final = (
    GENERATE, STREAM, CHAT, COMPLETIONS, "/invocations", "/tokenize", "/vertex",
)  # fmt: skip
_ANY_MODEL: Final = "tgi"  # the server ignores the name of the model in a chat request
_UNPROCESSABLE: Final = 422


def probes(promise: Promise) -> Iterator[ProbeRequest]:
    """Yield the requests in order."""
    yield ProbeRequest(step="health", method="GET", path=HEALTH)
    yield ProbeRequest(step="info", method="GET", path=INFO)
    short = {"inputs": PROMPT, "parameters": {"max_new_tokens": NEW_TOKENS, "details": True}}
    yield ProbeRequest(step="generate", method="POST", path=GENERATE, body=short)
    yield ProbeRequest(step="stream", method="POST", path=STREAM, body=short, streamed=True)
    yield chat_probe(_ANY_MODEL)
    longest = _exact(promise.longest_input_tokens, promise.output_tokens, seed=0)
    yield ProbeRequest(step="longest", method="POST", path=GENERATE, body=longest)
    for seed in range(1, promise.concurrency + 1):
        body = _exact(promise.input_tokens, promise.output_tokens, seed=seed)
        yield ProbeRequest(step="together", method="POST", path=STREAM, body=body, streamed=True)
    for _ in range(2):
        body = _exact(SHORT_PROMPT_TOKENS, REPEATED_TOKENS, seed=0)
        yield ProbeRequest(step="repeat", method="POST", path=GENERATE, body=body)


def question(text: str, max_tokens: int, *, chat: bool, streamed: bool) -> ProbeRequest:
    if chat:
        return chat_question(_ANY_MODEL, text, max_tokens, streamed=streamed)
    body = {"inputs": text, "parameters": {"max_new_tokens": max_tokens}}
    if streamed:
        return ProbeRequest(step="stream", method="POST", path=STREAM, body=body, streamed=True)
    return ProbeRequest(step="generate", method="POST", path=GENERATE, body=body)


def read_piece(probe: ProbeRequest, event: str) -> str:
    """Return a token's text; special tokens, such as the end, are not part of the answer."""
    if probe.path == CHAT:
        return chat_piece(event)
    token = object_of(event).get("token")
    if not isinstance(token, dict) or token.get("special") is True:
        return ""
    return str(token.get("text") or "")


def client_line(url: str, key_variable: str | None, asked: ProbeRequest) -> str:
    imports = "" if key_variable is None else "import os; "
    key = "" if key_variable is None else f", token=os.environ[{key_variable!r}]"
    body = asked.body or {}
    words = ", ".join(f"{name}={value!r}" for name, value in body.get("parameters", {}).items())
    call = f"InferenceClient({url!r}{key}).text_generation({body.get('inputs')!r}, {words})"
    return f"{imports}from huggingface_hub import InferenceClient; print({call})"


def _exact(prompt_tokens: int, output_tokens: int, *, seed: int) -> dict[str, Any]:
    """Return a greedy request with exactly that many prompt tokens: the engine truncates the words."""
    return {
        "inputs": prompt_of(prompt_tokens, seed),
        "parameters": {
            "truncate": prompt_tokens,
            "max_new_tokens": output_tokens,
            "do_sample": False,
            "details": True,
        },
    }


def read_reply(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    if probe.path == HEALTH:
        return Reply() if reply.status == OK else failed(probe, reply.text)
    if probe.path == INFO:
        return _info(probe, reply)
    if probe.path == GENERATE:
        return _generated(probe, reply)
    if probe.path == STREAM:
        return _streamed(probe, reply)
    if _lacks_template(reply):
        return _without_template()
    return read_chat_stream(probe, reply) if probe.streamed else read_chat(probe, reply)


def _info(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    """Parse /info. Releases before 3.0 call the input limit `max_input_length` and report the device."""
    info = reply.body
    if reply.status != OK or not isinstance(info, dict):
        return failed(probe, reply.text)
    longest = info.get("max_input_tokens", info.get("max_input_length"))
    if longest is None:
        return failed(probe, f"the reply has no limit for prompts: {reply.text}")
    identity = Identity(
        model_id=info.get("model_id"),
        version=info.get("version"),
        max_input_tokens=longest,
        max_total_tokens=info.get("max_total_tokens"),
        device=info.get("model_device_type"),
    )
    return Reply(detail=f"{identity.model_id}, version {identity.version}", identity=identity)


def _generated(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    body = reply.body
    if reply.status != OK or not isinstance(body, dict):
        return failed(probe, reply.text)
    text, tokens = body.get("generated_text"), _tokens(body)
    if not isinstance(text, str) or not text or tokens < 1:
        return failed(probe, f"no text was generated: {reply.text}")
    return Reply(detail=f"{tokens} tokens", text=text, tokens=tokens)


def _tokens(body: Mapping[str, Any]) -> int:
    details = body.get("details")
    tokens = details.get("generated_tokens") if isinstance(details, dict) else None
    return tokens if isinstance(tokens, int) else 0


def _streamed(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    """Parse a stream. Every event is one token; the last one has the whole text."""
    events = events_of(probe, reply)
    if isinstance(events, Problem):
        return events
    whole = events[-1].get("generated_text") if events else None
    if not isinstance(whole, str):
        return failed(probe, f"it ended after {len(events)} events without the complete text")
    return Reply(detail=f"{len(events)} events", text=whole, tokens=len(events))


def _lacks_template(reply: HttpReply) -> bool:
    body = reply.body
    return reply.status == _UNPROCESSABLE and isinstance(body, dict) and body.get("error_type") == "template_error"


def _without_template() -> Problem:
    return Problem(
        code="no_chat_template",
        severity="warning",
        message="/v1/chat/completions answers 422; /generate works. --set tokenizer-config-path=FILE adds a template.",
    )
