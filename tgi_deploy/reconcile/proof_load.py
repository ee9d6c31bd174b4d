"""Proves the worst request that the plan promised: the longest one, all at once, and the same answer twice.

`reconcile.proof` asks whether the right thing answers at all; this asks whether it can bear what it was chosen for.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import NotHealthyError
from tgi_deploy.futures import errors_into
from tgi_deploy.reconcile.proof import ProofStep, ProofWarning, Streamed, plain_answer, timed, whole_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.reconcile.proof import EngineClient

_Asked = Future[Streamed]
_WORDS: Final = ("cloud", "river", "stone", "north", "paper", "seven", "green", "music", "table", "winter", "field")
_REPEATED_TOKENS: Final = 32
_SHORT_PROMPT_TOKENS: Final = 24
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """What the plan promised, in tokens. `kv_capacity_tokens` is the room it foresaw, `required_kv_tokens` the need."""

    input_tokens: int
    output_tokens: int
    concurrency: int
    max_input_tokens: int
    max_total_tokens: int
    kv_capacity_tokens: int
    required_kv_tokens: int

    @property
    def longest_input_tokens(self) -> int:
        """The longest prompt that leaves room for the promised answer."""
        return max(1, min(self.max_input_tokens, self.max_total_tokens - self.output_tokens))


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What the engine really does, beside the plan's figures. Times are medians over the simultaneous requests."""

    first_token_ms: float | None = None
    output_tokens_per_s: float | None = None
    requests: int = 0
    kv_capacity_tokens: int | None = None
    kv_capacity_planned_tokens: int | None = None

    @property
    def kv_difference(self) -> float | None:
        """How far the plan was off: 0.05 means that the engine has 5 % more room than was foreseen."""
        if self.kv_capacity_tokens is None or not self.kv_capacity_planned_tokens:
            return None
        return self.kv_capacity_tokens / self.kv_capacity_planned_tokens - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadReport:
    """Every step passed."""

    steps: tuple[ProofStep, ...]
    measured: Measured
    warnings: tuple[ProofWarning, ...] = ()


def prove_promise(
    client: EngineClient, promise: Promise, *, kv_capacity_tokens: int | None, clock: Clock
) -> LoadReport:
    """Ask for the worst that was promised. `kv_capacity_tokens` is what the engine's log says, None if it doesn't.

    Raises:
        NotHealthyError: `kv_capacity_short`, `longest_failed`, `together_failed`, `repeat_failed`, `unauthorized` or
            `engine_unreachable`.
    """
    _check_room(promise, kv_capacity_tokens)
    _, longest_ms = timed(clock, lambda: _longest(client, promise))
    answers, together_ms = timed(clock, lambda: _together(client, promise))
    same, repeat_ms = timed(clock, lambda: _twice(client))
    took = {"longest": longest_ms, "together": together_ms, "repeat": repeat_ms}
    return LoadReport(
        steps=tuple(ProofStep(name=name, took_ms=took_ms) for name, took_ms in took.items()),
        measured=_measured(answers, together_ms / _MILLISECONDS, promise, kv_capacity_tokens),
        warnings=() if same else (_DIFFERS,),
    )


_DIFFERS: Final = ProofWarning(
    code="not_repeatable",
    message="the same greedy request was answered in two ways: the engine's kernels are not deterministic here",
)


def _check_room(promise: Promise, kv_capacity_tokens: int | None) -> None:
    if kv_capacity_tokens is None or kv_capacity_tokens >= promise.required_kv_tokens:
        return
    raise NotHealthyError(
        "kv_capacity_short",
        f"checking the engine's memory: it has room for {kv_capacity_tokens} tokens, "
        f"the plan needs {promise.required_kv_tokens}",
        hint="ask for less --context or --concurrency, or allow a bigger machine",
        data={"kv_capacity_tokens": kv_capacity_tokens, "required_kv_tokens": promise.required_kv_tokens},
    )


def _longest(client: EngineClient, promise: Promise) -> None:
    tokens = promise.longest_input_tokens
    plain_answer("longest", client.post("/generate", _request(tokens, promise.output_tokens, seed=0)))


def _together(client: EngineClient, promise: Promise) -> tuple[Streamed, ...]:
    """The promised number of users at the same moment, each with a prompt of its own: no cache helps.

    What goes wrong in a user's thread, foreseen or not, is raised here.
    """
    asked = [_Asked() for _ in range(promise.concurrency)]

    def ask(seed: int, future: _Asked) -> None:
        body = _request(promise.input_tokens, promise.output_tokens, seed=seed)
        with errors_into(future):
            future.set_result(client.stream("/generate_stream", body))

    users = [threading.Thread(target=ask, args=item, daemon=True) for item in enumerate(asked, start=1)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    return tuple(_checked(future.result()) for future in asked)


def _checked(answer: Streamed) -> Streamed:
    whole_stream("together", answer)
    return answer


def _twice(client: EngineClient) -> bool:
    body = _request(_SHORT_PROMPT_TOKENS, _REPEATED_TOKENS, seed=0)
    first, second = (plain_answer("repeat", client.post("/generate", body)) for _ in range(2))
    return str(first["generated_text"]) == str(second["generated_text"])


def _request(prompt_tokens: int, output_tokens: int, *, seed: int) -> dict[str, Any]:
    """A greedy request with a prompt of exactly that many tokens: the engine cuts it, every word is one at least."""
    return {
        "inputs": " ".join(_text(prompt_tokens, seed)),
        "parameters": {
            "truncate": prompt_tokens,
            "max_new_tokens": output_tokens,
            "do_sample": False,
            "details": True,
        },
    }


def _text(words: int, seed: int) -> list[str]:
    """Words in an order of each seed's own (for 110 seeds)."""
    step = seed % (len(_WORDS) - 1) + 1
    return [_WORDS[(seed + place * step) % len(_WORDS)] for place in range(words)]


def _measured(
    answers: tuple[Streamed, ...], took_s: float, promise: Promise, kv_capacity_tokens: int | None
) -> Measured:
    waits = [answer.first_event_ms for answer in answers if answer.first_event_ms is not None]
    tokens = sum(len(answer.events) for answer in answers)
    return Measured(
        first_token_ms=round(median(waits), 1) if waits else None,
        output_tokens_per_s=round(tokens / took_s, 1) if took_s > 0 else None,
        requests=len(answers),
        kv_capacity_tokens=kv_capacity_tokens,
        kv_capacity_planned_tokens=promise.kv_capacity_tokens,
    )


def measured_document(measured: Measured) -> Mapping[str, Any]:
    """As it goes into the deployment's history, where later calibration finds it."""
    difference = measured.kv_difference
    return {
        "first_token_ms": measured.first_token_ms,
        "output_tokens_per_s": measured.output_tokens_per_s,
        "requests": measured.requests,
        "kv_capacity_tokens": measured.kv_capacity_tokens,
        "kv_capacity_planned_tokens": measured.kv_capacity_planned_tokens,
        "kv_difference": None if difference is None else round(difference, 4),
    }
