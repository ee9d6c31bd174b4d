"""Waits until a machine's engine answers, or reports early and precisely why it won't.

The health check decides, the machine's state comes first, and the console explains: its output is delayed and may never
arrive. Each poll gathers all three and pure functions judge them. When the engine may answer at any moment, the health
check alone is polled more often, because it costs no call to the cloud.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.diagnosis.patterns import STARTUP_PHASES
from tgi_deploy.diagnosis.progress import detail_of
from tgi_deploy.diagnosis.reader import Reading, Subject, cause_of_state, read
from tgi_deploy.errors import DeployError, Failure
from tgi_deploy.readiness.deadlines import Marks, PhaseDeadlines
from tgi_deploy.readiness.not_ready import (
    diagnose_hint,
    engine_failed,
    machine_died,
    not_created,
    reclaimed,
    started_on_wrong_device,
    timed_out,
)
from tgi_deploy.readiness.spot import SpotNotice, notice_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tgi_deploy.diagnosis.grammar import LogGrammar
    from tgi_deploy.readiness.deadlines import PhaseDeadline
    from tgi_deploy.reconcile.ports import Clock, Listener
    from tgi_deploy.values.resource import MachineState
    from tgi_deploy.values.results import Finding

_OK: Final = 200
_UNHEALTHY: Final = 503
_GONE: Final = frozenset({"stopping", "stopped", "shutting-down", "terminated", "missing"})
# A refusal counts once it has lasted as long: what was just removed may still have been in use.
_REFUSED_S: Final = 15.0
# States that a stale reply may still show of a machine that was just restarted.
_PAUSED: Final = frozenset({"stopping", "stopped"})
_RESTARTS_ALLOWED: Final = 1
_LATE_FACTOR: Final = 1.5
_LATE_GRACE_S: Final = 10.0
_LEAST_PAUSE_S: Final = 0.05
# From this phase on, only the engine is waited for.
_NEAR: Final = STARTUP_PHASES.index("loading")


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """The result of a health check. Refused, reset and timeout all mean that nothing listens yet.

    Distrusted: the server has another certificate than its machine reported, so nothing was sent. No tunnel: none to
    its machine can be opened, and `why`.
    """

    outcome: Literal["refused", "reset", "timeout", "distrusted", "no_tunnel", "status"]
    status: int | None = None
    why: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == "status" and self.status == _OK

    def __str__(self) -> str:
        if self.outcome == "no_tunnel":
            return f"no tunnel: {self.why}"
        return f"answered {self.status}" if self.outcome == "status" else self.outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Observer:
    """The three sources to poll. `console` may raise DeployError: then the log stays unknown."""

    machine: Callable[[], MachineState]
    console: Callable[[], str]
    probe: Callable[[str], Probe]


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTiming:
    phase: str
    took_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyReport:
    """The engine answers. Phases that began and ended between two polls are not listed."""

    address: str
    elapsed_s: float
    phases: tuple[PhaseTiming, ...]
    kv_capacity_tokens: int | None = None
    max_total_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """One poll: `at_s` counts from the start of the wait; `probe` is None without an address.

    `notice`: the spot machine is being reclaimed. `state_cause`: the finding from the reason of a machine's end.
    `unseen_s`: how long an existing machine may be invisible or shown as stopped.
    """

    at_s: float
    machine: MachineState
    reading: Reading
    probe: Probe | None = None
    notice: SpotNotice | None = None
    state_cause: Finding | None = None
    unseen_s: float = 0.0

    @property
    def ready(self) -> bool:
        return self.probe is not None and self.probe.ok


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """State between two polls. `seen`: the machine has existed.

    `unseen_since_s`: invisible, or shown as stopped, since then; `refused_since_s`: its creation refused. `moved_s`:
    when the phase began or last made progress; `moving`: it has made some; `stretched`: past phases that made some.
    """

    phase: str = STARTUP_PHASES[0]
    since_s: float = 0.0
    evident: bool = True
    seen: bool = False
    unseen_since_s: float | None = None
    refused_since_s: float | None = None
    late_noted: bool = False
    stall_noted: bool = False
    passed: tuple[PhaseTiming, ...] = ()
    marks: Marks = field(default_factory=Marks)
    moved_s: float = 0.0
    moving: bool = False
    stretched: tuple[PhaseTiming, ...] = ()


def advance(track: Track, sighting: Sighting) -> Track:
    """Return the state after a poll. Only the log can go back to an earlier phase: the engine was restarted."""
    machine, reading = sighting.machine, sighting.reading
    since = sighting.at_s if track.refused_since_s is None else track.refused_since_s
    track = replace(track, refused_since_s=since if machine.refusal else None)
    if machine.state == "missing" or machine.state in _PAUSED:
        since_s = sighting.at_s if track.unseen_since_s is None else track.unseen_since_s
        return replace(track, seen=track.seen or machine.state in _PAUSED, unseen_since_s=since_s)
    track = replace(track, seen=True, unseen_since_s=None)
    if machine.state != "running":
        return track
    phase = reading.startup_phase if reading.evident else "booting"
    if phase == track.phase:
        return _with_progress(replace(track, evident=track.evident or reading.evident), sighting)
    if not reading.evident and STARTUP_PHASES.index(phase) < STARTUP_PHASES.index(track.phase):
        return track
    done = PhaseTiming(phase=track.phase, took_s=sighting.at_s - track.since_s)
    return replace(
        track,
        phase=phase,
        since_s=sighting.at_s,
        evident=reading.evident,
        late_noted=False,
        stall_noted=False,
        passed=(*track.passed, done),
        marks=Marks.of(reading),
        moved_s=sighting.at_s,
        moving=False,
        stretched=(*track.stretched, done) if track.moving else track.stretched,
    )


def _with_progress(track: Track, sighting: Sighting) -> Track:
    """Update the progress within the same phase."""
    marks = Marks.of(sighting.reading)
    if track.marks.moved_to(marks):
        return replace(track, marks=marks, moved_s=sighting.at_s, moving=True, stall_noted=False)
    return replace(track, marks=marks) if track.marks.fell_to(marks) else track


def failure(track: Track, sighting: Sighting) -> DeployError | None:
    """Return why further waiting is pointless, or None. An answer alone is not enough: it can come from the CPU."""
    taken = None if sighting.ready else _reclaimed(track, sighting)
    if taken is not None:
        return taken
    if sighting.reading.forbids_ready is not None:
        return started_on_wrong_device(track, sighting, sighting.reading.forbids_ready)
    return None if sighting.ready else _death_error(track, sighting)


def _reclaimed(track: Track, sighting: Sighting) -> DeployError | None:
    """Return the error for a reclaimed machine, which takes precedence over anything in the log."""
    if _is_gone(track, sighting) and sighting.machine.reclaimed:
        return machine_died(track, sighting)
    return None if sighting.notice is None else reclaimed(track, sighting, sighting.notice)


def _death_error(track: Track, sighting: Sighting) -> DeployError | None:
    reading = sighting.reading
    if track.refused_since_s is not None and sighting.at_s - track.refused_since_s >= _REFUSED_S:
        return not_created(track, sighting)
    if reading.cause_of_end is not None:
        return engine_failed(track, sighting, reading.cause_of_end)
    if _is_gone(track, sighting):
        known = reading.findings and not reading.hangs
        return engine_failed(track, sighting, reading.findings[0]) if known else machine_died(track, sighting)
    if reading.final or reading.exits > _RESTARTS_ALLOWED:
        return engine_failed(track, sighting, None)
    return None


def _is_gone(track: Track, sighting: Sighting) -> bool:
    if track.unseen_since_s is not None:
        return track.seen and sighting.at_s - track.unseen_since_s >= sighting.unseen_s
    return sighting.machine.state in _GONE


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitSettings:
    """`poll_s`: how often the cloud and the console are polled; `probe_s`: the health check when it may answer soon.

    The first answer is confirmed after `settle_s`. `overall_s` None: the sum of the phases' deadlines. `name` is the
    deployment's, for hints; `subject` is what the log reader knows about it.
    """

    poll_s: float = 5.0
    probe_s: float = 0.3
    settle_s: float = 0.1
    unseen_s: float = 0.0
    overall_s: float | None = None
    name: str = "NAME"
    subject: Subject = field(default_factory=lambda: Subject(planned=True))


def wait_until_ready(
    observer: Observer,
    deadlines: Iterable[PhaseDeadline],
    *,
    grammar: LogGrammar,
    clock: Clock,
    listener: Listener,
    settings: WaitSettings | None = None,
) -> ReadyReport:
    """Poll until the health check answers 200 twice, `settle_s` apart.

    A phase that makes progress may exceed its deadline, up to its limit.

    Raises:
        NotHealthyError: `not_ready` past a deadline; `engine_failed` once the engine has ended for a known
            reason, permanently, or repeatedly; `wrong_device` once its log shows that it does not run on the planned
            accelerators, even if it answers.
        DeployError: `machine_died` or `spot_reclaimed`.
    """
    settings = settings or WaitSettings()
    wait = _Wait(observer=observer, grammar=grammar, clock=clock, listener=listener, settings=settings)
    try:
        return wait.run(PhaseDeadlines.of(deadlines, settings.overall_s))
    except DeployError as error:  # the cloud's own errors (unreachable) have no phase
        if error.failure is not None:
            raise
        raise error.copy(failure=Failure(phase=wait.track.phase)) from error.__cause__


@dataclass(kw_only=True, slots=True)
class _Wait:
    observer: Observer
    grammar: LogGrammar
    clock: Clock
    listener: Listener
    settings: WaitSettings
    started: float = 0.0
    due_s: float = 0.0
    track: Track = field(default_factory=Track)
    reading: Reading = field(default_factory=Reading)
    console: str = ""
    noted: set[str] = field(default_factory=set)

    def run(self, patience: PhaseDeadlines) -> ReadyReport:
        self.started = self.clock.monotonic()
        sighting = self._look(patience)
        while True:
            if sighting.ready:
                sighting = self._confirm(sighting, patience)
                if sighting.ready:
                    return self._report(sighting)
            left = patience.ends_at_s(self.track) - self._elapsed()
            if left <= 0:
                raise timed_out(self.track, replace(sighting, at_s=self._elapsed()), patience, self.settings.name)
            self.clock.sleep(min(self._pause_s(sighting), left))
            sighting = self._look(patience) if self._elapsed() >= self.due_s else self._ask(sighting, patience)

    def _confirm(self, first: Sighting, patience: PhaseDeadlines) -> Sighting:
        """Confirm the first answer, rereading the log if it has not shown the KV cache yet."""
        self.clock.sleep(self.settings.settle_s)
        if self.reading.progress.kv_capacity_tokens is None:
            self._read_console(first.machine)
        again = self._ask(first, patience)
        if not again.ready:
            self._note_once("the engine answered once and then stopped responding; still waiting")
        return again

    def _pause_s(self, sighting: Sighting) -> float:
        """Return the pause until the next poll, or the next health check if the engine may answer at any moment."""
        due = max(self.due_s - self._elapsed(), _LEAST_PAUSE_S)
        near = not self.track.evident or STARTUP_PHASES.index(self.track.phase) >= _NEAR
        return min(due, self.settings.probe_s) if near and sighting.probe is not None else due

    def _look(self, patience: PhaseDeadlines) -> Sighting:
        """Poll all sources."""
        machine = self.observer.machine()
        self._read_console(machine)
        sighting = self._judge(machine, patience)
        self.due_s = self._elapsed() + self.settings.poll_s
        return sighting

    def _ask(self, last: Sighting, patience: PhaseDeadlines) -> Sighting:
        """Poll the engine only."""
        return self._judge(last.machine, patience)

    def _judge(self, machine: MachineState, patience: PhaseDeadlines) -> Sighting:
        probe = None
        if machine.state == "running" and machine.address is not None:
            probe = self.observer.probe(machine.address)
        sighting = Sighting(
            at_s=self._elapsed(),
            machine=machine,
            reading=self.reading,
            probe=probe,
            notice=notice_of(self.console),
            state_cause=self._state_cause(machine),
            unseen_s=self.settings.unseen_s,
        )
        self.track = advance(self.track, sighting)
        error = failure(self.track, sighting)
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
            self._note_once(f"the machine's console can't be read ({error.message}); relying on the health check alone")
            return
        if text and text != self.console:
            self.console = text
            self.reading = read(text, self.grammar, subject=self.settings.subject, before=self.reading)

    def _state_cause(self, machine: MachineState) -> Finding | None:
        """Return the cause of a machine's end, which the cloud reports separately from any log."""
        return cause_of_state(machine.why, self.grammar, self.settings.subject) if machine.state in _GONE else None

    def _announce(self, sighting: Sighting, patience: PhaseDeadlines) -> None:
        track, probe = self.track, sighting.probe
        allowed, spent_s = patience.of_phase(track.phase), sighting.at_s - track.since_s
        detail = _detail(track, sighting, allowed)
        if probe is not None and probe.status is not None and not probe.ok:
            detail = f"health check answers {probe.status}"
            self._note_once(f"the health check answers {probe.status}" + _UNHEALTHY_NOTE.get(probe.status, ""))
        self.listener.phase(track.phase, detail, spent_s, allowed.expected_s)
        if track.evident:
            self._watch(sighting, allowed, detail)
            self._note_extension(sighting, patience)

    def _watch(self, sighting: Sighting, allowed: PhaseDeadline, detail: str) -> None:
        """Warn once when a phase is slow and once when it stalls."""
        track = self.track
        spent_s, quiet_s = sighting.at_s - track.since_s, sighting.at_s - track.moved_s
        if not track.stall_noted and 0 < allowed.stall_s < quiet_s:
            self.track = replace(track, stall_noted=True, late_noted=True)
            self.listener.line(_stall(track.phase, quiet_s, allowed, detail, self.settings.name))
        elif not track.late_noted and spent_s > _late_after_s(allowed.expected_s):
            self.track = replace(track, late_noted=True)
            self.listener.line(_late(track.phase, spent_s, allowed.expected_s, sighting.reading.last_line))

    def _note_extension(self, sighting: Sighting, patience: PhaseDeadlines) -> None:
        track, allowed = self.track, patience.of_phase(self.track.phase)
        regular_s = track.since_s + allowed.deadline_s
        if sighting.at_s >= regular_s and patience.ends_at_s(track) > regular_s:
            self._note_once(
                f"{track.phase} is past its {allowed.deadline_s:.0f} s but still makes progress; "
                f"it may take up to {allowed.limit_s:.0f} s"
            )

    def _note_once(self, text: str) -> None:
        if text not in self.noted:
            self.noted.add(text)
            self.listener.line(text)

    def _elapsed(self) -> float:
        return self.clock.monotonic() - self.started

    def _report(self, sighting: Sighting) -> ReadyReport:
        last = PhaseTiming(phase=self.track.phase, took_s=sighting.at_s - self.track.since_s)
        return ReadyReport(
            address=sighting.machine.address or "",
            elapsed_s=sighting.at_s,
            phases=(*self.track.passed, last),
            kv_capacity_tokens=sighting.reading.progress.kv_capacity_tokens,
            max_total_tokens=sighting.reading.progress.max_total_tokens,
        )


_UNHEALTHY_NOTE: Final = {_UNHEALTHY: ": it was up and is unhealthy now"}


def _detail(track: Track, sighting: Sighting, allowed: PhaseDeadline) -> str:
    if sighting.reading.startup_phase != track.phase:
        return ""
    return detail_of(
        track.phase,
        sighting.reading.progress,
        amount_mb=allowed.amount_mb,
        quiet_s=sighting.at_s - track.moved_s,
        left_s=allowed.expected_s - (sighting.at_s - track.since_s),
    )


def _late_after_s(expected_s: float) -> float:
    """Return when a phase counts as slow. Estimates are rough, so half as long again is normal."""
    return max(_LATE_FACTOR * expected_s, expected_s + _LATE_GRACE_S)


def _late(phase: str, spent_s: float, expected_s: float, last_line: str | None) -> str:
    log = f"; last line of the log: {last_line}" if last_line else ""
    return f"{phase} takes longer than expected ({spent_s:.0f} s, expected {expected_s:.0f} s){log}"


def _stall(phase: str, quiet_s: float, allowed: PhaseDeadline, detail: str, name: str) -> str:
    at = f" at {detail}" if detail else ""
    return (
        f"{phase} has stalled{at}: no progress for {quiet_s:.0f} s (at most {allowed.stall_s:.0f} s is normal); "
        f"{diagnose_hint(name)}"
    )
