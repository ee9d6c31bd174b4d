"""What `predict` answers for one measured quantity."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A median with its 80 % interval, in the unit that was asked for; or why there is none."""

    value: float | None
    low: float | None
    high: float | None
    error: str | None = None
