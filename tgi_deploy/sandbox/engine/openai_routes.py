"""The OpenAI-shaped routes: chat, completions, models."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine import native
from tgi_deploy.sandbox.engine.chat import ChatRequest, apply_template, common_parameters, includes_usage, parse_chat
from tgi_deploy.sandbox.engine.replies import ApiError, undeserializable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from tgi_deploy.sandbox.engine.exchange import Exchange
    from tgi_deploy.sandbox.engine.generator import Step
    from tgi_deploy.sandbox.engine.inference import Answer
    from tgi_deploy.sandbox.engine.parameters import Parameters
    from tgi_deploy.sandbox.engine.service import Service

_DONE: Final = "[DONE]"


def chat_completions(service: Service, exchange: Exchange) -> None:
    _chat(service, exchange, exchange.json_object())


def completions(service: Service, exchange: Exchange) -> None:
    _complete(service, exchange, exchange.json_object())


def invocations(service: Service, exchange: Exchange) -> None:
    """SageMaker's one route takes any of the three bodies."""
    body = exchange.json_object()
    if "messages" in body:
        _chat(service, exchange, body)
    elif "prompt" in body:
        _complete(service, exchange, body)
    else:
        native.compatible_body(service, exchange, body)


def models(service: Service, exchange: Exchange) -> None:
    entry = {"id": service.model_id, "object": "model", "created": 0, "owned_by": service.model_id}
    exchange.send_json(200, {"object": "list", "data": [entry]})


def chat_tokenize(service: Service, exchange: Exchange) -> None:
    prompt = apply_template(service, exchange.json_object())
    pieces = native.token_list(service.inference.tokenizer.encode(prompt))
    exchange.send_json(200, {"tokenize_response": pieces, "templated_text": prompt})


def _chat(service: Service, exchange: Exchange, body: Mapping[str, Any]) -> None:
    request = parse_chat(service, body)
    if request.stream:
        _stream(service, exchange, _chat_chunks(service, request))
        return
    answer = service.inference.answer(request.prompt, request.parameters)
    choice = {
        "index": 0,
        "message": _message(request, answer),
        "logprobs": _logprobs(answer.steps) if request.logprobs else None,
        "finish_reason": "tool_calls" if request.tool else _finish(answer.finish_reason),
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
    return _usage_of(
        sum(len(answer.prepared.pieces) for answer in answers), sum(len(answer.steps) for answer in answers)
    )


def _envelope(service: Service, kind: str, **fields: object) -> dict[str, Any]:
    return {
        "object": kind,
        "id": "",
        "created": int(time.time()),
        "model": service.model_id,
        "system_fingerprint": service.fingerprint,
        **fields,
    }


def _stream(service: Service, exchange: Exchange, chunks: Generator[dict[str, Any]]) -> None:
    """Everything that fails from here on is reported inside a 200."""
    exchange.start_events(service.compute_headers())
    with closing(chunks):
        try:
            for chunk in chunks:
                exchange.send_event(chunk)
        except ApiError as error:
            exchange.send_event(error.chat_event())
    exchange.send_event(_DONE)
    exchange.end_events()


def _chat_chunks(service: Service, request: ChatRequest) -> Generator[dict[str, Any]]:
    def chunk(step: Step) -> dict[str, Any]:
        reason = None if step.finish_reason is None else _finish(step.finish_reason)
        if request.tool is not None:
            reason = reason and "tool_calls"
        choice = {
            "index": 0,
            "delta": _delta(request, step),
            "logprobs": _logprobs((step,)) if request.logprobs else None,
            "finish_reason": reason,
        }
        return _envelope(service, "chat.completion.chunk", choices=[choice], usage=None)

    yield from _chunks(service, (request.prompt, request.parameters), chunk, usage=request.include_usage)


def _delta(request: ChatRequest, step: Step) -> dict[str, Any]:
    text = "" if step.token.special else step.token.text
    if request.tool is None:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "tool_calls": [{"index": 0, **_tool_call(request.tool, text)}]}


def _chunks(
    service: Service,
    wanted: tuple[str, Parameters],
    chunk: Callable[[Step], dict[str, Any]],
    *,
    usage: bool,
) -> Generator[dict[str, Any]]:
    inference = service.inference
    with inference.admitted() as timing:
        prepared = inference.prepare(*wanted, timing, streaming=True)
        produced, last = 0, {}
        for step in inference.steps(prepared, timing):
            produced += 1
            last = chunk(step)
            yield last
        if usage:
            yield {**last, "choices": [], "usage": _usage_of(len(prepared.pieces), produced)}


def _complete(service: Service, exchange: Exchange, body: Mapping[str, Any]) -> None:
    if body.get("suffix") is not None:
        raise ApiError(
            "suffix not supported", "Suffix is not supported and can be achieved by preprocessing the prompt."
        )
    prompts, parameters = _prompts(service, body), _completion_parameters(body)
    if body.get("stream") is True:
        _stream(service, exchange, _completion_chunks(service, prompts, parameters, usage=includes_usage(body)))
        return
    answers = [service.inference.answer(prompt, parameters) for prompt in prompts]
    choices = [
        {"index": place, "text": answer.text, "logprobs": None, "finish_reason": _finish(answer.finish_reason)}
        for place, answer in enumerate(answers)
    ]
    reply = _envelope(service, "text_completion", choices=choices, usage=_usage(answers))
    exchange.send_json(200, reply, headers=service.timing_headers(answers[-1]))


def _prompts(service: Service, body: Mapping[str, Any]) -> list[str]:
    prompt = body.get("prompt")
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, list) or not prompts or not all(isinstance(item, str) for item in prompts):
        raise undeserializable("missing field `prompt`")
    most = service.inference.situation.arguments.required_number("max-client-batch-size", 4)
    if len(prompts) > most:
        raise ApiError("batch size exceeded", f"Number of prompts exceeds the maximum allowed batch size of {most}")
    return prompts


def _completion_parameters(body: Mapping[str, Any]) -> Parameters:
    return common_parameters(
        body,
        repetition_penalty=body.get("repetition_penalty"),
        max_new_tokens=body.get("max_tokens"),
    )


def _completion_chunks(
    service: Service, prompts: list[str], parameters: Parameters, *, usage: bool
) -> Generator[dict[str, Any]]:
    for place, prompt in enumerate(prompts):

        def chunk(step: Step, place: int = place) -> dict[str, Any]:
            choice = {
                "index": place,
                "text": "" if step.token.special else step.token.text,
                "logprobs": None,
                "finish_reason": None if step.finish_reason is None else _finish(step.finish_reason),
            }
            return _envelope(service, "text_completion", choices=[choice], usage=None)

        yield from _chunks(service, (prompt, parameters), chunk, usage=usage)
