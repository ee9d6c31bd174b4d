"""Chat requests: messages to a prompt, settings to parameters."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine.examples import example
from tgi_deploy.sandbox.engine.parameters import Parameters, parse_parameters
from tgi_deploy.sandbox.engine.replies import ApiError, undeserializable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.sandbox.engine.service import Service

_GREEDY: Final = 0
_WHOLE_NUMBERS: Final = ("max_tokens", "max_completion_tokens", "seed", "top_logprobs", "n")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """`tool` is the function that has to be called, None for an answer in words."""

    prompt: str
    parameters: Parameters
    stream: bool
    include_usage: bool
    logprobs: bool
    tool: Mapping[str, Any] | None


def parse_chat(service: Service, body: Mapping[str, Any]) -> ChatRequest:
    """A chat request with its template applied.

    Raises:
        RejectionError: 422, the body has not the right shape.
        ApiError: kind `template_error` or `tool_error`.
    """
    prompt = apply_template(service, body)
    tool = _required_tool(body)
    return ChatRequest(
        prompt=prompt,
        parameters=_chat_parameters(body, tool),
        stream=body.get("stream") is True,
        include_usage=includes_usage(body),
        logprobs=body.get("logprobs") is True,
        tool=tool,
    )


def apply_template(service: Service, body: Mapping[str, Any]) -> str:
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise undeserializable("missing field `messages`")
    for name in _WHOLE_NUMBERS:
        value = body.get(name)
        if value is not None and (type(value) is not int or value < 0):
            raise undeserializable(f"{name}: invalid value, expected u32")
    turns = [_turn(message) for message in messages]
    if not service.template:
        raise ApiError("template_error", "template not found")
    return "".join([*turns, "<|assistant|>\n"])


def _turn(message: object) -> str:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise undeserializable("messages: missing field `role`")
    return f"<|{message['role']}|>\n{_content(message)}\n"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if isinstance(content, str):
        return content
    if "tool_calls" in message:
        return json.dumps(message["tool_calls"])
    raise undeserializable("messages: missing field `content`")


def includes_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def common_parameters(body: Mapping[str, Any], **own: object) -> Parameters:
    """The settings chat and completions share. Temperature 0 means greedy here, unlike in `/generate`.

    Raises:
        RejectionError: 422, a setting of the wrong type.
    """
    temperature, stop = body.get("temperature"), body.get("stop")
    raw = {
        "temperature": None if temperature == _GREEDY else temperature,
        "do_sample": temperature is not None and temperature != _GREEDY,
        "top_p": body.get("top_p"),
        "seed": body.get("seed"),
        "frequency_penalty": body.get("frequency_penalty"),
        "stop": [stop] if isinstance(stop, str) else stop,
        **own,
    }
    return parse_parameters(raw, path="")


def _chat_parameters(body: Mapping[str, Any], tool: Mapping[str, Any] | None) -> Parameters:
    limit = body.get("max_completion_tokens")
    wants_alternatives = body.get("logprobs") is True
    parameters = common_parameters(
        body,
        max_new_tokens=body.get("max_tokens") if limit is None else limit,
        top_n_tokens=body.get("top_logprobs") if wants_alternatives else None,
        grammar=_response_format(body),
    )
    if tool is None:
        return parameters
    return replace(parameters, forced_text=json.dumps(example(tool.get("parameters"))))


def _response_format(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    wanted = body.get("response_format")
    if not isinstance(wanted, dict) or wanted.get("type") == "text":
        return None
    return {"type": wanted.get("type"), "value": wanted.get("json_schema", wanted.get("value"))}


def _required_tool(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choice = body.get("tool_choice")
    if choice is None or choice in ("auto", "none"):
        return None
    named = _member(choice, "function").get("name") if isinstance(choice, dict) else None
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = _member(tool, "function")
        if function and named in (None, function.get("name")):
            return function
    raise ApiError("tool_error", f"Tool error: Tool with name {named or choice} not found")


def _member(value: object, name: str) -> Mapping[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
