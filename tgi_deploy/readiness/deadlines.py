"""How long each phase of a start may take, and how progress is told from its absence. Pure.

Deadlines are data. A phase that is past its deadline and still brings something goes on, up to a limit that is data,
too; one that has brought nothing for longer than its largest single step is a stall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.diagnosis.reader import Reading
    from tgi_deploy.readiness.waiting import Track

# A machine's own agents talk, too: so much at least has to come in before it counts.
_LEAST_MB: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseDeadline:
    """Seconds a phase should take, after which it has failed, and without progress that are a stall (0: any).

    `limit_s` is the deadline while there is progress (0: the same); `amount_mb` is what comes over the network in it,
    0 where that is not known.
    """

    phase: str
    expected_s: float
    deadline_s: float
    stall_s: float = 0.0
    limit_s: float = 0.0
    amount_mb: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """What there is to show at a moment: megabytes of an image, and files, shards and the like."""

    received_mb: int = 0
    steps: int = 0

    @classmethod
    def of(cls, reading: Reading) -> Marks:
        return cls(received_mb=reading.progress.received_mb, steps=reading.progress.steps)

    def moved_to(self, now: Marks) -> bool:
        """Whether `now` is progress. Less than before is another beginning, and none."""
        return now.steps > self.steps or now.received_mb >= self.received_mb + _LEAST_MB

    def fell_to(self, now: Marks) -> bool:
        return now.steps < self.steps or now.received_mb < self.received_mb


@dataclass(frozen=True, kw_only=True, slots=True)
class PhasePatience:
    """How long each phase may take, and everything together. `hard`: no progress extends that."""

    by_phase: Mapping[str, PhaseDeadline]
    overall_s: float
    hard: bool = False

    @classmethod
    def of(cls, deadlines: Iterable[PhaseDeadline], overall_s: float | None = None) -> PhasePatience:
        by_phase = {item.phase: item for item in deadlines}
        if overall_s is not None:
            return cls(by_phase=by_phase, overall_s=overall_s, hard=True)
        return cls(by_phase=by_phase, overall_s=sum(item.deadline_s for item in by_phase.values()))

    def of_phase(self, phase: str) -> PhaseDeadline:
        """Without one of its own: nothing is expected, and there is no end but the overall one."""
        return self.by_phase.get(phase) or PhaseDeadline(phase=phase, expected_s=0.0, deadline_s=self.overall_s)

    def ends_at_s(self, track: Track) -> float:
        """When to give up. A phase that only the machine's state suggests has no deadline of its own."""
        known = self.by_phase.get(track.phase)
        granted_s = 0.0 if self.hard else self._granted_s(track)
        if known is None or not track.evident:
            return self.overall_s + granted_s
        regular = track.since_s + known.deadline_s
        own = max(regular, self.stretched_to_s(track))
        return min(self.overall_s + granted_s + (0.0 if self.hard else own - regular), own)

    def stretched_to_s(self, track: Track) -> float:
        """Until when progress lets a phase go on: a stall's length after the last of it, within the limit. 0: not."""
        known = self.by_phase.get(track.phase)
        if known is None or not track.moving:
            return 0.0
        return min(track.since_s + known.limit_s, track.moved_s + known.stall_s)

    def _granted_s(self, track: Track) -> float:
        """What phases that made progress took beyond their deadlines."""
        over = (item.took_s - self.of_phase(item.phase).deadline_s for item in track.stretched)
        return sum(seconds for seconds in over if seconds > 0)
