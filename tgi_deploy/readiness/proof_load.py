"""Verifies the planned worst case: the longest request, all users at once, and the same answer twice.

`readiness.proof` checks that the right engine answers; this checks that it can handle the planned load.
"""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import NotHealthyError, Problem
from tgi_deploy.futures import in_thread
from tgi_deploy.readiness.proof import ProofStep, first_event_ms, timed
from tgi_deploy.values.probing import HttpReply, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.readiness.proof import Endpoint
    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.values.probing import ProbeRequest, Promise

_MILLISECONDS: Final = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheCapacity:
    """Tokens of KV cache: predicted by the plan, required by the promise, and measured by the engine's log."""

    planned_tokens: int | None = None
    required_tokens: int = 0
    measured_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Measurements next to the plan's predictions. Times are medians over the simultaneous requests."""

    first_token_ms: float | None = None
    output_tokens_per_s: float | None = None
    requests: int = 0
    kv_capacity_tokens: int | None = None
    kv_capacity_planned_tokens: int | None = None

    @property
    def kv_difference(self) -> float | None:
        """Return the prediction error: 0.05 means that the engine has 5 % more room than predicted."""
        if self.kv_capacity_tokens is None or not self.kv_capacity_planned_tokens:
            return None
        return self.kv_capacity_tokens / self.kv_capacity_planned_tokens - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadReport:
    """All steps passed."""

    steps: tuple[ProofStep, ...]
    measured: Measured
    warnings: tuple[Problem, ...] = ()


def prove_load(endpoint: Endpoint, promise: Promise, capacity: CacheCapacity, *, clock: Clock) -> LoadReport:
    """Send the planned worst-case requests.

    Raises:
        NotHealthyError: `kv_capacity_short`, `longest_failed`, `together_failed`, `repeat_failed`, `unauthorized` or
            `engine_unreachable`.
    """
    _check_capacity(capacity)
    probes = endpoint.engine.probes(promise)
    longest, together, repeat = (
        [probe for probe in probes if probe.step == step] for step in ("longest", "together", "repeat")
    )
    _, longest_ms = timed(clock, lambda: _texts(endpoint, longest))
    answers, together_ms = timed(clock, lambda: _together(endpoint, together))
    texts, repeat_ms = timed(clock, lambda: _texts(endpoint, repeat))
    took = {"longest": longest_ms, "together": together_ms, "repeat": repeat_ms}
    return LoadReport(
        steps=tuple(ProofStep(name=name, took_ms=took_ms) for name, took_ms in took.items()),
        measured=_measured(answers, together_ms / _MILLISECONDS, capacity),
        warnings=() if len(set(texts)) == 1 else (_DIFFERS,),
    )


_DIFFERS: Final = Problem(
    code="not_repeatable",
    severity="warning",
    message="the same greedy request got two different answers: the engine's kernels are not deterministic here",
)


def _check_capacity(capacity: CacheCapacity) -> None:
    if capacity.measured_tokens is None or capacity.measured_tokens >= capacity.required_tokens:
        return
    raise NotHealthyError(
        "kv_capacity_short",
        f"checking the engine's memory: its KV cache holds {capacity.measured_tokens} tokens, "
        f"the plan needs {capacity.required_tokens}",
        hint="lower --context or --concurrency, or allow a larger machine",
        data={"kv_capacity_tokens": capacity.measured_tokens, "required_kv_tokens": capacity.required_tokens},
    )


def _texts(endpoint: Endpoint, probes: Sequence[ProbeRequest]) -> list[str]:
    """Return the generated texts."""
    replies = [endpoint.ask(probe)[1] for probe in probes]
    return [reply.text for reply in replies if isinstance(reply, Reply)]


def _together(endpoint: Endpoint, probes: Sequence[ProbeRequest]) -> list[tuple[HttpReply, int]]:
    """Return each user's response and tokens: all send different prompts at the same moment.

    An error in a user's thread is raised here.
    """
    asked = [(probe, in_thread(partial(endpoint.client.ask, probe))) for probe in probes]
    wait([future for _, future in asked])
    answers = [(future.result(), endpoint.meaning(probe, future.result())) for probe, future in asked]
    return [(answer, reply.tokens) for answer, reply in answers if isinstance(reply, Reply)]


def _measured(answers: Sequence[tuple[HttpReply, int]], took_s: float, capacity: CacheCapacity) -> Measured:
    waits = [wait_ms for answer, _ in answers if (wait_ms := first_event_ms(answer)) is not None]
    tokens = sum(count for _, count in answers)
    return Measured(
        first_token_ms=round(median(waits), 1) if waits else None,
        output_tokens_per_s=round(tokens / took_s, 1) if took_s > 0 else None,
        requests=len(answers),
        kv_capacity_tokens=capacity.measured_tokens,
        kv_capacity_planned_tokens=capacity.planned_tokens,
    )


def measured_document(measured: Measured) -> Mapping[str, Any]:
    """Return the measurements as stored in the deployment's history, where calibration reads them."""
    difference = measured.kv_difference
    return {
        "first_token_ms": measured.first_token_ms,
        "output_tokens_per_s": measured.output_tokens_per_s,
        "requests": measured.requests,
        "kv_capacity_tokens": measured.kv_capacity_tokens,
        "kv_capacity_planned_tokens": measured.kv_capacity_planned_tokens,
        "kv_difference": None if difference is None else round(difference, 4),
    }
