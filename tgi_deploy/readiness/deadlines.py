"""How long each startup phase may take, and what counts as progress. Pure.

Deadlines and limits are data. A phase that makes progress may run past its deadline, up to its limit; a phase that
makes none for longer than its largest single step has stalled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.diagnosis.reader import Reading
    from tgi_deploy.readiness.waiting import WaitState

# The machine's own agents cause traffic, too: less than this is not progress.
_LEAST_MB: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseDeadline:
    """A phase's expected duration, deadline, and time without progress that counts as a stall (0: none).

    `limit_s` replaces `deadline_s` while there is progress (0: the same); `amount_mb`: the download size, or 0.
    """

    phase: str
    expected_s: float
    deadline_s: float
    stall_s: float = 0.0
    limit_s: float = 0.0
    amount_mb: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressCounters:
    """A phase's progress at one moment: megabytes received, and steps such as files or shards."""

    received_mb: int = 0
    steps: int = 0

    @classmethod
    def of(cls, reading: Reading) -> ProgressCounters:
        return cls(received_mb=reading.progress.received_mb, steps=reading.progress.steps)

    def moved_to(self, now: ProgressCounters) -> bool:
        """Return whether `now` is progress. Lower counters mean a restart, not progress."""
        return now.steps > self.steps or now.received_mb >= self.received_mb + _LEAST_MB

    def fell_to(self, now: ProgressCounters) -> bool:
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

    def ends_at_s(self, state: WaitState) -> float:
        """Return when to give up. A phase inferred only from the machine's state has no deadline."""
        known = self.by_phase.get(state.phase)
        granted_s = 0.0 if self.hard else self._granted_s(state)
        if known is None or not state.phase_seen:
            return self.overall_s + granted_s
        regular = state.since_s + known.deadline_s
        own = max(regular, self.stretched_to_s(state))
        return min(self.overall_s + granted_s + (0.0 if self.hard else own - regular), own)

    def stretched_to_s(self, state: WaitState) -> float:
        """Return when a phase with progress has to end: at its limit, or `stall_s` after its last progress; else 0."""
        known = self.by_phase.get(state.phase)
        if known is None or not state.moving:
            return 0.0
        return min(state.since_s + known.limit_s, state.moved_s + known.stall_s)

    def _granted_s(self, state: WaitState) -> float:
        """Return how long phases with progress ran beyond their deadlines."""
        over = (item.took_s - self.of_phase(item.phase).deadline_s for item in state.stretched)
        return sum(seconds for seconds in over if seconds > 0)
