"""The engine's own inference routes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from tgi_deploy.sandbox.engine.parameters import Parameters, parse_parameters
from tgi_deploy.sandbox.engine.replies import ApiError, undeserializable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.sandbox.engine.exchange import Exchange
    from tgi_deploy.sandbox.engine.generator import Step, Token
    from tgi_deploy.sandbox.engine.inference import Answer, Inference, Prepared
    from tgi_deploy.sandbox.engine.service import Service
    from tgi_deploy.sandbox.engine.tokenizer import Piece


def generate(service: Service, exchange: Exchange) -> None:
    inputs, parameters = _request(exchange.json_object())
    _send_whole(service, exchange, inputs, parameters, as_list=False)


def generate_stream(service: Service, exchange: Exchange) -> None:
    inputs, parameters = _request(exchange.json_object())
    _send_stream(service, exchange, inputs, parameters)


def compatible(service: Service, exchange: Exchange) -> None:
    """`POST /`: a list of one answer, or a stream."""
    compatible_body(service, exchange, exchange.json_object())


def compatible_body(service: Service, exchange: Exchange, body: Mapping[str, Any]) -> None:
    inputs, parameters = _request(body)
    if body.get("stream") is True:
        _send_stream(service, exchange, inputs, parameters)
    else:
        _send_whole(service, exchange, inputs, parameters, as_list=True)


def tokenize(service: Service, exchange: Exchange) -> None:
    inputs, _ = _request(exchange.json_object())
    if not inputs:
        raise ApiError("validation", "`inputs` cannot be empty")
    exchange.send_json(200, token_list(service.inference.tokenizer.encode(inputs)))


def vertex(service: Service, exchange: Exchange) -> None:
    instances = exchange.json_object().get("instances")
    if not isinstance(instances, list):
        raise undeserializable("missing field `instances`")
    answers = [service.inference.answer(*_request(instance)) for instance in instances]
    exchange.send_json(200, {"predictions": [answer.text for answer in answers]})


def token_list(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    return [{"id": piece.id, "text": piece.text, "start": piece.start, "stop": piece.stop} for piece in pieces]


def _request(body: Mapping[str, Any]) -> tuple[str, Parameters]:
    if not isinstance(body, dict) or "inputs" not in body:
        raise undeserializable("missing field `inputs`")
    inputs, parameters = body["inputs"], body.get("parameters")
    if not isinstance(inputs, str):
        raise undeserializable("inputs: invalid type, expected a string")
    if parameters is not None and not isinstance(parameters, dict):
        raise undeserializable("parameters: invalid type, expected struct GenerateParameters")
    return inputs, parse_parameters(parameters)


def _send_whole(service: Service, exchange: Exchange, inputs: str, parameters: Parameters, *, as_list: bool) -> None:
    answer = service.inference.answer(inputs, parameters)
    body: dict[str, Any] = {"generated_text": _shown_text(answer.prepared, answer.text)}
    if parameters.details or parameters.decoder_input_details:
        body["details"] = _details(answer)
    exchange.send_json(200, [body] if as_list else body, headers=service.timing_headers(answer))


def _shown_text(prepared: Prepared, text: str) -> str:
    return prepared.inputs + text if prepared.parameters.return_full_text else text


def _details(answer: Answer) -> dict[str, Any]:
    parameters = answer.prepared.parameters
    details: dict[str, Any] = {
        "finish_reason": answer.finish_reason,
        "generated_tokens": len(answer.steps),
        "seed": parameters.seed,
        "prefill": _prefill(answer.prepared.pieces) if parameters.decoder_input_details else [],
        "tokens": [_token(step.token) for step in answer.steps],
    }
    if parameters.top_n_tokens:
        details["top_tokens"] = [[_token(token) for token in step.top] for step in answer.steps]
    if (parameters.best_of or 1) > 1:
        details["best_of_sequences"] = [_sequence(answer)]
    return details


def _sequence(answer: Answer) -> dict[str, Any]:
    """The other candidate of `best_of`; the stand-in's candidates do not differ."""
    return {
        "generated_text": _shown_text(answer.prepared, answer.text),
        "finish_reason": answer.finish_reason,
        "generated_tokens": len(answer.steps),
        "prefill": [],
        "seed": answer.prepared.parameters.seed,
        "tokens": [_token(step.token) for step in answer.steps],
    }


def _prefill(pieces: tuple[Piece, ...]) -> list[dict[str, Any]]:
    return [
        {"id": piece.id, "text": piece.text, "logprob": None if place == 0 else -1.0 - piece.id % 97 / 50}
        for place, piece in enumerate(pieces)
    ]


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "logprob": token.logprob, "special": token.special}


def _send_stream(service: Service, exchange: Exchange, inputs: str, parameters: Parameters) -> None:
    exchange.start_events(service.compute_headers())
    try:
        _stream(service.inference, exchange, inputs, parameters)
    except ApiError as error:
        exchange.send_event(error.body())
    exchange.end_events()


def _stream(inference: Inference, exchange: Exchange, inputs: str, parameters: Parameters) -> None:
    with inference.admitted() as timing:
        prepared = inference.prepare(inputs, parameters, timing, streaming=True)
        text = ""
        with closing(inference.steps(prepared, timing)) as steps:
            for index, step in enumerate(steps, start=1):
                text += "" if step.token.special else step.token.text
                exchange.send_event(_event(prepared, step, index, text))


def _event(prepared: Prepared, step: Step, index: int, text: str) -> dict[str, Any]:
    event: dict[str, Any] = {"index": index, "token": _token(step.token)}
    if prepared.parameters.top_n_tokens:
        event["top_tokens"] = [_token(token) for token in step.top]
    event["generated_text"] = None if step.finish_reason is None else _shown_text(prepared, text)
    wanted = step.finish_reason is not None and prepared.parameters.details
    event["details"] = _stream_details(prepared, step, index) if wanted else None
    return event


def _stream_details(prepared: Prepared, step: Step, index: int) -> dict[str, Any]:
    return {
        "finish_reason": step.finish_reason,
        "generated_tokens": index,
        "seed": prepared.parameters.seed,
        "input_length": len(prepared.pieces),
    }
