"""Requests and replies of the OpenAI API, which several engines support."""

from __future__ import annotations

from typing import Any, Final

from tgi_deploy.engines.replies import NEW_TOKENS, OK, PROMPT, events_of, failed, object_of
from tgi_deploy.errors import Problem
from tgi_deploy.values.probing import HttpReply, Identity, ProbeRequest, Reply

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
MODELS: Final = "/v1/models"


def chat_probe(model: str) -> ProbeRequest:
    return chat_question(model, PROMPT, NEW_TOKENS, streamed=False)


def chat_question(model: str, text: str, max_tokens: int, *, streamed: bool) -> ProbeRequest:
    messages = [{"role": "user", "content": text}]
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "stream": streamed}
    usage = {"stream_options": {"include_usage": True}} if streamed else {}
    return ProbeRequest(step="chat", method="POST", path=CHAT, body=body | usage, streamed=streamed)


def chat_piece(event: str) -> str:
    delta = _first_choice(object_of(event)).get("delta")
    return str(delta.get("content") or "") if isinstance(delta, dict) else ""


def read_chat_stream(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    """Return a complete streamed chat. If the server does not count tokens, each event with text counts as one."""
    events = events_of(probe, reply)
    if isinstance(events, Problem):
        return events
    if not any(_first_choice(event).get("finish_reason") is not None for event in events):
        return failed(probe, f"it ended after {len(events)} events without the complete text")
    pieces = [piece for piece in map(chat_piece, reply.events) if piece]
    tokens = max(map(completion_tokens, events), default=0) or len(pieces)
    return Reply(detail=f"{len(events)} events", text="".join(pieces), tokens=tokens)


def read_chat(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    """Return the answer to one chat request."""
    if reply.status != OK:
        return failed(probe, reply.text)
    message = _first_choice(reply.body).get("message")
    if not isinstance(message, dict):
        return failed(probe, f"the reply has no message: {reply.text}")
    tokens = completion_tokens(reply.body)
    return Reply(detail=f"{tokens} tokens", text=str(message.get("content") or ""), tokens=tokens)


def read_completion(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    """Return the answer to one completion."""
    if reply.status != OK:
        return failed(probe, reply.text)
    text, tokens = _first_choice(reply.body).get("text"), completion_tokens(reply.body)
    if not isinstance(text, str) or not text or tokens < 1:
        return failed(probe, f"no text was generated: {reply.text}")
    return Reply(detail=f"{tokens} tokens", text=text, tokens=tokens)


def read_completion_stream(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    """Return a complete stream. An event may have several tokens; the last one has their number."""
    events = events_of(probe, reply)
    if isinstance(events, Problem):
        return events
    ended = any(_first_choice(event).get("finish_reason") is not None for event in events)
    tokens = max(map(completion_tokens, events), default=0)
    if not ended or tokens < 1:
        return failed(probe, f"it ended after {len(events)} events without the complete text")
    text = "".join(str(_first_choice(event).get("text") or "") for event in events)
    return Reply(detail=f"{len(events)} events", text=text, tokens=tokens)


def read_models(probe: ProbeRequest, reply: HttpReply) -> Reply | Problem:
    """Return the first listed model with its limit."""
    models = reply.body.get("data") if isinstance(reply.body, dict) else None
    first = models[0] if isinstance(models, list) and models else None
    if reply.status != OK or not isinstance(first, dict):
        return failed(probe, reply.text)
    limit = first.get("max_model_len")
    identity = Identity(model_id=_text(first.get("id")), max_total_tokens=limit if isinstance(limit, int) else None)
    return Reply(detail=identity.model_id or "", identity=identity)


def error_message(reply: HttpReply) -> str:
    """Return the message of an error in the API's format; empty for other formats."""
    error = reply.body.get("error") if isinstance(reply.body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else ""


def completion_tokens(body: object) -> int:
    usage = body.get("usage") if isinstance(body, dict) else None
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else 0


def completion_piece(event: str) -> str:
    return str(_first_choice(object_of(event)).get("text") or "")


def _first_choice(body: object) -> dict[str, Any]:
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
