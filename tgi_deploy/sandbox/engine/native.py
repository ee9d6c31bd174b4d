"""The engine's own routes: health, information, metrics, inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tgi_deploy.sandbox.engine.bodies import Generate, Tokenize
from tgi_deploy.sandbox.engine.failures import ApiError
from tgi_deploy.sandbox.engine.inference import Asked

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from tgi_deploy.sandbox.engine.generator import Piece, Step, Token
    from tgi_deploy.sandbox.engine.inference import Answer, Inference, Prepared
    from tgi_deploy.sandbox.engine.server import Exchange

DESCRIPTION: Final = "/api-doc/openapi.json"


def health(inference: Inference, exchange: Exchange) -> None:
    """Answer the health check: healthy while all shards run; after one died, the router answers until it is stopped."""
    if inference.dead.is_set():
        inference.complain_of_shard()
        raise ApiError("healthcheck", "unhealthy")
    exchange.send(200)


def metrics(inference: Inference, exchange: Exchange) -> None:
    exchange.send_text(200, inference.metrics.render(), kind="text/plain; charset=utf-8")


def docs(_inference: Inference, exchange: Exchange) -> None:
    exchange.send(303, headers={"location": "/docs/"})


def docs_page(inference: Inference, exchange: Exchange) -> None:
    """Answer with a link to the API description in place of the engine's Swagger UI."""
    title = f"<title>Text Generation Inference {inference.version}</title>"
    page = f"<!-- HTML for static distribution bundle build -->\n<!DOCTYPE html>{title}<a href={DESCRIPTION}>API</a>"
    exchange.send_text(200, page, kind="text/html")


def info(inference: Inference, exchange: Exchange) -> None:
    situation = inference.situation
    arguments, limits, checkpoint = situation.arguments, situation.limits, situation.checkpoint
    # The limit was renamed in the release that added LoRA adapters.
    input_name = "max_input_tokens" if inference.has("lora-adapters") else "max_input_length"
    known = {
        "model_id": inference.model_id,
        "model_sha": None if checkpoint.is_local else checkpoint.commit,
        **_older_fields(inference),
        "model_pipeline_tag": None if checkpoint.is_local else "text-generation",
        "max_concurrent_requests": arguments.number("max-concurrent-requests"),
        "max_best_of": arguments.number("max-best-of"),
        "max_stop_sequences": arguments.number("max-stop-sequences"),
        input_name: limits.max_input_tokens,
        "max_total_tokens": limits.max_total_tokens,
        "validation_workers": arguments.number("validation-workers"),
        "max_client_batch_size": arguments.number("max-client-batch-size"),
        "router": "text-generation-router",
        "version": inference.version,
        "sha": inference.commit,
        "docker_label": inference.docker_label,
    }
    exchange.send_json(200, known)


def _older_fields(inference: Inference) -> dict[str, Any]:
    """Fields of older releases: the release that added `--api-key` moved the backend out of the router."""
    if inference.has("api-key"):
        return {}
    situation = inference.situation
    dtype = situation.arguments.text("dtype") or situation.model_class.default_dtype
    return {
        "model_dtype": f"torch.{'float32' if situation.host.on_cpu else dtype}",
        "model_device_type": "cpu" if situation.host.on_cpu else "cuda",
        "waiting_served_ratio": situation.arguments.fraction("waiting-served-ratio", 0.3),
        "max_batch_total_tokens": situation.limits.max_batch_total_tokens,
        "max_waiting_tokens": situation.arguments.number("max-waiting-tokens"),
    }


def generate(inference: Inference, exchange: Exchange) -> None:
    _send_whole(inference, exchange, asked_of(exchange.read(Generate), "generate"), as_list=False)


def generate_stream(inference: Inference, exchange: Exchange) -> None:
    _send_stream(inference, exchange, asked_of(exchange.read(Generate), "generate_stream"))


def compatible(inference: Inference, exchange: Exchange) -> None:
    """Answer `POST /`: a list with one answer, or a stream."""
    compatible_body(inference, exchange, exchange.read(Generate))


def compatible_body(inference: Inference, exchange: Exchange, body: Generate) -> None:
    """Include the prompt in the answer, unless that was turned off."""
    if body.parameters.return_full_text is None:
        body = replace(body, parameters=replace(body.parameters, return_full_text=True))
    kind = f'default_return_full_text=true compute_type=Extension(ComputeType("{inference.compute_type}"))'
    within = f"compat_generate{{{kind}}}"
    if body.stream:
        _send_stream(inference, exchange, asked_of(body, "generate_stream", within))
    else:
        _send_whole(inference, exchange, asked_of(body, "generate", within), as_list=True)


def tokenize(inference: Inference, exchange: Exchange) -> None:
    exchange.send_json(200, token_list(inference.tokenizer.encode(exchange.read(Tokenize).inputs)))


def token_list(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    return [
        {"id": piece.id, "text": piece.text if piece.stop else "", "start": piece.start, "stop": piece.stop}
        for piece in pieces
    ]


def asked_of(body: Generate, route: str, within: str = "") -> Asked:
    return Asked(route=route, inputs=body.inputs, parameters=body.parameters, within=within)


def _send_whole(inference: Inference, exchange: Exchange, asked: Asked, *, as_list: bool) -> None:
    answer = inference.answer(asked)
    body: dict[str, Any] = {"generated_text": _shown_text(asked, answer.text)}
    if asked.parameters.details or asked.parameters.decoder_input_details:
        body["details"] = _details(answer)
    exchange.send_json(200, [body] if as_list else body, headers=inference.timing_headers(answer))


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


def _send_stream(inference: Inference, exchange: Exchange, asked: Asked) -> None:
    headers = inference.stream_headers(asked.inputs)
    exchange.send_events(headers, _events(inference, asked), failure=ApiError.body)


def _events(inference: Inference, asked: Asked) -> Generator[dict[str, Any]]:
    text = ""
    for prepared, step, index in inference.stream(asked):
        text += step.shown
        yield _event(prepared, step, index, text)


def _event(prepared: Prepared, step: Step, index: int, text: str) -> dict[str, Any]:
    parameters, ended = prepared.asked.parameters, step.finish_reason is not None
    event: dict[str, Any] = {"index": index, "token": _token(step.token)}
    if parameters.top_n_tokens:
        event["top_tokens"] = [_token(token) for token in step.top]
    event["generated_text"] = _shown_text(prepared.asked, text) if ended else None
    event["details"] = None
    if ended and parameters.details:
        sequence = _sequence_details(step.finish_reason, index, prepared)
        event["details"] = {**sequence, "input_length": len(prepared.pieces)}
    return event
