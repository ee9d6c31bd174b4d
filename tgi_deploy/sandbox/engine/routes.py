"""The routes and their answers: health, information, metrics; inference in the engine's own style and in OpenAI's.

The routes of cloud platforms accept the bodies of both styles.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine.bodies import Chat, Completion, Generate, Grammar, Tokenize, Vertex
from tgi_deploy.sandbox.engine.inference import Query
from tgi_deploy.sandbox.engine.messages import (
    ApiError,
    RejectionError,
    Reply,
    Stream,
    reply_json,
    reply_text,
    typed,
    undeserializable,
)
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    import msgspec

    from tgi_deploy.sandbox.engine.bodies import Message
    from tgi_deploy.sandbox.engine.generator import Step, Token
    from tgi_deploy.sandbox.engine.inference import Generation, Inference
    from tgi_deploy.sandbox.engine.messages import Request

DESCRIPTION: Final = "/api-doc/openapi.json"


def health(inference: Inference, _request: Request) -> Reply:
    """Answer the health check: healthy while all shards run; after one died, the router answers until it is stopped."""
    if inference.dead.is_set():
        inference.log_dead_shard()
        raise ApiError("healthcheck", "unhealthy")
    return Reply()


def metrics(inference: Inference, _request: Request) -> Reply:
    return reply_text(inference.metrics.render())


def docs(_inference: Inference, _request: Request) -> Reply:
    return Reply(status=303, headers={"location": "/docs/"})


def docs_page(inference: Inference, _request: Request) -> Reply:
    """Answer with a link to the API description in place of the engine's Swagger UI."""
    title = f"<title>Text Generation Inference {inference.version}</title>"
    page = f"<!-- HTML for static distribution bundle build -->\n<!DOCTYPE html>{title}<a href={DESCRIPTION}>API</a>"
    return reply_text(page, kind="text/html")


def info(inference: Inference, _request: Request) -> Reply:
    situation = inference.situation
    arguments, limits, checkpoint = situation.arguments, situation.limits, situation.checkpoint
    # The limit was renamed in the release that added LoRA adapters.
    input_name = "max_input_tokens" if inference.has("lora-adapters") else "max_input_length"
    known = {
        "model_id": inference.model_id,
        "model_sha": None if checkpoint.is_local else checkpoint.commit,
        **_older_fields(inference),
        "model_pipeline_tag": None if checkpoint.is_local else "text-generation",
        "max_concurrent_requests": arguments.get("max-concurrent-requests"),
        "max_best_of": arguments.get("max-best-of"),
        "max_stop_sequences": arguments.get("max-stop-sequences"),
        input_name: limits.max_input_tokens,
        "max_total_tokens": limits.max_total_tokens,
        "validation_workers": arguments.get("validation-workers"),
        "max_client_batch_size": arguments.get("max-client-batch-size"),
        "router": "text-generation-router",
        "version": inference.version,
        "sha": inference.commit,
        "docker_label": inference.docker_label,
    }
    return reply_json(known)


def _older_fields(inference: Inference) -> dict[str, Any]:
    """Fields of older releases: the release that added `--api-key` moved the backend out of the router."""
    if inference.has("api-key"):
        return {}
    situation = inference.situation
    dtype = situation.arguments.get("dtype", situation.model_class.default_dtype)
    return {
        "model_dtype": f"torch.{'float32' if situation.host.on_cpu else dtype}",
        "model_device_type": "cpu" if situation.host.on_cpu else "cuda",
        "waiting_served_ratio": situation.arguments.get("waiting-served-ratio", 0.3),
        "max_batch_total_tokens": situation.limits.max_batch_total_tokens,
        "max_waiting_tokens": situation.arguments.get("max-waiting-tokens"),
    }


def models(inference: Inference, _request: Request) -> Reply:
    entry = {"id": inference.model_id, "object": "model", "created": 0, "owned_by": inference.model_id}
    return reply_json({"object": "list", "data": [entry]})


def tokenize(inference: Inference, body: Tokenize) -> Reply:
    return reply_json(token_list(inference.tokenizer.encode(body.inputs)))


def chat_tokenize(inference: Inference, body: Chat) -> Reply:
    prompt = _prompt(inference, body)
    pieces = token_list(inference.tokenizer.encode(prompt))
    return reply_json({"tokenize_response": pieces, "templated_text": prompt})


def token_list(pieces: Iterable[Token]) -> list[dict[str, Any]]:
    found, stop = [], 0
    for piece in pieces:
        start, shown = stop, "" if piece.special else piece.text
        stop += len(shown)
        found.append({"id": piece.id, "text": shown, "start": start, "stop": stop})
    return found


def invocations(inference: Inference, request: Request) -> Reply | Stream:
    """Answer SageMaker's route, which accepts any of the three bodies."""
    body = request.value()
    members = body if isinstance(body, dict) else {}
    if "messages" in members:
        return chat_completions(inference, typed(body, Chat, request.text))
    if "prompt" in members:
        return completions(inference, typed(body, Completion, request.text))
    if "inputs" in members:
        return compatible(inference, typed(body, Generate, request.text))
    raise undeserializable("data did not match any variant of untagged enum SagemakerRequest")


def vertex(inference: Inference, body: Vertex) -> Reply:
    """Answer each instance, which is a chat or a generate request."""
    queries = [
        _converted(inference, typed(instance, Chat, ""), "vertex_compatibility")[0]
        if "messages" in instance
        else _query(typed(instance, Generate, ""), "vertex_compatibility")
        for instance in body.instances
    ]
    return reply_json({"predictions": [inference.answer(one).text for one in queries]})


def generate(inference: Inference, body: Generate) -> Reply:
    return _whole(inference, _query(body, "generate"), as_list=False)


def generate_stream(inference: Inference, body: Generate) -> Stream:
    return _stream(inference, _query(body, "generate_stream"))


def compatible(inference: Inference, body: Generate) -> Reply | Stream:
    """Answer `POST /`: a list with one answer, or a stream. The prompt is included, unless that was turned off."""
    if body.parameters.return_full_text is None:
        body = replaced(body, parameters=replaced(body.parameters, return_full_text=True))
    kind = f'default_return_full_text=true compute_type=Extension(ComputeType("{inference.compute_type}"))'
    within = f"compat_generate{{{kind}}}"
    if body.stream:
        return _stream(inference, _query(body, "generate_stream", within))
    return _whole(inference, _query(body, "generate", within), as_list=True)


def _query(body: Generate, route: str, within: str = "") -> Query:
    return Query(route=route, inputs=body.inputs, parameters=body.parameters, within=within)


def _whole(inference: Inference, query: Query, *, as_list: bool) -> Reply:
    answer = inference.answer(query)
    body: dict[str, Any] = {"generated_text": _shown_text(query, answer.text)}
    if query.parameters.details or query.parameters.decoder_input_details:
        body["details"] = _details(answer)
    return reply_json([body] if as_list else body, headers=inference.timing_headers(answer))


def _shown_text(query: Query, text: str) -> str:
    return query.inputs + text if query.parameters.return_full_text else text


def _details(answer: Generation) -> dict[str, Any]:
    parameters = answer.query.parameters
    prefill = [
        {"id": piece.id, "text": piece.text, "logprob": None if place == 0 else -1.0 - piece.id % 97 / 50}
        for place, piece in enumerate(answer.pieces if parameters.decoder_input_details else ())
    ]
    details = {
        **_sequence_details(answer),
        "prefill": prefill,
        "tokens": [_token(step.token) for step in answer.steps],
    }
    if parameters.top_n_tokens:
        details["top_tokens"] = [[_token(token) for token in step.top] for step in answer.steps]
    if (parameters.best_of or 1) > 1:
        # The other candidate; the stub server's do not differ.
        text = _shown_text(answer.query, answer.text)
        details["best_of_sequences"] = [{"generated_text": text, **details, "prefill": []}]
    return details


def _sequence_details(answer: Generation) -> dict[str, Any]:
    return {"finish_reason": answer.finish_reason, "generated_tokens": len(answer.steps), "seed": answer.seed}


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "logprob": token.logprob, "special": token.special}


def _stream(inference: Inference, query: Query) -> Stream:
    headers = inference.stream_headers(query.inputs)
    return Stream(headers=headers, events=_events(inference, query), failure=ApiError.body)


def _events(inference: Inference, query: Query) -> Generator[dict[str, Any]]:
    parameters = query.parameters
    for generation, step in inference.stream(query):
        ended = step.finish_reason is not None
        event: dict[str, Any] = {"index": len(generation.steps), "token": _token(step.token)}
        if parameters.top_n_tokens:
            event["top_tokens"] = [_token(token) for token in step.top]
        event["generated_text"] = _shown_text(query, generation.text) if ended else None
        event["details"] = None
        if ended and parameters.details:
            event["details"] = {**_sequence_details(generation), "input_length": len(generation.pieces)}
        yield event


def _converted(
    inference: Inference, body: Chat, route: str = "chat_completions"
) -> tuple[Query, Mapping[str, Any] | None]:
    """Return the request with its template applied, and the function that must be called, if any. Raises ApiError."""
    if body.tools and body.response_format is not None:
        raise ApiError("tool_error", "Tool error: Grammar and tools are mutually exclusive")
    tool, grammar = _required_tool(body), body.response_format
    if tool is not None:  # the router's grammar has properties even if the tool has none
        grammar = Grammar(type="json", value={"properties": {}, **_member(tool, "parameters")})
    parameters = body.parameters(top_n_tokens=body.top_logprobs if body.logprobs else None, grammar=grammar)
    return Query(route=route, inputs=_prompt(inference, body), parameters=parameters), tool


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


def chat_completions(inference: Inference, body: Chat) -> Reply | Stream:
    query, tool = _converted(inference, body)
    if body.stream:
        return _openai_stream(inference, query, _chat_chunks(inference, body, query, tool))
    answer = inference.answer(query)
    choice = {
        "index": 0,
        "message": _message(tool, answer.text),
        "logprobs": _logprobs(answer.steps) if body.logprobs else None,
        "finish_reason": _finish(answer.finish_reason),
    }
    reply = _envelope(inference, "chat.completion", choices=[choice], usage=_usage(answer))
    return reply_json(reply, headers=inference.timing_headers(answer))


def _message(tool: Mapping[str, Any] | None, text: str, **place: int) -> dict[str, Any]:
    """Return the message of an answer, or of a chunk, whose tool call has its `index`."""
    if tool is None:
        return {"role": "assistant", "content": text}
    function = {"description": None, "name": tool.get("name"), "arguments": text}
    return {"role": "assistant", "tool_calls": [{**place, "id": "0", "type": "function", "function": function}]}


def _logprobs(steps: Iterable[Step]) -> dict[str, Any]:
    return {"content": [{**_logprob(step.token), "top_logprobs": [*map(_logprob, step.top)]} for step in steps]}


def _logprob(token: Token) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob}


def _finish(reason: str) -> str:
    return "stop" if reason == "eos_token" else reason


def _usage(*answers: Generation) -> dict[str, int]:
    prompt, completion = sum(len(one.pieces) for one in answers), sum(len(one.steps) for one in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _envelope(inference: Inference, kind: str, **fields: object) -> dict[str, Any]:
    return {
        "object": kind,
        "id": "",
        "created": int(time.time()),
        "model": inference.model_id,
        "system_fingerprint": f"{inference.version}-{inference.docker_label}",
        **fields,
    }


def _openai_stream(inference: Inference, query: Query, chunks: Generator[dict[str, Any]]) -> Stream:
    headers = inference.stream_headers(query.inputs)
    return Stream(headers=headers, events=chunks, failure=ApiError.chat_event, last="[DONE]")


def _chat_chunks(
    inference: Inference, body: Chat, query: Query, tool: Mapping[str, Any] | None
) -> Generator[dict[str, Any]]:
    usage = None
    for generation, step in inference.stream(query):
        usage = _usage(generation)
        reason = None if step.finish_reason is None else _finish(step.finish_reason)
        choice = {
            "index": 0,
            "delta": _message(tool, step.shown, index=0),
            "logprobs": _logprobs((step,)) if body.logprobs else None,
            "finish_reason": reason and "tool_calls" if tool is not None else reason,
        }
        yield _envelope(inference, "chat.completion.chunk", choices=[choice], usage=None)
    if body.include_usage:
        yield _envelope(inference, "chat.completion.chunk", choices=[], usage=usage)


def completions(inference: Inference, body: Completion) -> Reply | Stream:
    if body.suffix is not None:
        problem = "Suffix is not supported and can be achieved by preprocessing the prompt."
        raise ApiError("suffix not supported", problem)
    most = inference.situation.arguments.get("max-client-batch-size", 4)
    if len(body.prompt) > most:
        raise ApiError("batch size exceeded", f"Number of prompts exceeds the maximum allowed batch size of {most}")
    parameters = body.parameters(repetition_penalty=body.repetition_penalty)
    queries = [Query(route="completions", inputs=prompt, parameters=parameters) for prompt in body.prompt]
    if body.stream:
        return _openai_stream(inference, queries[0], _completion_chunks(inference, queries))
    answers = [inference.answer(query) for query in queries]
    choices = [_choice(place, answer.text, _finish(answer.finish_reason)) for place, answer in enumerate(answers)]
    reply = _envelope(inference, "text_completion", choices=choices, usage=_usage(*answers))
    headers = inference.timing_headers(answers[-1])
    del headers["x-compute-time"]  # the only route whose answers lack it
    return reply_json(reply, headers=headers)


def _choice(place: int, text: str, reason: str) -> dict[str, Any]:
    return {"index": place, "text": text, "logprobs": None, "finish_reason": reason}


def _completion_chunks(inference: Inference, queries: list[Query]) -> Generator[dict[str, Any]]:
    """Return a chunk; a prompt's last one has the form of a whole answer with usage, the others have no usage."""
    for place, query in enumerate(queries):
        for generation, step in inference.stream(query):
            reason = "" if step.finish_reason is None else _finish(step.finish_reason)
            usage = {"usage": _usage(generation)} if reason else {}
            yield _envelope(inference, "text_completion", choices=[_choice(place, step.shown, reason)], **usage)


def _describe(inference: Inference, _request: Request) -> Reply:
    """Return the release's routes as an OpenAPI document, without bodies."""
    ok = {"responses": {"200": {"description": "as the engine answers"}}}
    paths: dict[str, dict[str, object]] = {}
    for method, path in _ROUTES:
        if _route(inference, method, path):
            paths.setdefault(path, {})[method.lower()] = ok
    about = {"title": "Text Generation Inference", "description": "Text Generation Webserver"}
    info = {**about, "version": inference.version}
    return reply_json({"openapi": "3.0.3", "info": info, "paths": paths})


@dataclass(frozen=True, slots=True)
class Route:
    """A route. `handler` gets the request, or its body if that has one type.

    `protected`: it needs the API key; `newer`: it came with the launcher's `--api-key`.
    """

    handler: Callable[[Inference, Any], Reply | Stream]
    body: type[msgspec.Struct] | None = None
    protected: bool = False
    newer: bool = False


_ROUTES: Final[Mapping[tuple[str, str], Route]] = {
    ("GET", "/"): Route(health),
    ("GET", "/health"): Route(health),
    ("GET", "/ping"): Route(health),
    ("GET", "/info"): Route(info),
    ("GET", "/metrics"): Route(metrics),
    ("GET", "/docs"): Route(docs),
    ("GET", "/docs/"): Route(docs_page),
    ("GET", DESCRIPTION): Route(_describe),
    ("GET", "/v1/models"): Route(models, newer=True),
    ("POST", "/"): Route(compatible, Generate, protected=True),
    ("POST", "/generate"): Route(generate, Generate, protected=True),
    ("POST", "/generate_stream"): Route(generate_stream, Generate, protected=True),
    ("POST", "/tokenize"): Route(tokenize, Tokenize, protected=True),
    ("POST", "/v1/chat/completions"): Route(chat_completions, Chat, protected=True),
    ("POST", "/v1/completions"): Route(completions, Completion, protected=True),
    ("POST", "/invocations"): Route(invocations, protected=True),
    ("POST", "/vertex"): Route(vertex, Vertex, protected=True),
    ("POST", "/chat_tokenize"): Route(chat_tokenize, Chat, newer=True),
}


def _route(inference: Inference, method: str, path: str) -> Route | None:
    found = _ROUTES.get((method, path))
    return None if found and found.newer and not inference.has("api-key") else found


def answer(inference: Inference, request: Request, method: str, path: str) -> Reply | Stream:
    """Find the route, check the key, answer, and convert rejections into replies."""
    route = _route(inference, "GET" if method == "HEAD" else method, path)
    if method == "OPTIONS":
        return Reply()
    if route is None:
        shown = {"GET": "GET,HEAD", "POST": "POST"}
        allowed = [words for known, words in shown.items() if _route(inference, known, path)]
        return Reply(status=405, headers={"allow": ",".join(allowed)}) if allowed else Reply(status=404)
    given, key = request.headers.get("Authorization") or "", inference.api_key
    if route.protected and key is not None and given.lower() != f"bearer {key}".lower():
        return Reply(status=401)
    try:
        return route.handler(inference, request if route.body is None else request.read(route.body))
    except RejectionError as rejection:
        return reply_text(rejection.text, status=rejection.status)
    except ApiError as error:
        return reply_json(error.body(), status=error.status)
