"""The OpenAI-style routes: chat, completions, models."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tgi_deploy.sandbox.engine import native
from tgi_deploy.sandbox.engine.bodies import Chat, Completion, Generate
from tgi_deploy.sandbox.engine.chat import ChatRequest, apply_template, chat_request
from tgi_deploy.sandbox.engine.failures import ApiError
from tgi_deploy.sandbox.engine.inference import Asked
from tgi_deploy.sandbox.engine.reading import typed, undeserializable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tgi_deploy.sandbox.engine.generator import Step
    from tgi_deploy.sandbox.engine.inference import Answer
    from tgi_deploy.sandbox.engine.server import Exchange
    from tgi_deploy.sandbox.engine.service import Service


def chat_completions(service: Service, exchange: Exchange) -> None:
    _chat(service, exchange, exchange.read(Chat))


def completions(service: Service, exchange: Exchange) -> None:
    _complete(service, exchange, exchange.read(Completion))


def invocations(service: Service, exchange: Exchange) -> None:
    """Answer SageMaker's route, which accepts any of the three bodies."""
    body, text = exchange.read_object()
    if "messages" in body:
        _chat(service, exchange, typed(body, Chat, text))
    elif "prompt" in body:
        _complete(service, exchange, typed(body, Completion, text))
    elif "inputs" in body:
        native.compatible_body(service, exchange, typed(body, Generate, text))
    else:
        raise undeserializable("data did not match any variant of untagged enum SagemakerRequest")


def models(service: Service, exchange: Exchange) -> None:
    entry = {"id": service.model_id, "object": "model", "created": 0, "owned_by": service.model_id}
    exchange.send_json(200, {"object": "list", "data": [entry]})


def chat_tokenize(service: Service, exchange: Exchange) -> None:
    prompt = apply_template(service, exchange.read(Chat))
    pieces = native.token_list(service.inference.tokenizer.encode(prompt))
    exchange.send_json(200, {"tokenize_response": pieces, "templated_text": prompt})


def _chat(service: Service, exchange: Exchange, body: Chat) -> None:
    request = chat_request(service, body)
    asked = Asked(route="chat_completions", inputs=request.prompt, parameters=request.parameters)
    if body.stream:
        _stream(service, exchange, asked, _chat_chunks(service, asked, request))
        return
    answer = service.inference.answer(asked)
    choice = {
        "index": 0,
        "message": _message(request, answer),
        "logprobs": _logprobs(answer.steps) if body.logprobs else None,
        "finish_reason": _finish(answer.finish_reason),
    }
    reply = _envelope(service, "chat.completion", choices=[choice], usage=_usage([answer]))
    exchange.send_json(200, reply, headers=service.timing_headers(answer))


def _message(request: ChatRequest, answer: Answer) -> dict[str, Any]:
    if request.tool is None:
        return {"role": "assistant", "content": answer.text}
    return {"role": "assistant", "tool_calls": [_tool_call(request.tool, answer.text)]}


def _tool_call(tool: Mapping[str, Any], arguments: str) -> dict[str, Any]:
    function = {"description": None, "name": tool.get("name"), "arguments": arguments}
    return {"id": "0", "type": "function", "function": function}


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


def _envelope(service: Service, kind: str, **fields: object) -> dict[str, Any]:
    return {
        "object": kind,
        "id": "",
        "created": int(time.time()),
        "model": service.model_id,
        "system_fingerprint": service.fingerprint,
        **fields,
    }


def _stream(service: Service, exchange: Exchange, asked: Asked, chunks: Generator[dict[str, Any]]) -> None:
    headers = service.stream_headers(asked.inputs)
    exchange.send_events(headers, chunks, failure=ApiError.chat_event, last="[DONE]")


def _chat_chunks(service: Service, asked: Asked, request: ChatRequest) -> Generator[dict[str, Any]]:
    used = (0, 0)
    for prepared, step, produced in service.inference.stream(asked):
        used = (len(prepared.pieces), produced)
        reason = None if step.finish_reason is None else _finish(step.finish_reason)
        choice = {
            "index": 0,
            "delta": _delta(request, step),
            "logprobs": _logprobs((step,)) if request.body.logprobs else None,
            "finish_reason": reason and "tool_calls" if request.tool is not None else reason,
        }
        yield _envelope(service, "chat.completion.chunk", choices=[choice], usage=None)
    if request.body.include_usage:
        yield _envelope(service, "chat.completion.chunk", choices=[], usage=_usage_of(*used))


def _delta(request: ChatRequest, step: Step) -> dict[str, Any]:
    text = "" if step.token.special else step.token.text
    if request.tool is None:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "tool_calls": [{"index": 0, **_tool_call(request.tool, text)}]}


def _complete(service: Service, exchange: Exchange, body: Completion) -> None:
    if body.suffix is not None:
        problem = "Suffix is not supported and can be achieved by preprocessing the prompt."
        raise ApiError("suffix not supported", problem)
    most = service.inference.situation.arguments.required_number("max-client-batch-size", 4)
    if len(body.prompt) > most:
        raise ApiError("batch size exceeded", f"Number of prompts exceeds the maximum allowed batch size of {most}")
    parameters = body.parameters(repetition_penalty=body.repetition_penalty)
    every = [Asked(route="completions", inputs=prompt, parameters=parameters) for prompt in body.prompt]
    if body.stream:
        _stream(service, exchange, every[0], _completion_chunks(service, every))
        return
    answers = [service.inference.answer(asked) for asked in every]
    choices = [_choice(place, answer.text, _finish(answer.finish_reason)) for place, answer in enumerate(answers)]
    reply = _envelope(service, "text_completion", choices=choices, usage=_usage(answers))
    headers = service.timing_headers(answers[-1])
    del headers["x-compute-time"]  # the only route whose answers lack it
    exchange.send_json(200, reply, headers=headers)


def _choice(place: int, text: str, reason: str) -> dict[str, Any]:
    return {"index": place, "text": text, "logprobs": None, "finish_reason": reason}


def _completion_chunks(service: Service, every: list[Asked]) -> Generator[dict[str, Any]]:
    """Return a chunk; a prompt's last one has the form of a whole answer with usage, the others have no usage."""
    for place, asked in enumerate(every):
        for prepared, step, produced in service.inference.stream(asked):
            reason = "" if step.finish_reason is None else _finish(step.finish_reason)
            choices = [_choice(place, "" if step.token.special else step.token.text, reason)]
            usage = {"usage": _usage_of(len(prepared.pieces), produced)} if reason else {}
            yield _envelope(service, "text_completion", choices=choices, **usage)
