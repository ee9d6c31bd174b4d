"""The routes and their replies: health, information, metrics; inference in the engine's own style and in OpenAI's.

The routes of cloud platforms accept the bodies of both styles. `replies.json` has the shapes of the answers.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine import bodies
from tgi_deploy.sandbox.engine.bodies import ApiError, Body, Members, RejectionError, Reply, Request, shaped
from tgi_deploy.sandbox.engine.generator import Generation, Query, Step, Token
from tgi_deploy.sandbox.engine.logs import TIMES
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from tgi_deploy.sandbox.engine.inference import Inference

DESCRIPTION: Final = "/api-doc/openapi.json"
# Routes that exist since the launcher has `--api-key`, and don't need the key.
_NEWER: Final = frozenset({"/v1/models", "/chat_tokenize"})
# The route that answers a SageMaker request, by a member of its body.
_SAGEMAKER: Final = {"messages": "/v1/chat/completions", "prompt": "/v1/completions", "inputs": "/"}


class Api:
    """The routes of one release. Handlers are the methods without an underscore."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self.routes = [route for route in _ROUTES if route[1] not in _NEWER or inference.has("api-key")]

    def answer(self, request: Request, method: str, path: str) -> Reply:
        """Find the route, check the key, answer, and convert errors into replies."""
        method, key = "GET" if method == "HEAD" else method, self.inference.api_key
        allowed = [known for known, served in self.routes if served == path]
        given = request.headers.get("Authorization") or ""
        if method == "OPTIONS":
            return Reply()
        if method not in allowed:
            shown = {"allow": ",".join(allowed).replace("GET", "GET,HEAD")} if allowed else {}
            return Reply(status=405 if allowed else 404, headers=shown)
        if method == "POST" and path not in _NEWER and key is not None and given.lower() != f"bearer {key}".lower():
            return Reply(status=401)
        try:
            return self._handled(request, *_ROUTES[method, path])
        except RejectionError as error:
            return error.reply

    def _handled(self, request: Request, handler: Callable[[Api, Any], Reply], struct: str) -> Reply:
        if not struct:
            return handler(self, request)
        text = request.json_text()
        return handler(self, bodies.read(bodies.parsed(text), struct, text))

    def health(self, _request: Request) -> Reply:
        """Answer the health check: healthy while all shards run. The router reports a dead one until stopped."""
        if self.inference.dead.is_set():
            self.inference.log_dead_shard()
            raise ApiError("healthcheck", "unhealthy")
        return Reply()

    def metrics(self, _request: Request) -> Reply:
        return bodies.reply_text(self.inference.metrics.render())

    def docs(self, _request: Request) -> Reply:
        return Reply(status=303, headers={"location": "/docs/"})

    def docs_page(self, _request: Request) -> Reply:
        """Answer with a link to the API description in place of the engine's Swagger UI."""
        head = "<!-- HTML for static distribution bundle build -->\n<!DOCTYPE html>"
        title = f"<title>Text Generation Inference {self.inference.about['version']}</title>"
        return bodies.reply_text(f"{head}{title}<a href={DESCRIPTION}>API</a>", "text/html")

    def description(self, _request: Request) -> Reply:
        """Return the release's routes as an OpenAPI document, without bodies."""
        paths: dict[str, Members] = {}
        for method, path in self.routes:
            paths.setdefault(path, {})[method.lower()] = {"responses": {"200": {"description": "the engine's"}}}
        return bodies.reply_json(shaped("description", {**self.inference.about, "paths": paths}))

    def info(self, _request: Request) -> Reply:
        situation, arguments = self.inference.situation, self.inference.situation.arguments
        on_cpu, checkpoint = situation.host.on_cpu, situation.checkpoint
        dtype = "float32" if on_cpu else arguments.get("dtype", situation.model_class.default_dtype)
        values = {
            **{name.replace("-", "_"): value for name, value in arguments.values.items()},
            **self.inference.about,
            **as_dict(situation.limits),
            "model_sha": None if checkpoint.is_local else checkpoint.commit,
            "model_pipeline_tag": None if checkpoint.is_local else "text-generation",
            "model_dtype": f"torch.{dtype}",
            "model_device_type": "cpu" if on_cpu else "cuda",
        }
        shown = shaped("info", values)
        if not self.inference.has("api-key"):  # the release that added it moved the backend out of the router
            shown |= shaped("older_info", values)
        if not self.inference.has("lora-adapters"):  # the release that added them renamed the limit
            shown["max_input_length"] = shown.pop("max_input_tokens")
        return bodies.reply_json(shown)

    def models(self, _request: Request) -> Reply:
        return bodies.reply_json(shaped("models", self.inference.about))

    def tokenize(self, body: Body) -> Reply:
        return bodies.reply_json(token_list(self.inference.tokenizer.encode(body.inputs)))

    def chat_tokenize(self, body: Body) -> Reply:
        prompt = self._prompt(body)
        pieces = token_list(self.inference.tokenizer.encode(prompt))
        return bodies.reply_json({"tokenize_response": pieces, "templated_text": prompt})

    def invocations(self, request: Request) -> Reply:
        """Answer SageMaker's route, which accepts any of the three bodies."""
        value = bodies.parsed(request.json_text())
        for member, path in _SAGEMAKER.items():
            if isinstance(value, dict) and member in value:
                return self._handled(request, *_ROUTES["POST", path])
        raise bodies.undeserializable("data did not match any variant of untagged enum SagemakerRequest")

    def vertex(self, body: Body) -> Reply:
        """Answer each instance, which is a chat or a generate request."""
        route = "vertex_compatibility"
        queries = [
            self._chat_query(bodies.read(instance, "ChatRequest"), route)[0]
            if "messages" in instance
            else _query(bodies.read(instance, "GenerateRequest"), route)
            for instance in body.instances
        ]
        return bodies.reply_json({"predictions": [self.inference.answer(one).text for one in queries]})

    def _answered(
        self, queries: list[Query], whole: Callable[[list[Generation]], object], events: Generator[Members] | None
    ) -> Reply:
        """Return a stream of `events`, or a whole answer if None. Errors in streams have the style of the route."""
        first = queries[0]
        headers: Members = {"compute_type": self.inference.compute_type, "characters": len(first.inputs)}
        if events is not None:
            stream = _data(events, openai=first.route.endswith("completions"))
            return Reply(headers=shaped("headers", {**headers, "buffering": "no"}), events=stream)
        answers = [self.inference.answer(query) for query in queries]
        times = answers[-1].parts_s()
        headers |= {name: round(seconds * 1000) for name, seconds in zip(TIMES, times, strict=True)}
        headers |= {"prompt_tokens": len(answers[-1].pieces), "generated_tokens": len(answers[-1].steps)}
        if first.route != "completions":
            headers["compute_time"] = times[0]
        return bodies.reply_json(whole(answers), shaped("headers", headers))

    def generate(self, body: Body) -> Reply:
        return self._native(body, stream=False)

    def generate_stream(self, body: Body) -> Reply:
        return self._native(body, stream=True)

    def compatible(self, body: Body) -> Reply:
        """Answer `POST /`: a list with one answer, or a stream, with the prompt unless the request turns that off."""
        if body.parameters.return_full_text is None:
            body.parameters.return_full_text = True
        kind = f'default_return_full_text=true compute_type=Extension(ComputeType("{self.inference.compute_type}"))'
        return self._native(body, f"compat_generate{{{kind}}}", stream=body.stream)

    def _native(self, body: Body, within: str = "", *, stream: bool) -> Reply:
        query = _query(body, "generate_stream" if stream else "generate", within)

        def whole(answers: list[Generation]) -> object:
            return [*map(_generated, answers)] if within else _generated(answers[0])

        return self._answered([query], whole, self._events(query) if stream else None)

    def _events(self, query: Query) -> Generator[Members]:
        parameters = query.parameters
        for generation, step in self.inference.stream(query):
            values = {"index": len(generation.steps), "token": as_dict(step.token)}
            values |= {"generated_text": None, "details": None}
            if parameters.top_n_tokens:
                values["top_tokens"] = [*map(as_dict, step.top)]
            if step.finish_reason is not None:
                values["generated_text"] = generation.shown_text
                if parameters.details:
                    values["details"] = _details(generation, input_length=len(generation.pieces))
            yield shaped("event", values)

    def _chat_query(self, body: Body, route: str) -> tuple[Query, Members | None]:
        """Return the request with its template applied, and the function that must be called, if any."""
        if body.tools and body.response_format is not None:
            raise ApiError("tool_error", "Tool error: Grammar and tools are mutually exclusive")
        tool, grammar = _required_tool(body), body.response_format and vars(body.response_format)
        if tool is not None:  # the router's grammar has properties even if the tool has none
            grammar = {"type": "json", "value": {"properties": {}, **_member(tool, "parameters")}}
        parameters = _sampling(body, top_n_tokens=body.top_logprobs if body.logprobs else None, grammar=grammar)
        return Query(route=route, inputs=self._prompt(body), parameters=parameters), tool

    def _prompt(self, body: Body) -> str:
        if not self.inference.template:
            raise ApiError("template_error", "template not found")
        return "".join([*map(_turn, body.messages), "<|assistant|>\n"])

    def chat_completions(self, body: Body) -> Reply:
        query, tool = self._chat_query(body, "chat_completions")

        def choice(role: str, text: str, steps: Iterable[Step], reason: str | None) -> Members:
            message: Members = {"role": "assistant", "content": text}
            if tool is not None:
                index = {"index": 0} if role == "delta" else {}
                message = shaped("tool_call", {**index, "name": tool.get("name"), "arguments": text})
            return shaped("choice", {
                "index": 0, role: message, "logprobs": _logprobs(steps) if body.logprobs else None,
                "finish_reason": reason,
            })  # fmt: skip

        def whole(answers: list[Generation]) -> Members:
            choices = [choice("message", one.text, one.steps, _finish(one.finish_reason)) for one in answers]
            return self._completion("chat.completion", choices, usage=_usage(answers))

        def chunks() -> Generator[Members]:
            chunk = partial(self._completion, "chat.completion.chunk")
            for generation, step in self.inference.stream(query):
                answer, reason = generation, step.finish_reason and _finish(step.finish_reason)
                reason = "tool_calls" if reason and tool is not None else reason
                yield chunk([choice("delta", step.shown, (step,), reason)], usage=None)
            if body.stream_options is not None and body.stream_options.include_usage is not False:
                yield chunk([], usage=_usage([answer]))

        return self._answered([query], whole, chunks() if body.stream else None)

    def _completion(self, kind: str, choices: list[Members], **usage: object) -> Members:
        values = {"object": kind, "created": int(time.time()), "choices": choices, **usage}
        return shaped("completion", {**values, **self.inference.about})

    def completions(self, body: Body) -> Reply:
        if body.suffix is not None:
            problem = "Suffix is not supported and can be achieved by preprocessing the prompt."
            raise ApiError("suffix not supported", problem)
        most = self.inference.situation.arguments.get("max-client-batch-size", 4)
        if len(body.prompt) > most:
            raise ApiError("batch size exceeded", f"Number of prompts exceeds the maximum allowed batch size of {most}")
        parameters = _sampling(body, repetition_penalty=body.repetition_penalty)
        queries = [Query(route="completions", inputs=prompt, parameters=parameters) for prompt in body.prompt]

        def choice(place: int, text: str, reason: str) -> Members:
            return shaped("choice", {"index": place, "text": text, "logprobs": None, "finish_reason": _finish(reason)})

        def whole(answers: list[Generation]) -> Members:
            choices = [choice(place, one.text, one.finish_reason) for place, one in enumerate(answers)]
            return self._completion("text_completion", choices, usage=_usage(answers))

        def chunks() -> Generator[Members]:
            """Yield chunks; a prompt's last one has the form of a whole answer with usage, the others have no usage."""
            for place, query in enumerate(queries):
                for generation, step in self.inference.stream(query):
                    usage = {"usage": _usage([generation])} if step.finish_reason else {}
                    choices = [choice(place, step.shown, step.finish_reason or "")]
                    yield self._completion("text_completion", choices, **usage)

        return self._answered(queries, whole, chunks() if body.stream else None)


# The handler, and the struct of its body, by method and path; without a struct it gets the request.
_ROUTES: Final[Mapping[tuple[str, str], tuple[Callable[[Api, Any], Reply], str]]] = {
    ("GET", "/"): (Api.health, ""),
    ("GET", "/health"): (Api.health, ""),
    ("GET", "/ping"): (Api.health, ""),
    ("GET", "/info"): (Api.info, ""),
    ("GET", "/metrics"): (Api.metrics, ""),
    ("GET", "/docs"): (Api.docs, ""),
    ("GET", "/docs/"): (Api.docs_page, ""),
    ("GET", DESCRIPTION): (Api.description, ""),
    ("GET", "/v1/models"): (Api.models, ""),
    ("POST", "/"): (Api.compatible, "GenerateRequest"),
    ("POST", "/generate"): (Api.generate, "GenerateRequest"),
    ("POST", "/generate_stream"): (Api.generate_stream, "GenerateRequest"),
    ("POST", "/tokenize"): (Api.tokenize, "TokenizeRequest"),
    ("POST", "/v1/chat/completions"): (Api.chat_completions, "ChatRequest"),
    ("POST", "/v1/completions"): (Api.completions, "CompletionRequest"),
    ("POST", "/invocations"): (Api.invocations, ""),
    ("POST", "/vertex"): (Api.vertex, "VertexRequest"),
    ("POST", "/chat_tokenize"): (Api.chat_tokenize, "ChatRequest"),
}


def _data(events: Iterable[Members], *, openai: bool) -> Generator[str]:
    try:
        yield from map(bodies.compact, events)
    except ApiError as error:
        as_openai = {"error": {"message": error.body["error"], "http_status_code": error.reply.status}}
        yield bodies.compact(as_openai if openai else error.body)
    if openai:
        yield "[DONE]"


def token_list(pieces: Iterable[Token]) -> list[Members]:
    found, stop = [], 0
    for piece in pieces:
        start, shown = stop, "" if piece.special else piece.text
        stop += len(shown)
        found.append({"id": piece.id, "text": shown, "start": start, "stop": stop})
    return found


def _query(body: Body, route: str, within: str = "") -> Query:
    return Query(route=route, inputs=body.inputs, parameters=body.parameters, within=within)


def _generated(answer: Generation) -> Members:
    """Return a whole answer in the engine's own style."""
    parameters, steps = answer.query.parameters, answer.steps
    text = {"generated_text": answer.shown_text}
    if not (parameters.details or parameters.decoder_input_details):
        return text
    values: Members = {
        "tokens": [as_dict(step.token) for step in steps],
        "prefill": [
            {"id": piece.id, "text": piece.text, "logprob": None if place == 0 else -1.0 - piece.id % 97 / 50}
            for place, piece in enumerate(answer.pieces if parameters.decoder_input_details else ())
        ],
    }
    if parameters.top_n_tokens:
        values["top_tokens"] = [[*map(as_dict, step.top)] for step in steps]
    if (parameters.best_of or 1) > 1:  # the other candidate; the stub server's do not differ
        values["best_of_sequences"] = [{**text, **_details(answer, **{**values, "prefill": []})}]
    return {**text, "details": _details(answer, **values)}


def _details(answer: Generation, **values: object) -> Members:
    about = {"finish_reason": answer.finish_reason, "generated_tokens": len(answer.steps), "seed": answer.seed}
    return shaped("details", about | values)


def _sampling(body: Body, **own: object) -> Body:
    """Return the parameters that the router derives from an OpenAI-style body, where temperature 0 means greedy."""
    same = {name: getattr(body, name) for name in ("frequency_penalty", "top_p", "seed")}
    return bodies.parameters(
        **same, **own, temperature=body.temperature or None, do_sample=bool(body.temperature),
        max_new_tokens=body.max_tokens, stop=body.stop or [],
    )  # fmt: skip


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


def _logprobs(steps: Iterable[Step]) -> Members:
    def of(token: Token) -> Members:
        return {"token": token.text, "logprob": token.logprob}

    return {"content": [{**of(step.token), "top_logprobs": [*map(of, step.top)]} for step in steps]}


def _finish(reason: str) -> str:
    return "stop" if reason == "eos_token" else reason


def _usage(answers: Iterable[Generation]) -> dict[str, int]:
    prompt, completion = map(sum, zip(*((len(one.pieces), len(one.steps)) for one in answers), strict=True))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
