"""Waits until a machine's engine answers, or reports early and precisely why it won't.

The health check decides when it is ready, the machine's state takes precedence, and the console explains failures: its
output is delayed and may never arrive. Each poll reads all three, and pure functions evaluate them. When the engine may
answer at any moment, the health check alone is polled more often, because that costs no call to the cloud.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.diagnosis.patterns import STARTUP_PHASES
from tgi_deploy.diagnosis.progress import detail_of
from tgi_deploy.diagnosis.reader import Reading, Subject, cause_of_state, read
from tgi_deploy.errors import DeployError, Failure
from tgi_deploy.readiness.deadlines import PhaseDeadlines, ProgressCounters
from tgi_deploy.readiness.not_ready import (
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
# A refused creation is a failure only after this time: resources that were just removed may still be in use.
_REFUSED_S: Final = 15.0
# States that a stale reply may still show for a machine that was just restarted.
_PAUSED: Final = frozenset({"stopping", "stopped"})
_RESTARTS_ALLOWED: Final = 1
_LATE_FACTOR: Final = 1.5
_LATE_GRACE_S: Final = 10.0
_LEAST_PAUSE_S: Final = 0.05
# From this phase on, only the engine has yet to start.
_NEAR: Final = STARTUP_PHASES.index("loading")


_OUTCOMES: Final = {
    "refused": "refused the connection",
    "reset": "reset the connection",
    "timeout": "did not answer in time",
    "distrusted": "presented another certificate",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """The result of a health check. Refused, reset and timeout all mean that nothing listens yet.

    Distrusted: the server's certificate is not the one that its machine reported, so nothing was sent. No tunnel: none
    to its machine can be opened, for the reason `why`.
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
        return f"answered {self.status}" if self.outcome == "status" else _OUTCOMES[self.outcome]


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
class PollResult:
    """One poll: `at_s` counts from the start of the wait; `probe` is None without an address.

    `notice`: the spot machine is being reclaimed. `state_cause`: the finding for the cloud's reason for the state.
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
class WaitState:
    """The state of the wait between two polls. `seen`: the machine has been visible.

    `unseen_since_s`: since when it is invisible or shown as stopped; `refused_since_s`: since when the cloud refuses to
    create it. `moved_s`: when the phase began or last made progress; `moving`: it has made some; `stretched`: earlier
    phases that did.
    """

    phase: str = STARTUP_PHASES[0]
    since_s: float = 0.0
    phase_seen: bool = True
    seen: bool = False
    unseen_since_s: float | None = None
    refused_since_s: float | None = None
    late_noted: bool = False
    stall_noted: bool = False
    passed: tuple[PhaseTiming, ...] = ()
    counters: ProgressCounters = field(default_factory=ProgressCounters)
    moved_s: float = 0.0
    moving: bool = False
    stretched: tuple[PhaseTiming, ...] = ()


def advance(state: WaitState, poll: PollResult) -> WaitState:
    """Return the state after a poll. Only the log can go back to an earlier phase: the engine was restarted."""
    machine, reading = poll.machine, poll.reading
    since = poll.at_s if state.refused_since_s is None else state.refused_since_s
    state = replace(state, refused_since_s=since if machine.refusal else None)
    if machine.state == "missing" or machine.state in _PAUSED:
        since_s = poll.at_s if state.unseen_since_s is None else state.unseen_since_s
        return replace(state, seen=state.seen or machine.state in _PAUSED, unseen_since_s=since_s)
    state = replace(state, seen=True, unseen_since_s=None)
    if machine.state != "running":
        return state
    phase = reading.startup_phase if reading.phase_seen else "booting"
    if phase == state.phase:
        return _with_progress(replace(state, phase_seen=state.phase_seen or reading.phase_seen), poll)
    if not reading.phase_seen and STARTUP_PHASES.index(phase) < STARTUP_PHASES.index(state.phase):
        return state
    done = PhaseTiming(phase=state.phase, took_s=poll.at_s - state.since_s)
    return replace(
        state,
        phase=phase,
        since_s=poll.at_s,
        phase_seen=reading.phase_seen,
        late_noted=False,
        stall_noted=False,
        passed=(*state.passed, done),
        counters=ProgressCounters.of(reading),
        moved_s=poll.at_s,
        moving=False,
        stretched=(*state.stretched, done) if state.moving else state.stretched,
    )


def _with_progress(state: WaitState, poll: PollResult) -> WaitState:
    """Update the progress within the same phase."""
    counters = ProgressCounters.of(poll.reading)
    if state.counters.moved_to(counters):
        return replace(state, counters=counters, moved_s=poll.at_s, moving=True, stall_noted=False)
    return replace(state, counters=counters) if state.counters.fell_to(counters) else state


def failure(state: WaitState, poll: PollResult) -> DeployError | None:
    """Return why further waiting is pointless, or None. An answer does not settle it: the engine may run on the CPU."""
    taken = None if poll.ready else _reclaimed(state, poll)
    if taken is not None:
        return taken
    if poll.reading.forbids_ready is not None:
        return started_on_wrong_device(state, poll, poll.reading.forbids_ready)
    return None if poll.ready else _death_error(state, poll)


def _reclaimed(state: WaitState, poll: PollResult) -> DeployError | None:
    """Return the error for a reclaimed machine, which takes precedence over anything in the log."""
    if _is_gone(state, poll) and poll.machine.reclaimed:
        return machine_died(state, poll)
    return None if poll.notice is None else reclaimed(state, poll, poll.notice)


def _death_error(state: WaitState, poll: PollResult) -> DeployError | None:
    reading = poll.reading
    if state.refused_since_s is not None and poll.at_s - state.refused_since_s >= _REFUSED_S:
        return not_created(state, poll)
    if reading.cause_of_end is not None:
        return engine_failed(state, poll, reading.cause_of_end)
    if _is_gone(state, poll):
        known = reading.findings and not reading.hangs
        return engine_failed(state, poll, reading.findings[0]) if known else machine_died(state, poll)
    if reading.final or reading.exits > _RESTARTS_ALLOWED:
        return engine_failed(state, poll, None)
    return None


def _is_gone(state: WaitState, poll: PollResult) -> bool:
    if state.unseen_since_s is not None:
        return state.seen and poll.at_s - state.unseen_since_s >= poll.unseen_s
    return poll.machine.state in _GONE


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitSettings:
    """`poll_s`: how often the cloud and the console are polled; `probe_s`: the health check when it may answer soon.

    The first answer is confirmed after `settle_s`. `overall_s` None: the sum of the phases' deadlines. `subject` is
    what the log reader knows about the deployment.
    """

    poll_s: float = 5.0
    probe_s: float = 0.3
    settle_s: float = 0.1
    unseen_s: float = 0.0
    overall_s: float | None = None
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
        raise error.copy(failure=Failure(phase=wait.state.phase)) from error.__cause__


@dataclass(kw_only=True, slots=True)
class _Wait:
    observer: Observer
    grammar: LogGrammar
    clock: Clock
    listener: Listener
    settings: WaitSettings
    started: float = 0.0
    due_s: float = 0.0
    state: WaitState = field(default_factory=WaitState)
    reading: Reading = field(default_factory=Reading)
    console: str = ""
    noted: set[str] = field(default_factory=set)

    def run(self, deadlines: PhaseDeadlines) -> ReadyReport:
        self.started = self.clock.monotonic()
        poll = self._poll(deadlines)
        while True:
            if poll.ready:
                poll = self._confirm(poll, deadlines)
                if poll.ready:
                    return self._ready_report(poll)
            left = deadlines.ends_at_s(self.state) - self._elapsed()
            if left <= 0:
                raise timed_out(self.state, replace(poll, at_s=self._elapsed()), deadlines)
            self.clock.sleep(min(self._pause_s(poll), left))
            poll = self._poll(deadlines) if self._elapsed() >= self.due_s else self._poll_engine(poll, deadlines)

    def _confirm(self, first: PollResult, deadlines: PhaseDeadlines) -> PollResult:
        """Confirm the first answer, rereading the log if it has not shown the KV cache yet."""
        self.clock.sleep(self.settings.settle_s)
        if self.reading.progress.kv_capacity_tokens is None:
            self._read_console(first.machine)
        again = self._poll_engine(first, deadlines)
        if not again.ready:
            self._note_once("the engine answered once and then stopped responding; still waiting")
        return again

    def _pause_s(self, poll: PollResult) -> float:
        """Return the pause until the next poll, or the next health check if the engine may answer at any moment."""
        due = max(self.due_s - self._elapsed(), _LEAST_PAUSE_S)
        near = not self.state.phase_seen or STARTUP_PHASES.index(self.state.phase) >= _NEAR
        return min(due, self.settings.probe_s) if near and poll.probe is not None else due

    def _poll(self, deadlines: PhaseDeadlines) -> PollResult:
        """Poll all sources."""
        machine = self.observer.machine()
        self._read_console(machine)
        poll = self._evaluate(machine, deadlines)
        self.due_s = self._elapsed() + self.settings.poll_s
        return poll

    def _poll_engine(self, last: PollResult, deadlines: PhaseDeadlines) -> PollResult:
        """Poll the engine only."""
        return self._evaluate(last.machine, deadlines)

    def _evaluate(self, machine: MachineState, deadlines: PhaseDeadlines) -> PollResult:
        probe = None
        if machine.state == "running" and machine.address is not None:
            probe = self.observer.probe(machine.address)
        poll = PollResult(
            at_s=self._elapsed(),
            machine=machine,
            reading=self.reading,
            probe=probe,
            notice=notice_of(self.console),
            state_cause=self._state_cause(machine),
            unseen_s=self.settings.unseen_s,
        )
        self.state = advance(self.state, poll)
        error = failure(self.state, poll)
        if error is not None:
            raise error
        self._report_progress(poll, deadlines)
        return poll

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

    def _report_progress(self, poll: PollResult, deadlines: PhaseDeadlines) -> None:
        state, probe = self.state, poll.probe
        allowed, spent_s = deadlines.of_phase(state.phase), poll.at_s - state.since_s
        detail = _detail(state, poll, allowed)
        if probe is not None and probe.status is not None and not probe.ok:
            detail = f"health check answers {probe.status}"
            self._note_once(f"the health check answers {probe.status}" + _UNHEALTHY_NOTE.get(probe.status, ""))
        self.listener.phase(state.phase, detail, spent_s, allowed.expected_s)
        if state.phase_seen:
            self._warn_if_late(poll, allowed, detail)
            self._note_extension(poll, deadlines)

    def _warn_if_late(self, poll: PollResult, allowed: PhaseDeadline, detail: str) -> None:
        """Warn once when a phase is slow and once when it stalls."""
        state = self.state
        spent_s, quiet_s = poll.at_s - state.since_s, poll.at_s - state.moved_s
        if not state.stall_noted and 0 < allowed.stall_s < quiet_s:
            self.state = replace(state, stall_noted=True, late_noted=True)
            name = self.settings.subject.facts.get("name", "NAME")
            self.listener.line(_stall(state.phase, quiet_s, allowed, detail, name))
        elif not state.late_noted and spent_s > _late_after_s(allowed.expected_s):
            self.state = replace(state, late_noted=True)
            self.listener.line(_late(state.phase, spent_s, allowed.expected_s, poll.reading.last_line))

    def _note_extension(self, poll: PollResult, deadlines: PhaseDeadlines) -> None:
        state, allowed = self.state, deadlines.of_phase(self.state.phase)
        regular_s = state.since_s + allowed.deadline_s
        if poll.at_s >= regular_s and deadlines.ends_at_s(state) > regular_s:
            self._note_once(
                f"{state.phase} is past its deadline of {allowed.deadline_s:.0f} s but still makes progress; "
                f"it may take up to {allowed.limit_s:.0f} s"
            )

    def _note_once(self, text: str) -> None:
        if text not in self.noted:
            self.noted.add(text)
            self.listener.line(text)

    def _elapsed(self) -> float:
        return self.clock.monotonic() - self.started

    def _ready_report(self, poll: PollResult) -> ReadyReport:
        last = PhaseTiming(phase=self.state.phase, took_s=poll.at_s - self.state.since_s)
        return ReadyReport(
            address=poll.machine.address or "",
            elapsed_s=poll.at_s,
            phases=(*self.state.passed, last),
            kv_capacity_tokens=poll.reading.progress.kv_capacity_tokens,
            max_total_tokens=poll.reading.progress.max_total_tokens,
        )


_UNHEALTHY_NOTE: Final = {_UNHEALTHY: ": it was up and is unhealthy now"}


def _detail(state: WaitState, poll: PollResult, allowed: PhaseDeadline) -> str:
    if poll.reading.startup_phase != state.phase:
        return ""
    return detail_of(
        state.phase,
        poll.reading.progress,
        amount_mb=allowed.amount_mb,
        quiet_s=poll.at_s - state.moved_s,
        left_s=allowed.expected_s - (poll.at_s - state.since_s),
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
        f"'tgi-deploy diagnose {name}' finds the cause"
    )
