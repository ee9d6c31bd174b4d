"""The accelerated clock of the sandbox's machines, shared so that a reboot does not change it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class FastClock:
    """Real and guest time are the same at `epoch` (seconds since 1970), and `speed` times as fast from there."""

    epoch: float
    speed: float

    def at(self, real: float) -> float:
        """Return the guest's time at a real time."""
        return self.epoch + (real - self.epoch) * self.speed

    def text(self, real: float) -> str:
        return datetime.fromtimestamp(self.at(real), UTC).isoformat(timespec="seconds")
