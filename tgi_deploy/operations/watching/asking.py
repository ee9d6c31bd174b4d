"""The use case `ask`: sends a prompt to a deployment and streams its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, InputError, NotHealthyError, Problem
from tgi_deploy.operations.launching.traffic import check_key
from tgi_deploy.operations.watching.access import reached
from tgi_deploy.operations.watching.lookup import known
from tgi_deploy.text import one_line
from tgi_deploy.values.container import served_as
from tgi_deploy.values.serving import API_KEY_NOTE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.engines.protocol import ServingEngine
    from tgi_deploy.operations.context import Context
    from tgi_deploy.readiness.proof import EngineClient
    from tgi_deploy.values.probing import HttpReply

_OK: Final = 200
_UNAUTHORIZED: Final = 401
_OVERLOADED: Final = 429
# Status codes for an error of the request, not of the engine.
_REFUSED: Final = range(400, 500)
_ANSWER_TOKENS: Final = 256
_SHOWN_CHARS: Final = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A prompt with its options. `chat` None uses the chat route if the model has a template.

    `max_tokens` None is the planned number. `key_variable` names the variable with the API key; None is the variable
    named at `up`.
    """

    text: str
    chat: bool | None = None
    max_tokens: int | None = None
    key_variable: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer. `tokens_per_s` is measured from the first token on; None if there are too few tokens."""

    text: str
    chat: bool
    tokens: int
    first_token_ms: float | None
    tokens_per_s: float | None


def ask(context: Context, name: str, prompt: Prompt, on_piece: Callable[[str], None]) -> Answer:
    """Send the prompt; `on_piece` receives each piece of the answer as it arrives.

    Raises:
        InputError: `unknown_deployment`, `plaintext_key`, `prompt_rejected`, or a secret that is missing.
        DeployError: `no_endpoint`, `overloaded`.
        NotHealthyError: `engine_unreachable`, `wrong_certificate`, `unauthorized`, `ask_failed`.
    """
    deployment = known(context, name)
    address, machine = reached(context, deployment)
    check_key(deployment)
    service = deployment.service
    promise = service.promise if service else None
    asker = _Asker(
        name=name,
        client=context.client_of(address, prompt.key_variable or machine.notes.get(API_KEY_NOTE)),
        engine=context.engine_of(deployment),
        model_id=served_as(service.model) if service else "",
        max_tokens=prompt.max_tokens or (promise.output_tokens if promise else _ANSWER_TOKENS),
        on_piece=on_piece,
    )
    if prompt.chat is not None:
        return asker.answer(prompt.text, chat=prompt.chat)
    try:
        return asker.answer(prompt.text, chat=True)
    except _NoTemplateError:
        return asker.answer(prompt.text, chat=False)


class _NoTemplateError(InputError):
    """The model has no chat template."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asker:
    name: str
    client: EngineClient
    engine: ServingEngine
    model_id: str
    max_tokens: int
    on_piece: Callable[[str], None]

    def answer(self, text: str, *, chat: bool) -> Answer:
        asked = self.engine.question(self.model_id, text, self.max_tokens, chat=chat, streamed=True)
        pieces: list[str] = []

        def on_event(event: str) -> None:
            pieces.append(self.engine.read_piece(asked, event))
            self.on_piece(pieces[-1])

        reply = self.client.ask(asked, on_event)
        meaning = self.engine.read_reply(asked, reply)
        if isinstance(meaning, Problem):
            raise self._failure(meaning, reply)
        arrivals = [at_ms for at_ms, piece in zip(reply.arrivals_ms, pieces, strict=True) if piece]
        return Answer(
            text=meaning.text,
            chat=chat,
            tokens=meaning.tokens,
            first_token_ms=arrivals[0] if arrivals else None,
            tokens_per_s=_rate(arrivals, meaning.tokens),
        )

    def _failure(self, problem: Problem, reply: HttpReply) -> DeployError:
        status, doing = reply.status, f"asking '{self.name}'"
        text = one_line(problem.message, limit=_SHOWN_CHARS) or "nothing"
        if problem.severity == "warning":
            hint = "leave out --chat: the plain prompt works"
            return _NoTemplateError(problem.code, f"{doing}: {text}", hint=hint)
        if status == _UNAUTHORIZED:
            hint = "name the variable that has the key: --api-key-from-env VARIABLE"
            return NotHealthyError("unauthorized", f"{doing}: the engine rejected the API key (401)", hint=hint)
        if status == _OVERLOADED:
            hint = "try again in a moment; for more concurrent requests, run 'up' with a higher --concurrency"
            return DeployError("overloaded", f"{doing}: it is overloaded (429)", hint=hint)
        if status in _REFUSED:
            hint = "shorten the prompt, or ask for fewer --max-tokens"
            return InputError("prompt_rejected", f"{doing}: it answered {status}: {text}", hint=hint)
        hint = f"'tgi-deploy logs {self.name}' shows the engine's log"
        reason = "the answer was cut off" if status == _OK else f"it answered {status}"
        return NotHealthyError("ask_failed", f"{doing}: {reason}: {text}", hint=hint)


def _rate(arrivals_ms: list[float], tokens: int) -> float | None:
    took_s = (arrivals_ms[-1] - arrivals_ms[0]) / 1000 if arrivals_ms else 0.0
    return round((tokens - 1) / took_s, 1) if took_s > 0 and tokens > 1 else None
