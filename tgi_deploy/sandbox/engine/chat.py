"""Converts chat requests: messages to a prompt, settings to parameters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgi_deploy.sandbox.engine.bodies import Grammar
from tgi_deploy.sandbox.engine.failures import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.sandbox.engine.bodies import Chat, Message, Parameters
    from tgi_deploy.sandbox.engine.service import Service


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """A converted chat. `tool` is the function that must be called, None for a text answer."""

    body: Chat
    prompt: str
    parameters: Parameters
    tool: Mapping[str, Any] | None


def chat_request(service: Service, body: Chat) -> ChatRequest:
    """Return the request with its template applied.

    Raises:
        ApiError: kind `template_error` or `tool_error`.
    """
    if body.tools and body.response_format is not None:
        raise ApiError("tool_error", "Tool error: Grammar and tools are mutually exclusive")
    tool = _required_tool(body)
    parameters = body.parameters(
        top_n_tokens=body.top_logprobs if body.logprobs else None,
        grammar=body.response_format if tool is None else _call_of(tool),
    )
    return ChatRequest(body=body, prompt=apply_template(service, body), parameters=parameters, tool=tool)


def apply_template(service: Service, body: Chat) -> str:
    if not service.template:
        raise ApiError("template_error", "template not found")
    return "".join([*map(_turn, body.messages), "<|assistant|>\n"])


def _turn(message: Message) -> str:
    content = message.content
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    elif not isinstance(content, str):
        content = json.dumps(message.tool_calls)
    return f"<|{message.role}|>\n{content}\n"


def _call_of(tool: Mapping[str, Any]) -> Grammar:
    """Return the grammar that the router builds from a tool; it has properties even if the tool has none."""
    return Grammar(type="json", value={"properties": {}, **_member(tool, "parameters")})


def _required_tool(body: Chat) -> Mapping[str, Any] | None:
    choice = body.tool_choice
    if choice is None or choice in ("auto", "none") or not body.tools:
        return None
    named = _member(choice, "function").get("name") if isinstance(choice, dict) else choice
    for tool in body.tools:
        function = _member(tool, "function")
        if function and named in ("required", function.get("name")):
            return function
    raise ApiError("tool_error", f"Tool error: Tool with name {named} not found")


def _member(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
