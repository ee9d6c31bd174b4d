"""Waiting with a deadline on an injected clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.reconcile.ports import Clock


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long to wait, and how often to look: every `poll_s` at first, growing to `longest_poll_s`."""

    deadline_s: float
    poll_s: float
    longest_poll_s: float
    growth: float = 1.5


def looks(clock: Clock, patience: Patience) -> Iterator[float]:
    """Yield the seconds waited so far, once at once and again after each pause; end at the deadline.

    The last look happens at the deadline itself, never before it.
    """
    started, pause = clock.monotonic(), patience.poll_s
    while True:
        waited = clock.monotonic() - started
        yield waited
        left = patience.deadline_s - (clock.monotonic() - started)
        if left <= 0:
            return
        clock.sleep(min(pause, left))
        pause = min(pause * patience.growth, patience.longest_poll_s)
