"""How long each startup phase may take, and what counts as progress. Pure.

Deadlines and limits are data. A phase past its deadline that still makes progress continues up to its limit; one
without progress for longer than its largest single step has stalled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.diagnosis.reader import Reading
    from tgi_deploy.readiness.waiting import Track

# The machine's own agents cause traffic, too: less than this is not progress.
_LEAST_MB: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseDeadline:
    """A phase's expected duration, deadline, and time without progress that counts as a stall (0: none).

    `limit_s` is the deadline while there is progress (0: the same); `amount_mb` is the download size, 0 if unknown.
    """

    phase: str
    expected_s: float
    deadline_s: float
    stall_s: float = 0.0
    limit_s: float = 0.0
    amount_mb: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """Progress counters at one moment: megabytes of an image, files, shards and so on."""

    received_mb: int = 0
    steps: int = 0

    @classmethod
    def of(cls, reading: Reading) -> Marks:
        return cls(received_mb=reading.progress.received_mb, steps=reading.progress.steps)

    def moved_to(self, now: Marks) -> bool:
        """Return whether `now` is progress. Lower counters mean a restart, not progress."""
        return now.steps > self.steps or now.received_mb >= self.received_mb + _LEAST_MB

    def fell_to(self, now: Marks) -> bool:
        return now.steps < self.steps or now.received_mb < self.received_mb


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseDeadlines:
    """Deadlines per phase and overall. `hard`: progress does not extend them."""

    by_phase: Mapping[str, PhaseDeadline]
    overall_s: float
    hard: bool = False

    @classmethod
    def of(cls, deadlines: Iterable[PhaseDeadline], overall_s: float | None = None) -> PhaseDeadlines:
        by_phase = {item.phase: item for item in deadlines}
        if overall_s is not None:
            return cls(by_phase=by_phase, overall_s=overall_s, hard=True)
        return cls(by_phase=by_phase, overall_s=sum(item.deadline_s for item in by_phase.values()))

    def of_phase(self, phase: str) -> PhaseDeadline:
        """Return the phase's deadline; for a phase without one, only the overall deadline applies."""
        return self.by_phase.get(phase) or PhaseDeadline(phase=phase, expected_s=0.0, deadline_s=self.overall_s)

    def ends_at_s(self, track: Track) -> float:
        """Return when to give up. A phase inferred only from the machine's state has no deadline."""
        known = self.by_phase.get(track.phase)
        granted_s = 0.0 if self.hard else self._granted_s(track)
        if known is None or not track.evident:
            return self.overall_s + granted_s
        regular = track.since_s + known.deadline_s
        own = max(regular, self.stretched_to_s(track))
        return min(self.overall_s + granted_s + (0.0 if self.hard else own - regular), own)

    def stretched_to_s(self, track: Track) -> float:
        """Return until when progress extends a phase, within its limit; 0 if it does not."""
        known = self.by_phase.get(track.phase)
        if known is None or not track.moving:
            return 0.0
        return min(track.since_s + known.limit_s, track.moved_s + known.stall_s)

    def _granted_s(self, track: Track) -> float:
        """Return how long phases with progress ran beyond their deadlines."""
        over = (item.took_s - self.of_phase(item.phase).deadline_s for item in track.stretched)
        return sum(seconds for seconds in over if seconds > 0)
