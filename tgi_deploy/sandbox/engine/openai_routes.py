"""The OpenAI-style routes: chat, completions, models; and those of cloud platforms, which take any body."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgi_deploy.sandbox.engine import native
from tgi_deploy.sandbox.engine.bodies import Chat, Completion, Generate, Grammar, Vertex
from tgi_deploy.sandbox.engine.inference import Asked
from tgi_deploy.sandbox.engine.messages import ApiError, Reply, Stream, reply_json, typed, undeserializable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tgi_deploy.sandbox.engine.bodies import Message
    from tgi_deploy.sandbox.engine.generator import Step
    from tgi_deploy.sandbox.engine.inference import Answer, Inference
    from tgi_deploy.sandbox.engine.messages import Request


def chat_completions(inference: Inference, request: Request) -> Reply | Stream:
    return _chat(inference, request.read(Chat))


def completions(inference: Inference, request: Request) -> Reply | Stream:
    return _complete(inference, request.read(Completion))


def invocations(inference: Inference, request: Request) -> Reply | Stream:
    """Answer SageMaker's route, which accepts any of the three bodies."""
    body = request.value()
    members = body if isinstance(body, dict) else {}
    if "messages" in members:
        return _chat(inference, typed(body, Chat, request.text))
    if "prompt" in members:
        return _complete(inference, typed(body, Completion, request.text))
    if "inputs" in members:
        return native.compatible_body(inference, typed(body, Generate, request.text))
    raise undeserializable("data did not match any variant of untagged enum SagemakerRequest")


def vertex(inference: Inference, request: Request) -> Reply:
    instances = [_instance(inference, instance) for instance in request.read(Vertex).instances]
    return reply_json({"predictions": [inference.answer(asked).text for asked in instances]})


def _instance(inference: Inference, instance: Mapping[str, Any]) -> Asked:
    if "messages" in instance:
        return _converted(inference, typed(instance, Chat, ""), "vertex_compatibility").asked
    return native.asked_of(typed(instance, Generate, ""), "vertex_compatibility")


def models(inference: Inference, _request: Request) -> Reply:
    entry = {"id": inference.model_id, "object": "model", "created": 0, "owned_by": inference.model_id}
    return reply_json({"object": "list", "data": [entry]})


def chat_tokenize(inference: Inference, request: Request) -> Reply:
    prompt = _prompt(inference, request.read(Chat))
    pieces = native.token_list(inference.tokenizer.encode(prompt))
    return reply_json({"tokenize_response": pieces, "templated_text": prompt})


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """A converted chat. `tool` is the function that must be called, None for a text answer."""

    body: Chat
    asked: Asked
    tool: Mapping[str, Any] | None


def _converted(inference: Inference, body: Chat, route: str = "chat_completions") -> ChatRequest:
    """Return the request with its template applied. Raises ApiError `template_error` or `tool_error`."""
    if body.tools and body.response_format is not None:
        raise ApiError("tool_error", "Tool error: Grammar and tools are mutually exclusive")
    tool, grammar = _required_tool(body), body.response_format
    if tool is not None:  # the router's grammar has properties even if the tool has none
        grammar = Grammar(type="json", value={"properties": {}, **_member(tool, "parameters")})
    parameters = body.parameters(top_n_tokens=body.top_logprobs if body.logprobs else None, grammar=grammar)
    asked = Asked(route=route, inputs=_prompt(inference, body), parameters=parameters)
    return ChatRequest(body=body, asked=asked, tool=tool)


def _prompt(inference: Inference, body: Chat) -> str:
    if not inference.template:
        raise ApiError("template_error", "template not found")
    return "".join([*map(_turn, body.messages), "<|assistant|>\n"])


def _turn(message: Message) -> str:
    content = message.content
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    elif not isinstance(content, str):
        content = json.dumps(message.tool_calls)
    return f"<|{message.role}|>\n{content}\n"


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


def _chat(inference: Inference, body: Chat) -> Reply | Stream:
    request = _converted(inference, body)
    if body.stream:
        return _stream(inference, request.asked, _chat_chunks(inference, request))
    answer = inference.answer(request.asked)
    choice = {
        "index": 0,
        "message": _message(request, answer.text),
        "logprobs": _logprobs(answer.steps) if body.logprobs else None,
        "finish_reason": _finish(answer.finish_reason),
    }
    reply = _envelope(inference, "chat.completion", choices=[choice], usage=_usage([answer]))
    return reply_json(reply, headers=inference.timing_headers(answer))


def _message(request: ChatRequest, text: str, **place: int) -> dict[str, Any]:
    """Return the message of an answer, or of a chunk, whose tool call has its `index`."""
    if request.tool is None:
        return {"role": "assistant", "content": text}
    function = {"description": None, "name": request.tool.get("name"), "arguments": text}
    call = {**place, "id": "0", "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}


def _logprobs(steps: tuple[Step, ...]) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": step.token.text,
                "logprob": step.token.logprob,
                "top_logprobs": [{"token": token.text, "logprob": token.logprob} for token in step.top],
            }
            for step in steps
        ]
    }


def _finish(reason: str) -> str:
    return "stop" if reason == "eos_token" else reason


def _usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _usage(answers: list[Answer]) -> dict[str, int]:
    prompts = sum(len(answer.prepared.pieces) for answer in answers)
    return _usage_of(prompts, sum(len(answer.steps) for answer in answers))


def _envelope(inference: Inference, kind: str, **fields: object) -> dict[str, Any]:
    return {
        "object": kind,
        "id": "",
        "created": int(time.time()),
        "model": inference.model_id,
        "system_fingerprint": f"{inference.version}-{inference.docker_label}",
        **fields,
    }


def _stream(inference: Inference, asked: Asked, chunks: Generator[dict[str, Any]]) -> Stream:
    headers = inference.stream_headers(asked.inputs)
    return Stream(headers=headers, events=chunks, failure=ApiError.chat_event, last="[DONE]")


def _chat_chunks(inference: Inference, request: ChatRequest) -> Generator[dict[str, Any]]:
    used = (0, 0)
    for prepared, step, produced in inference.stream(request.asked):
        used = (len(prepared.pieces), produced)
        reason = None if step.finish_reason is None else _finish(step.finish_reason)
        choice = {
            "index": 0,
            "delta": _message(request, step.shown, index=0),
            "logprobs": _logprobs((step,)) if request.body.logprobs else None,
            "finish_reason": reason and "tool_calls" if request.tool is not None else reason,
        }
        yield _envelope(inference, "chat.completion.chunk", choices=[choice], usage=None)
    if request.body.include_usage:
        yield _envelope(inference, "chat.completion.chunk", choices=[], usage=_usage_of(*used))


def _complete(inference: Inference, body: Completion) -> Reply | Stream:
    if body.suffix is not None:
        problem = "Suffix is not supported and can be achieved by preprocessing the prompt."
        raise ApiError("suffix not supported", problem)
    most = inference.situation.arguments.get("max-client-batch-size", 4)
    if len(body.prompt) > most:
        raise ApiError("batch size exceeded", f"Number of prompts exceeds the maximum allowed batch size of {most}")
    parameters = body.parameters(repetition_penalty=body.repetition_penalty)
    every = [Asked(route="completions", inputs=prompt, parameters=parameters) for prompt in body.prompt]
    if body.stream:
        return _stream(inference, every[0], _completion_chunks(inference, every))
    answers = [inference.answer(asked) for asked in every]
    choices = [_choice(place, answer.text, _finish(answer.finish_reason)) for place, answer in enumerate(answers)]
    reply = _envelope(inference, "text_completion", choices=choices, usage=_usage(answers))
    headers = inference.timing_headers(answers[-1])
    del headers["x-compute-time"]  # the only route whose answers lack it
    return reply_json(reply, headers=headers)


def _choice(place: int, text: str, reason: str) -> dict[str, Any]:
    return {"index": place, "text": text, "logprobs": None, "finish_reason": reason}


def _completion_chunks(inference: Inference, every: list[Asked]) -> Generator[dict[str, Any]]:
    """Return a chunk; a prompt's last one has the form of a whole answer with usage, the others have no usage."""
    for place, asked in enumerate(every):
        for prepared, step, produced in inference.stream(asked):
            reason = "" if step.finish_reason is None else _finish(step.finish_reason)
            usage = {"usage": _usage_of(len(prepared.pieces), produced)} if reason else {}
            yield _envelope(inference, "text_completion", choices=[_choice(place, step.shown, reason)], **usage)
