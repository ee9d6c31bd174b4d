"""The routes and their answers: health, information, metrics; inference in the engine's own style and in OpenAI's.

The routes of cloud platforms accept the bodies of both styles.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine import bodies
from tgi_deploy.sandbox.engine.generator import Query
from tgi_deploy.sandbox.engine.messages import ApiError, RejectionError, Reply, compact, reply_json, reply_text
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from tgi_deploy.sandbox.engine.bodies import Body
    from tgi_deploy.sandbox.engine.generator import Generation, Step, Token
    from tgi_deploy.sandbox.engine.inference import Inference
    from tgi_deploy.sandbox.engine.messages import Request

    Members = dict[str, Any]

DESCRIPTION: Final = "/api-doc/openapi.json"
# Routes that came with the launcher's `--api-key`.
_NEWER: Final = frozenset({"/v1/models", "/chat_tokenize"})
# The route that answers a body of SageMaker's, by a member of the body.
_SAGEMAKER: Final = {"messages": "/v1/chat/completions", "prompt": "/v1/completions", "inputs": "/"}


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


def description(inference: Inference, _request: Request) -> Reply:
    """Return the release's routes as an OpenAPI document, without bodies."""
    paths: dict[str, Members] = {}
    for method, path in _served(inference):
        paths.setdefault(path, {})[method.lower()] = {"responses": {"200": {"description": "as the engine answers"}}}
    about = {"title": "Text Generation Inference", "description": "Text Generation Webserver"}
    return reply_json({"openapi": "3.0.3", "info": {**about, "version": inference.version}, "paths": paths})


def info(inference: Inference, _request: Request) -> Reply:
    situation = inference.situation
    get, limits, checkpoint, on_cpu = (
        situation.arguments.get, situation.limits, situation.checkpoint, situation.host.on_cpu
    )  # fmt: skip
    dtype = "float32" if on_cpu else get("dtype", situation.model_class.default_dtype)
    older = {
        "model_dtype": f"torch.{dtype}",
        "model_device_type": "cpu" if on_cpu else "cuda",
        "waiting_served_ratio": get("waiting-served-ratio", 0.3),
        "max_batch_total_tokens": limits.max_batch_total_tokens,
        "max_waiting_tokens": get("max-waiting-tokens"),
    }
    known = {
        "model_id": inference.model_id,
        "model_sha": None if checkpoint.is_local else checkpoint.commit,
        # The release that added `--api-key` moved the backend out of the router.
        **({} if inference.has("api-key") else older),
        "model_pipeline_tag": None if checkpoint.is_local else "text-generation",
        "max_concurrent_requests": get("max-concurrent-requests"),
        "max_best_of": get("max-best-of"),
        "max_stop_sequences": get("max-stop-sequences"),
        # The limit was renamed in the release that added LoRA adapters.
        f"max_input_{'tokens' if inference.has('lora-adapters') else 'length'}": limits.max_input_tokens,
        "max_total_tokens": limits.max_total_tokens,
        "validation_workers": get("validation-workers"),
        "max_client_batch_size": get("max-client-batch-size"),
        "router": "text-generation-router",
        "version": inference.version,
        "sha": inference.commit,
        "docker_label": inference.docker_label,
    }
    return reply_json(known)


def models(inference: Inference, _request: Request) -> Reply:
    entry = {"id": inference.model_id, "object": "model", "created": 0, "owned_by": inference.model_id}
    return reply_json({"object": "list", "data": [entry]})


def tokenize(inference: Inference, body: Body) -> Reply:
    return reply_json(token_list(inference.tokenizer.encode(body.inputs)))


def chat_tokenize(inference: Inference, body: Body) -> Reply:
    prompt = _prompt(inference, body)
    pieces = token_list(inference.tokenizer.encode(prompt))
    return reply_json({"tokenize_response": pieces, "templated_text": prompt})


def token_list(pieces: Iterable[Token]) -> list[Members]:
    found, stop = [], 0
    for piece in pieces:
        start, shown = stop, "" if piece.special else piece.text
        stop += len(shown)
        found.append({"id": piece.id, "text": shown, "start": start, "stop": stop})
    return found


def invocations(inference: Inference, request: Request) -> Reply:
    """Answer SageMaker's route, which accepts any of the three bodies."""
    text = request.json_text()
    value = bodies.parsed(text)
    path = next((path for member, path in _SAGEMAKER.items() if isinstance(value, dict) and member in value), None)
    if path is None:
        raise bodies.undeserializable("data did not match any variant of untagged enum SagemakerRequest")
    handler, struct = _ROUTES["POST", path]
    return handler(inference, bodies.read(value, struct, text))


def vertex(inference: Inference, body: Body) -> Reply:
    """Answer each instance, which is a chat or a generate request."""
    route = "vertex_compatibility"
    queries = [
        _chat_query(inference, bodies.read(instance, "ChatRequest"), route)[0]
        if "messages" in instance
        else _query(bodies.read(instance, "GenerateRequest"), route)
        for instance in body.instances
    ]
    return reply_json({"predictions": [inference.answer(one).text for one in queries]})


def _query(body: Body, route: str, within: str = "") -> Query:
    return Query(route=route, inputs=body.inputs, parameters=body.parameters, within=within)


def _answered(
    inference: Inference,
    queries: list[Query],
    whole: Callable[[list[Generation]], object],
    events: Iterable[Members] | None,
    *,
    openai: bool = False,
) -> Reply:
    """Answer with events, or whole if there are none. Errors and ends of streams are those of one of the two styles."""
    if events is None:
        answers = [inference.answer(query) for query in queries]
        return reply_json(whole(answers), headers=inference.timing_headers(answers[-1]))

    def data() -> Generator[str]:
        try:
            yield from map(compact, events)
        except ApiError as error:
            as_openai = {"error": {"message": error.message, "http_status_code": error.status}}
            yield compact(as_openai if openai else error.body())
        if openai:
            yield "[DONE]"

    return Reply(headers=inference.stream_headers(queries[0].inputs), events=data())


def generate(inference: Inference, body: Body) -> Reply:
    return _answered(inference, [_query(body, "generate")], lambda answers: _whole(answers[0]), None)


def generate_stream(inference: Inference, body: Body, within: str = "") -> Reply:
    query = _query(body, "generate_stream", within)
    return _answered(inference, [query], list, _events(inference, query))


def compatible(inference: Inference, body: Body) -> Reply:
    """Answer `POST /`: a list with one answer, or a stream. The prompt is included, unless that was turned off."""
    if body.parameters.return_full_text is None:
        body.parameters.return_full_text = True
    kind = f'default_return_full_text=true compute_type=Extension(ComputeType("{inference.compute_type}"))'
    within = f"compat_generate{{{kind}}}"
    if body.stream:
        return generate_stream(inference, body, within)
    return _answered(inference, [_query(body, "generate", within)], lambda answers: [*map(_whole, answers)], None)


def _whole(answer: Generation) -> Members:
    parameters, steps = answer.query.parameters, answer.steps
    text = {"generated_text": answer.shown_text}
    if not (parameters.details or parameters.decoder_input_details):
        return text
    details = {
        **_sequence_details(answer),
        "prefill": [
            {"id": piece.id, "text": piece.text, "logprob": None if place == 0 else -1.0 - piece.id % 97 / 50}
            for place, piece in enumerate(answer.pieces if parameters.decoder_input_details else ())
        ],
        "tokens": [as_dict(step.token) for step in steps],
    }
    if parameters.top_n_tokens:
        details["top_tokens"] = [[*map(as_dict, step.top)] for step in steps]
    if (parameters.best_of or 1) > 1:  # the other candidate; the stub server's do not differ
        details["best_of_sequences"] = [{**text, **details, "prefill": []}]
    return {**text, "details": details}


def _sequence_details(answer: Generation) -> Members:
    return {"finish_reason": answer.finish_reason, "generated_tokens": len(answer.steps), "seed": answer.seed}


def _events(inference: Inference, query: Query) -> Generator[Members]:
    parameters = query.parameters
    for generation, step in inference.stream(query):
        ended = step.finish_reason is not None
        details = {**_sequence_details(generation), "input_length": len(generation.pieces)}
        yield {
            "index": len(generation.steps),
            "token": as_dict(step.token),
            **({"top_tokens": [*map(as_dict, step.top)]} if parameters.top_n_tokens else {}),
            "generated_text": generation.shown_text if ended else None,
            "details": details if ended and parameters.details else None,
        }


def _sampling(body: Body, **own: object) -> Body:
    """Return the parameters that the router derives from an OpenAI-style body, where temperature 0 means greedy."""
    same = {name: getattr(body, name) for name in ("frequency_penalty", "top_p", "seed")}
    return bodies.parameters(
        **same, **own, temperature=body.temperature or None, do_sample=bool(body.temperature),
        max_new_tokens=body.max_tokens, stop=body.stop or [],
    )  # fmt: skip


def _chat_query(inference: Inference, body: Body, route: str) -> tuple[Query, Members | None]:
    """Return the request with its template applied, and the function that must be called, if any. Raises ApiError."""
    if body.tools and body.response_format is not None:
        raise ApiError("tool_error", "Tool error: Grammar and tools are mutually exclusive")
    tool, grammar = _required_tool(body), body.response_format and vars(body.response_format)
    if tool is not None:  # the router's grammar has properties even if the tool has none
        grammar = {"type": "json", "value": {"properties": {}, **_member(tool, "parameters")}}
    parameters = _sampling(body, top_n_tokens=body.top_logprobs if body.logprobs else None, grammar=grammar)
    return Query(route=route, inputs=_prompt(inference, body), parameters=parameters), tool


def _prompt(inference: Inference, body: Body) -> str:
    if not inference.template:
        raise ApiError("template_error", "template not found")
    return "".join([*map(_turn, body.messages), "<|assistant|>\n"])


def _turn(message: Body) -> str:
    content = message.content
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    elif content is None:
        content = json.dumps(message.tool_calls)
    return f"<|{message.role}|>\n{content}\n"


def _required_tool(body: Body) -> Members | None:
    choice = body.tool_choice
    if choice in (None, "auto", "none") or not body.tools:
        return None
    named = _member(choice, "function").get("name") if isinstance(choice, dict) else choice
    for function in (_member(tool, "function") for tool in body.tools):
        if function and named in ("required", function.get("name")):
            return function
    raise ApiError("tool_error", f"Tool error: Tool with name {named} not found")


def _member(value: Mapping[str, Any], name: str) -> Members:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def chat_completions(inference: Inference, body: Body) -> Reply:
    query, tool = _chat_query(inference, body, "chat_completions")

    def choice(role: str, text: str, steps: Iterable[Step], reason: str | None) -> Members:
        """Return the choice of an answer or of a chunk."""
        logprobs = {"content": [{**_logprob(step.token), "top_logprobs": [*map(_logprob, step.top)]} for step in steps]}
        return {
            "index": 0,
            role: _message(tool, text, {"index": 0} if role == "delta" else {}),
            "logprobs": logprobs if body.logprobs else None,
            "finish_reason": reason,
        }

    def whole(answers: list[Generation]) -> Members:
        (answer,) = answers
        choices = [choice("message", answer.text, answer.steps, _finish(answer.finish_reason))]
        return _envelope(inference, "chat.completion", choices=choices, usage=_usage(answers))

    def chunks() -> Generator[Members]:
        usage = None
        for generation, step in inference.stream(query):
            usage, reason = _usage([generation]), step.finish_reason and _finish(step.finish_reason)
            choices = [choice("delta", step.shown, (step,), "tool_calls" if reason and tool is not None else reason)]
            yield _envelope(inference, "chat.completion.chunk", choices=choices, usage=None)
        if body.stream_options is not None and body.stream_options.include_usage is not False:
            yield _envelope(inference, "chat.completion.chunk", choices=[], usage=usage)

    return _answered(inference, [query], whole, chunks() if body.stream else None, openai=True)


def _message(tool: Members | None, text: str, place: Mapping[str, int]) -> Members:
    if tool is None:
        return {"role": "assistant", "content": text}
    function = {"description": None, "name": tool.get("name"), "arguments": text}
    return {"role": "assistant", "tool_calls": [{**place, "id": "0", "type": "function", "function": function}]}


def _logprob(token: Token) -> Members:
    return {"token": token.text, "logprob": token.logprob}


def _finish(reason: str) -> str:
    return "stop" if reason == "eos_token" else reason


def _usage(answers: Iterable[Generation]) -> dict[str, int]:
    prompt, completion = map(sum, zip(*((len(one.pieces), len(one.steps)) for one in answers), strict=True))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _envelope(inference: Inference, kind: str, **fields: object) -> Members:
    return {
        "object": kind,
        "id": "",
        "created": int(time.time()),
        "model": inference.model_id,
        "system_fingerprint": f"{inference.version}-{inference.docker_label}",
        **fields,
    }


def completions(inference: Inference, body: Body) -> Reply:
    if body.suffix is not None:
        problem = "Suffix is not supported and can be achieved by preprocessing the prompt."
        raise ApiError("suffix not supported", problem)
    most = inference.situation.arguments.get("max-client-batch-size", 4)
    if len(body.prompt) > most:
        raise ApiError("batch size exceeded", f"Number of prompts exceeds the maximum allowed batch size of {most}")
    parameters = _sampling(body, repetition_penalty=body.repetition_penalty)
    queries = [Query(route="completions", inputs=prompt, parameters=parameters) for prompt in body.prompt]

    def choice(place: int, text: str, reason: str) -> Members:
        return {"index": place, "text": text, "logprobs": None, "finish_reason": _finish(reason)}

    def whole(answers: list[Generation]) -> Members:
        choices = [choice(place, one.text, one.finish_reason) for place, one in enumerate(answers)]
        return _envelope(inference, "text_completion", choices=choices, usage=_usage(answers))

    def chunks() -> Generator[Members]:
        """Yield chunks; a prompt's last one has the form of a whole answer with usage, the others have no usage."""
        for place, query in enumerate(queries):
            for generation, step in inference.stream(query):
                usage = {"usage": _usage([generation])} if step.finish_reason else {}
                choices = [choice(place, step.shown, step.finish_reason or "")]
                yield _envelope(inference, "text_completion", choices=choices, **usage)

    return _answered(inference, queries, whole, chunks() if body.stream else None, openai=True)


# By method and path: the handler, and the struct of its body; without one it gets the request.
_ROUTES: Final[Mapping[tuple[str, str], tuple[Callable[[Inference, Any], Reply], str]]] = {
    ("GET", "/"): (health, ""),
    ("GET", "/health"): (health, ""),
    ("GET", "/ping"): (health, ""),
    ("GET", "/info"): (info, ""),
    ("GET", "/metrics"): (metrics, ""),
    ("GET", "/docs"): (docs, ""),
    ("GET", "/docs/"): (docs_page, ""),
    ("GET", DESCRIPTION): (description, ""),
    ("GET", "/v1/models"): (models, ""),
    ("POST", "/"): (compatible, "GenerateRequest"),
    ("POST", "/generate"): (generate, "GenerateRequest"),
    ("POST", "/generate_stream"): (generate_stream, "GenerateRequest"),
    ("POST", "/tokenize"): (tokenize, "TokenizeRequest"),
    ("POST", "/v1/chat/completions"): (chat_completions, "ChatRequest"),
    ("POST", "/v1/completions"): (completions, "CompletionRequest"),
    ("POST", "/invocations"): (invocations, ""),
    ("POST", "/vertex"): (vertex, "VertexRequest"),
    ("POST", "/chat_tokenize"): (chat_tokenize, "ChatRequest"),
}


def answer(inference: Inference, request: Request, method: str, path: str) -> Reply:
    """Find the route, check the key, answer, and convert errors into replies."""
    method, key = "GET" if method == "HEAD" else method, inference.api_key
    allowed = [known for known, served in _served(inference) if served == path]
    given = request.headers.get("Authorization") or ""
    if method == "OPTIONS":
        return Reply()
    if method not in allowed:
        shown = {"allow": ",".join(allowed).replace("GET", "GET,HEAD")} if allowed else {}
        return Reply(status=405 if allowed else 404, headers=shown)
    if method == "POST" and path not in _NEWER and key is not None and given.lower() != f"bearer {key}".lower():
        return Reply(status=401)
    handler, struct = _ROUTES[method, path]
    try:
        return handler(inference, _body(request, struct) if struct else request)
    except RejectionError as rejection:
        return reply_text(rejection.text, status=rejection.status)
    except ApiError as error:
        return reply_json(error.body(), status=error.status)


def _served(inference: Inference) -> list[tuple[str, str]]:
    """Return the release's routes."""
    return [route for route in _ROUTES if route[1] not in _NEWER or inference.has("api-key")]


def _body(request: Request, struct: str) -> Body:
    text = request.json_text()
    return bodies.read(bodies.parsed(text), struct, text)
