"""The engine's own routes: health, information, metrics, inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tgi_deploy.sandbox.engine.bodies import Generate, Tokenize
from tgi_deploy.sandbox.engine.inference import Asked
from tgi_deploy.sandbox.engine.messages import ApiError, Reply, Stream, reply_json, reply_text

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from tgi_deploy.sandbox.engine.generator import Token
    from tgi_deploy.sandbox.engine.inference import Answer, Inference, Prepared
    from tgi_deploy.sandbox.engine.messages import Request

DESCRIPTION: Final = "/api-doc/openapi.json"


def health(inference: Inference, _request: Request) -> Reply:
    """Answer the health check: healthy while all shards run; after one died, the router answers until it is stopped."""
    if inference.dead.is_set():
        inference.complain_of_shard()
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


def tokenize(inference: Inference, request: Request) -> Reply:
    return reply_json(token_list(inference.tokenizer.encode(request.read(Tokenize).inputs)))


def token_list(pieces: Iterable[Token]) -> list[dict[str, Any]]:
    found, stop = [], 0
    for piece in pieces:
        start, shown = stop, "" if piece.special else piece.text
        stop += len(shown)
        found.append({"id": piece.id, "text": shown, "start": start, "stop": stop})
    return found


def generate(inference: Inference, request: Request) -> Reply:
    return _whole(inference, asked_of(request.read(Generate), "generate"), as_list=False)


def generate_stream(inference: Inference, request: Request) -> Stream:
    return _stream(inference, asked_of(request.read(Generate), "generate_stream"))


def compatible(inference: Inference, request: Request) -> Reply | Stream:
    """Answer `POST /`: a list with one answer, or a stream."""
    return compatible_body(inference, request.read(Generate))


def compatible_body(inference: Inference, body: Generate) -> Reply | Stream:
    """Include the prompt in the answer, unless that was turned off."""
    if body.parameters.return_full_text is None:
        body = replace(body, parameters=replace(body.parameters, return_full_text=True))
    kind = f'default_return_full_text=true compute_type=Extension(ComputeType("{inference.compute_type}"))'
    within = f"compat_generate{{{kind}}}"
    if body.stream:
        return _stream(inference, asked_of(body, "generate_stream", within))
    return _whole(inference, asked_of(body, "generate", within), as_list=True)


def asked_of(body: Generate, route: str, within: str = "") -> Asked:
    return Asked(route=route, inputs=body.inputs, parameters=body.parameters, within=within)


def _whole(inference: Inference, asked: Asked, *, as_list: bool) -> Reply:
    answer = inference.answer(asked)
    body: dict[str, Any] = {"generated_text": _shown_text(asked, answer.text)}
    if asked.parameters.details or asked.parameters.decoder_input_details:
        body["details"] = _details(answer)
    return reply_json([body] if as_list else body, headers=inference.timing_headers(answer))


def _shown_text(asked: Asked, text: str) -> str:
    return asked.inputs + text if asked.parameters.return_full_text else text


def _details(answer: Answer) -> dict[str, Any]:
    prepared, parameters = answer.prepared, answer.prepared.asked.parameters
    prefill = [
        {"id": piece.id, "text": piece.text, "logprob": None if place == 0 else -1.0 - piece.id % 97 / 50}
        for place, piece in enumerate(prepared.pieces if parameters.decoder_input_details else ())
    ]
    details = {
        **_sequence_details(answer.finish_reason, len(answer.steps), prepared),
        "prefill": prefill,
        "tokens": [_token(step.token) for step in answer.steps],
    }
    if parameters.top_n_tokens:
        details["top_tokens"] = [[_token(token) for token in step.top] for step in answer.steps]
    if (parameters.best_of or 1) > 1:
        # The other candidate; the stub server's do not differ.
        text = _shown_text(prepared.asked, answer.text)
        details["best_of_sequences"] = [{"generated_text": text, **details, "prefill": []}]
    return details


def _sequence_details(reason: str | None, produced: int, prepared: Prepared) -> dict[str, Any]:
    return {"finish_reason": reason, "generated_tokens": produced, "seed": prepared.seed}


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "logprob": token.logprob, "special": token.special}


def _stream(inference: Inference, asked: Asked) -> Stream:
    headers = inference.stream_headers(asked.inputs)
    return Stream(headers=headers, events=_events(inference, asked), failure=ApiError.body)


def _events(inference: Inference, asked: Asked) -> Generator[dict[str, Any]]:
    parameters, text = asked.parameters, ""
    for prepared, step, index in inference.stream(asked):
        text += step.shown
        ended = step.finish_reason is not None
        event: dict[str, Any] = {"index": index, "token": _token(step.token)}
        if parameters.top_n_tokens:
            event["top_tokens"] = [_token(token) for token in step.top]
        event["generated_text"] = _shown_text(asked, text) if ended else None
        event["details"] = None
        if ended and parameters.details:
            sequence = _sequence_details(step.finish_reason, index, prepared)
            event["details"] = {**sequence, "input_length": len(prepared.pieces)}
        yield event
