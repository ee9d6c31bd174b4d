"""The engine's own routes: health, information, metrics, inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tgi_deploy.sandbox.engine.bodies import Chat, Generate, Tokenize, Vertex
from tgi_deploy.sandbox.engine.chat import chat_request
from tgi_deploy.sandbox.engine.failures import ApiError
from tgi_deploy.sandbox.engine.inference import Asked
from tgi_deploy.sandbox.engine.reading import typed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from tgi_deploy.sandbox.engine.generator import Piece, Step, Token
    from tgi_deploy.sandbox.engine.inference import Answer, Inference, Prepared
    from tgi_deploy.sandbox.engine.server import Exchange
    from tgi_deploy.sandbox.engine.service import Service

DESCRIPTION: Final = "/api-doc/openapi.json"


def health(service: Service, exchange: Exchange) -> None:
    """Answer the health check: healthy while all shards run; after one died, the router answers until it is stopped."""
    if service.inference.dead.is_set():
        service.inference.complain_of_shard()
        raise ApiError("healthcheck", "unhealthy")
    exchange.send(200)


def metrics(service: Service, exchange: Exchange) -> None:
    exchange.send_text(200, service.inference.metrics.render(), kind="text/plain; charset=utf-8")


def docs(_service: Service, exchange: Exchange) -> None:
    exchange.send(303, headers={"location": "/docs/"})


def docs_page(service: Service, exchange: Exchange) -> None:
    """Answer with a link to the API description in place of the engine's Swagger UI."""
    title = f"<title>Text Generation Inference {service.version}</title>"
    page = f"<!-- HTML for static distribution bundle build -->\n<!DOCTYPE html>{title}<a href={DESCRIPTION}>API</a>"
    exchange.send_text(200, page, kind="text/html")


def info(service: Service, exchange: Exchange) -> None:
    exchange.send_json(200, _info(service))


def _info(service: Service) -> dict[str, Any]:
    inference = service.inference
    arguments, limits, checkpoint = inference.situation.arguments, inference.limits, inference.situation.checkpoint
    # The limit was renamed in the release that added LoRA adapters.
    input_name = "max_input_tokens" if service.has("lora-adapters") else "max_input_length"
    return {
        "model_id": service.model_id,
        "model_sha": None if checkpoint.is_local else checkpoint.commit,
        **_older_fields(service),
        "model_pipeline_tag": None if checkpoint.is_local else "text-generation",
        "max_concurrent_requests": arguments.number("max-concurrent-requests"),
        "max_best_of": inference.bounds.max_best_of,
        "max_stop_sequences": inference.bounds.max_stop_sequences,
        input_name: limits.max_input_tokens,
        "max_total_tokens": limits.max_total_tokens,
        "validation_workers": arguments.number("validation-workers"),
        "max_client_batch_size": arguments.number("max-client-batch-size"),
        "router": "text-generation-router",
        "version": service.version,
        "sha": service.commit,
        "docker_label": service.docker_label,
    }


def _older_fields(service: Service) -> dict[str, Any]:
    """Fields of older releases: the release that added `--api-key` moved the backend out of the router."""
    if service.has("api-key"):
        return {}
    situation = service.inference.situation
    dtype = situation.arguments.text("dtype")
    default = situation.model_class.default_dtype
    return {
        "model_dtype": f"torch.{'float32' if situation.host.on_cpu else dtype or default}",
        "model_device_type": "cpu" if situation.host.on_cpu else "cuda",
        "waiting_served_ratio": situation.arguments.fraction("waiting-served-ratio", 0.3),
        "max_batch_total_tokens": service.inference.limits.max_batch_total_tokens,
        "max_waiting_tokens": situation.arguments.number("max-waiting-tokens"),
    }


def generate(service: Service, exchange: Exchange) -> None:
    _send_whole(service, exchange, _asked("generate", exchange.read(Generate)), as_list=False)


def generate_stream(service: Service, exchange: Exchange) -> None:
    _send_stream(service, exchange, _asked("generate_stream", exchange.read(Generate)))


def compatible(service: Service, exchange: Exchange) -> None:
    """Answer `POST /`: a list with one answer, or a stream."""
    compatible_body(service, exchange, exchange.read(Generate))


def compatible_body(service: Service, exchange: Exchange, body: Generate) -> None:
    """Include the prompt in the answer, unless that was turned off."""
    if body.parameters.return_full_text is None:
        body = replace(body, parameters=replace(body.parameters, return_full_text=True))
    kind = f'default_return_full_text=true compute_type=Extension(ComputeType("{service.compute_type}"))'
    within = f"compat_generate{{{kind}}}"
    if body.stream:
        _send_stream(service, exchange, _asked("generate_stream", body, within))
    else:
        _send_whole(service, exchange, _asked("generate", body, within), as_list=True)


def tokenize(service: Service, exchange: Exchange) -> None:
    pieces = service.inference.tokenizer.encode(exchange.read(Tokenize).inputs)
    exchange.send_json(200, token_list(pieces))


def vertex(service: Service, exchange: Exchange) -> None:
    instances = [_instance(service, instance) for instance in exchange.read(Vertex).instances]
    answers = [service.inference.answer(asked) for asked in instances]
    exchange.send_json(200, {"predictions": [answer.text for answer in answers]})


def _instance(service: Service, instance: Mapping[str, Any]) -> Asked:
    if "messages" not in instance:
        return _asked("vertex_compatibility", typed(instance, Generate, ""))
    chat = chat_request(service, typed(instance, Chat, ""))
    return Asked(route="vertex_compatibility", inputs=chat.prompt, parameters=chat.parameters)


def token_list(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    return [
        {"id": piece.id, "text": piece.text if piece.stop else "", "start": piece.start, "stop": piece.stop}
        for piece in pieces
    ]


def _asked(route: str, body: Generate, within: str = "") -> Asked:
    return Asked(route=route, inputs=body.inputs, parameters=body.parameters, within=within)


def _send_whole(service: Service, exchange: Exchange, asked: Asked, *, as_list: bool) -> None:
    answer = service.inference.answer(asked)
    body: dict[str, Any] = {"generated_text": _shown_text(asked, answer.text)}
    if asked.parameters.details or asked.parameters.decoder_input_details:
        body["details"] = _details(answer)
    exchange.send_json(200, [body] if as_list else body, headers=service.timing_headers(answer))


def _shown_text(asked: Asked, text: str) -> str:
    return asked.inputs + text if asked.parameters.return_full_text else text


def _details(answer: Answer) -> dict[str, Any]:
    parameters = answer.prepared.asked.parameters
    sequence = _sequence_details(answer.finish_reason, len(answer.steps), answer.prepared)
    prefill = _prefill(answer.prepared.pieces) if parameters.decoder_input_details else []
    details = {**sequence, "prefill": prefill, "tokens": [_token(step.token) for step in answer.steps]}
    if parameters.top_n_tokens:
        details["top_tokens"] = [[_token(token) for token in step.top] for step in answer.steps]
    if (parameters.best_of or 1) > 1:
        # The other candidate; the stub server's do not differ.
        text = _shown_text(answer.prepared.asked, answer.text)
        details["best_of_sequences"] = [{"generated_text": text, **details, "prefill": []}]
    return details


def _sequence_details(reason: str | None, produced: int, prepared: Prepared) -> dict[str, Any]:
    return {"finish_reason": reason, "generated_tokens": produced, "seed": prepared.seed}


def _prefill(pieces: tuple[Piece, ...]) -> list[dict[str, Any]]:
    return [
        {"id": piece.id, "text": piece.text, "logprob": None if place == 0 else -1.0 - piece.id % 97 / 50}
        for place, piece in enumerate(pieces)
    ]


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "logprob": token.logprob, "special": token.special}


def _send_stream(service: Service, exchange: Exchange, asked: Asked) -> None:
    headers = service.stream_headers(asked.inputs)
    exchange.send_events(headers, _events(service.inference, asked), failure=ApiError.body)


def _events(inference: Inference, asked: Asked) -> Generator[dict[str, Any]]:
    text = ""
    for prepared, step, index in inference.stream(asked):
        text += "" if step.token.special else step.token.text
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
