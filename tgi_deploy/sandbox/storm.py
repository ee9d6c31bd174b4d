"""Injects seeded random faults: throttling, lost replies, no capacity, delayed visibility."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tgi_deploy.sandbox.wire import Call

_LAUNCH: Final = "RunInstances"


@dataclass(frozen=True, kw_only=True, slots=True)
class Storm:
    """Probabilities from 0 to 1. `capacity` is for launches only, `not_found` for calls that name their resources.

    With the same seed, the n-th call of an action always has the same outcome, regardless of other calls.
    """

    seed: int = 0
    throttle: float = 0.3
    lost_reply: float = 0.1
    capacity: float = 0.2
    not_found: float = 0.1

    def strikes(self, action: str, ordinal: int) -> str:
        """Return the fault of the `ordinal`-th call of `action`, or empty."""
        chance = random.Random(f"{self.seed}/{action}/{ordinal}")  # noqa: S311 -- weather, no secret
        share = (
            ("throttle", self.throttle),
            ("lost-reply", self.lost_reply),
            ("capacity", self.capacity if action == _LAUNCH else 0.0),
            ("not-found-yet", self.not_found),
        )
        return next((name for name, likely in share if chance.random() < likely), "")


class Weather:
    """The active storm, if any, and the number of calls of each action."""

    def __init__(self) -> None:
        self._storm: Storm | None = None
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def set(self, storm: Storm | None) -> None:
        with self._lock:
            self._storm = storm
            self._seen.clear()

    def now(self) -> Storm | None:
        return self._storm

    def strikes(self, call: Call) -> str:
        """Return the fault of this call, or empty."""
        with self._lock:
            if self._storm is None or not call.action:
                return ""
            self._seen[call.action] += 1
            return self._storm.strikes(call.action, self._seen[call.action])
