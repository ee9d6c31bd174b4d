"""The engine's own inference routes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tgi_deploy.sandbox.engine.bodies import Chat, Generate, Tokenize, Vertex
from tgi_deploy.sandbox.engine.chat import chat_request
from tgi_deploy.sandbox.engine.inference import Asked
from tgi_deploy.sandbox.engine.reading import typed
from tgi_deploy.sandbox.engine.replies import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.sandbox.engine.exchange import Exchange
    from tgi_deploy.sandbox.engine.generator import Step, Token
    from tgi_deploy.sandbox.engine.inference import Answer, Inference, Prepared
    from tgi_deploy.sandbox.engine.service import Service
    from tgi_deploy.sandbox.engine.tokenizer import Piece


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
    prefill = _prefill(answer.prepared.pieces) if parameters.decoder_input_details else []
    details = {**_sequence_details(answer), "prefill": prefill, "tokens": [_token(step.token) for step in answer.steps]}
    if parameters.top_n_tokens:
        details["top_tokens"] = [[_token(token) for token in step.top] for step in answer.steps]
    if (parameters.best_of or 1) > 1:
        # The other candidate; the stub server's do not differ.
        text = _shown_text(answer.prepared.asked, answer.text)
        details["best_of_sequences"] = [{"generated_text": text, **details, "prefill": []}]
    return details


def _sequence_details(answer: Answer) -> dict[str, Any]:
    return {
        "finish_reason": answer.finish_reason,
        "generated_tokens": len(answer.steps),
        "seed": answer.prepared.seed,
    }


def _prefill(pieces: tuple[Piece, ...]) -> list[dict[str, Any]]:
    return [
        {"id": piece.id, "text": piece.text, "logprob": None if place == 0 else -1.0 - piece.id % 97 / 50}
        for place, piece in enumerate(pieces)
    ]


def _token(token: Token) -> dict[str, Any]:
    return {"id": token.id, "text": token.text, "logprob": token.logprob, "special": token.special}


def _send_stream(service: Service, exchange: Exchange, asked: Asked) -> None:
    exchange.start_events(service.stream_headers(asked.inputs))
    try:
        _stream(service.inference, exchange, asked)
    except ApiError as error:
        exchange.send_event(error.body())
    exchange.end_events()


def _stream(inference: Inference, exchange: Exchange, asked: Asked) -> None:
    with inference.admitted(asked) as timing:
        prepared = inference.prepare(asked, timing, streaming=True)
        text = ""
        with closing(inference.steps(prepared, timing)) as steps:
            for index, step in enumerate(steps, start=1):
                text += "" if step.token.special else step.token.text
                exchange.send_event(_event(prepared, step, index, text))


def _event(prepared: Prepared, step: Step, index: int, text: str) -> dict[str, Any]:
    parameters, ended = prepared.asked.parameters, step.finish_reason is not None
    event: dict[str, Any] = {"index": index, "token": _token(step.token)}
    if parameters.top_n_tokens:
        event["top_tokens"] = [_token(token) for token in step.top]
    event["generated_text"] = _shown_text(prepared.asked, text) if ended else None
    event["details"] = _stream_details(prepared, step, index) if ended and parameters.details else None
    return event


def _stream_details(prepared: Prepared, step: Step, index: int) -> dict[str, Any]:
    return {
        "finish_reason": step.finish_reason,
        "generated_tokens": index,
        "seed": prepared.seed,
        "input_length": len(prepared.pieces),
    }
