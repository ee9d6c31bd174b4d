"""Waits until a machine's engine answers, or says early and exactly why it won't.

HTTP is the truth, the machine's state comes first, and the console explains: it is late and may never come. One look
gathers all three; pure functions judge it; the loop only looks, judges and sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Protocol

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.phase_table import PHASES
from tgi_deploy.reconcile.phases import PhaseView, read_phase
from tgi_deploy.reconcile.spot import SpotNotice, is_reclaimed, notice_of
from tgi_deploy.reconcile.unready import engine_failed, machine_died, reclaimed, timed_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.reconcile.model import MachineState
    from tgi_deploy.reconcile.phase_table import PhaseTable
    from tgi_deploy.reconcile.ports import Clock

_OK: Final = 200
_SICK: Final = 503
_GONE: Final = frozenset({"stopping", "stopped", "shutting-down", "terminated", "missing"})
_RESTARTS_ALLOWED: Final = 1
_STALL_FACTOR: Final = 1.5
_STALL_GRACE_S: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseDeadline:
    """Seconds a phase should take, after which it has failed, and without progress that are a stall (0: any)."""

    phase: str
    expected_s: float
    deadline_s: float
    stall_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What asking `/health` came to. Refused, reset and timeout all mean: nothing listens yet."""

    outcome: Literal["refused", "reset", "timeout", "status"]
    status: int | None = None

    @property
    def ok(self) -> bool:
        return self.outcome == "status" and self.status == _OK

    def __str__(self) -> str:
        return f"answered {self.status}" if self.outcome == "status" else self.outcome


class Observer(Protocol):
    """The three places to look. `console` may raise DeployError: then the log stays unknown."""

    def machine(self) -> MachineState: ...

    def console(self) -> str: ...

    def probe(self, address: str) -> Probe: ...


class Listener(Protocol):
    """Hears about the wait: `phase` after every look, `line` when there is something to say."""

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:
        """`elapsed_s` counts from the beginning of this phase; `expected_s` is what it should take."""

    def line(self, text: str) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTiming:
    """`started_s` counts from the beginning of the wait."""

    phase: str
    started_s: float
    took_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyReport:
    """The engine answers. Phases that came and went between two looks are not listed."""

    address: str
    elapsed_s: float
    phases: tuple[PhaseTiming, ...]
    kv_capacity_tokens: int | None = None
    max_total_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """One look: `at_s` counts from the beginning of the wait; `probe` is None without an address to ask.

    `notice`: a spot machine that is being taken back.
    """

    at_s: float
    machine: MachineState
    view: PhaseView
    probe: Probe | None = None
    notice: SpotNotice | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """What is remembered between two looks. `seen`: the machine has existed."""

    phase: str = PHASES[0]
    since_s: float = 0.0
    evident: bool = True
    seen: bool = False
    stall_told: bool = False
    passed: tuple[PhaseTiming, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long each phase may take, and everything together."""

    by_phase: Mapping[str, PhaseDeadline]
    overall_s: float

    @classmethod
    def of(cls, deadlines: Iterable[PhaseDeadline], overall_s: float | None = None) -> Patience:
        by_phase = {item.phase: item for item in deadlines}
        total = sum(item.deadline_s for item in by_phase.values())
        return cls(by_phase=by_phase, overall_s=total if overall_s is None else overall_s)

    def expected_s(self, phase: str) -> float:
        known = self.by_phase.get(phase)
        return 0.0 if known is None else known.expected_s

    def stall_s(self, phase: str) -> float:
        known = self.by_phase.get(phase)
        return 0.0 if known is None else known.stall_s

    def ends_at_s(self, track: Track) -> float:
        """When to give up. A phase that only the machine's state suggests has no deadline of its own."""
        known = self.by_phase.get(track.phase)
        if known is None or not track.evident:
            return self.overall_s
        return min(self.overall_s, track.since_s + known.deadline_s)


def advance(track: Track, sighting: Sighting) -> Track:
    """What is known after a look. The log alone can lead back to an earlier phase: the engine was started again."""
    machine, view = sighting.machine, sighting.view
    track = replace(track, seen=track.seen or machine.state != "missing")
    if machine.state != "running":
        return track
    phase = view.phase if view.evident else "booting"
    if phase == track.phase:
        return replace(track, evident=track.evident or view.evident)
    if not view.evident and PHASES.index(phase) < PHASES.index(track.phase):
        return track
    done = PhaseTiming(phase=track.phase, started_s=track.since_s, took_s=sighting.at_s - track.since_s)
    return replace(
        track,
        phase=phase,
        since_s=sighting.at_s,
        evident=view.evident,
        stall_told=False,
        passed=(*track.passed, done),
    )


def failure(track: Track, sighting: Sighting, table: PhaseTable) -> DeployError | None:
    """Why waiting on is pointless, None while it is not."""
    machine, view = sighting.machine, sighting.view
    gone = machine.state in _GONE and (machine.state != "missing" or track.seen)
    if gone and is_reclaimed(machine):
        return machine_died(track, sighting, table)
    if sighting.notice is not None:
        return reclaimed(track, sighting, sighting.notice)
    if view.died_of is not None:
        return engine_failed(track, sighting, view.died_of)
    if gone:
        return engine_failed(track, sighting, view.finding) if view.finding else machine_died(track, sighting, table)
    if view.final or view.exits > _RESTARTS_ALLOWED:
        return engine_failed(track, sighting, None)
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitSettings:
    """`overall_s` None: the sum of the phases' deadlines. A container that dies at once does so within `settle_s`."""

    poll_s: float = 5.0
    settle_s: float = 3.0
    overall_s: float | None = None


def wait_until_ready(
    observer: Observer,
    deadlines: Iterable[PhaseDeadline],
    *,
    table: PhaseTable,
    clock: Clock,
    listener: Listener,
    settings: WaitSettings | None = None,
) -> ReadyReport:
    """Look, judge and sleep until `/health` answers 200 twice, `settle_s` apart.

    Raises:
        NotHealthyError: `not_ready_<phase>` past a deadline; `engine_failed` as soon as the engine has ended for a
            known reason, for good, or again and again.
        DeployError: `machine_died` or `spot_reclaimed`.
    """
    settings = settings or WaitSettings()
    wait = _Wait(observer=observer, table=table, clock=clock, listener=listener, settings=settings)
    return wait.run(Patience.of(deadlines, settings.overall_s))


@dataclass(kw_only=True, slots=True)
class _Wait:
    observer: Observer
    table: PhaseTable
    clock: Clock
    listener: Listener
    settings: WaitSettings
    started: float = 0.0
    track: Track = field(default_factory=Track)
    view: PhaseView = field(default_factory=PhaseView)
    console: str = ""
    told: set[str] = field(default_factory=set)
    progress: tuple[str, str] = ("", "")
    progress_s: float = 0.0

    def run(self, patience: Patience) -> ReadyReport:
        self.started = self.clock.monotonic()
        while True:
            sighting = self._look(patience)
            if sighting.probe is not None and sighting.probe.ok:
                again = self._look_again(patience)
                if again.probe is not None and again.probe.ok:
                    return self._report(again)
                self._tell("the engine answered once and then no more: going on to wait")
                sighting = again
            left = patience.ends_at_s(self.track) - self._elapsed()
            if left <= 0:
                raise timed_out(self.track, replace(sighting, at_s=self._elapsed()), patience)
            self.clock.sleep(min(self.settings.poll_s, left))

    def _look_again(self, patience: Patience) -> Sighting:
        self.clock.sleep(self.settings.settle_s)
        return self._look(patience)

    def _look(self, patience: Patience) -> Sighting:
        machine = self.observer.machine()
        self._read_console(machine)
        probe = None
        if machine.state == "running" and machine.address is not None:
            probe = self.observer.probe(machine.address)
        sighting = Sighting(
            at_s=self._elapsed(), machine=machine, view=self.view, probe=probe, notice=notice_of(self.console)
        )
        self.track = advance(self.track, sighting)
        ready = probe is not None and probe.ok
        error = None if ready else failure(self.track, sighting, self.table)
        if error is not None:
            raise error
        self._announce(sighting, patience)
        return sighting

    def _read_console(self, machine: MachineState) -> None:
        if machine.state == "missing":
            return
        try:
            text = self.observer.console()
        except DeployError as error:
            self._tell(f"the machine's console can't be read ({error.message}): going by its health check alone")
            return
        if text and text != self.console:
            self.console = text
            self.view = read_phase(text, self.table, previous=self.view)

    def _announce(self, sighting: Sighting, patience: Patience) -> None:
        track, probe = self.track, sighting.probe
        expected_s, spent_s = patience.expected_s(track.phase), sighting.at_s - track.since_s
        detail = sighting.view.detail if sighting.view.phase == track.phase else ""
        if probe is not None and probe.status is not None and not probe.ok:
            detail = f"health check answers {probe.status}"
            self._tell(f"the health check answers {probe.status}" + _SICK_NOTE.get(probe.status, ""))
        self.listener.phase(track.phase, detail, spent_s, expected_s)
        if track.evident and not track.stall_told and spent_s > _stalls_after_s(expected_s):
            self.track = replace(track, stall_told=True)
            self.listener.line(_stall(track.phase, spent_s, expected_s, sighting.view))
        self._watch_progress(track, detail, sighting, patience)

    def _watch_progress(self, track: Track, detail: str, sighting: Sighting, patience: Patience) -> None:
        """Say once when neither the phase nor what it reports has moved for longer than it may."""
        if self.progress != (track.phase, detail):
            self.progress, self.progress_s = (track.phase, detail), sighting.at_s
        quiet_s, allowed_s = sighting.at_s - self.progress_s, patience.stall_s(track.phase)
        if track.evident and 0 < allowed_s < quiet_s:
            self._tell(f"{track.phase} has shown no progress for over {allowed_s:.0f} s: it may hang")

    def _tell(self, text: str) -> None:
        """Say it once."""
        if text not in self.told:
            self.told.add(text)
            self.listener.line(text)

    def _elapsed(self) -> float:
        return self.clock.monotonic() - self.started

    def _report(self, sighting: Sighting) -> ReadyReport:
        last = PhaseTiming(
            phase=self.track.phase, started_s=self.track.since_s, took_s=sighting.at_s - self.track.since_s
        )
        return ReadyReport(
            address=sighting.machine.address or "",
            elapsed_s=sighting.at_s,
            phases=(*self.track.passed, last),
            kv_capacity_tokens=sighting.view.kv_capacity_tokens,
            max_total_tokens=sighting.view.max_total_tokens,
        )


_SICK_NOTE: Final = {_SICK: ": it was up and is sick now"}


def _stalls_after_s(expected_s: float) -> float:
    """Estimates are rough: half as long again, and some seconds, are no stall."""
    return max(_STALL_FACTOR * expected_s, expected_s + _STALL_GRACE_S)


def _stall(phase: str, spent_s: float, expected_s: float, view: PhaseView) -> str:
    said = f"; last line of the log: {view.last_line}" if view.last_line else ""
    return f"{phase} takes longer than expected ({spent_s:.0f} s, expected {expected_s:.0f} s){said}"
