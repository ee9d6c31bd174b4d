"""Errors for a machine that did not become ready, with the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.diagnosis.finding import diagnosis_of
from tgi_deploy.errors import DeployError, Failure, NotHealthyError
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from tgi_deploy.readiness.deadlines import PhaseDeadlines
    from tgi_deploy.readiness.spot import SpotNotice
    from tgi_deploy.readiness.waiting import PollResult, WaitState
    from tgi_deploy.values.resource import MachineState
    from tgi_deploy.values.results import Finding

_RECLAIMED_HINT: Final = "run 'up' again for another spot machine, or with --market on-demand for one that stays"
_DEATH_HINT: Final = "run 'up' again for a new machine; if it dies again, try another region or instance type"


def machine_died(state: WaitState, poll: PollResult) -> DeployError:
    machine = poll.machine
    return DeployError(
        "spot_reclaimed" if machine.reclaimed else "machine_died",
        f"waiting for the engine, phase {state.phase}: the machine {machine.description}",
        hint=_RECLAIMED_HINT if machine.reclaimed else _death_hint(machine, poll.state_cause),
        data=_data(state, poll),
        failure=_failure(state.phase, poll, poll.state_cause),
    )


def reclaimed(state: WaitState, poll: PollResult, notice: SpotNotice) -> DeployError:
    return DeployError(
        "spot_reclaimed",
        f"waiting for the engine, phase {state.phase}: {notice}",
        hint=_RECLAIMED_HINT,
        data={**_data(state, poll), "action": notice.action, "time": notice.time},
        failure=_failure(state.phase, poll, None),
    )


def not_created(state: WaitState, poll: PollResult) -> DeployError:
    machine = poll.machine
    return DeployError(
        machine.refusal,
        f"waiting for the engine, phase {state.phase}: {machine.why}",
        hint=machine.remedy,
        data=_data(state, poll),
        failure=_failure(state.phase, poll, poll.state_cause),
    )


def _death_hint(machine: MachineState, cause: Finding | None) -> str:
    """Return the target's remedy, else the diagnosis table's for the state's reason, with a command to read more."""
    if cause is None or machine.remedy:
        return machine.remedy or _DEATH_HINT
    return hint_of(cause.remedy, cause.code)


def engine_failed(state: WaitState, poll: PollResult, finding: Finding | None) -> NotHealthyError:
    reading = poll.reading
    if finding is not None:
        reason = f"{finding.cause} ({finding.code}) Evidence: {finding.evidence}"
        hint = hint_of(finding.remedy_line, finding.code)
    else:
        code = reading.latest.exit_code
        ended = "repeatedly" if code in (None, -1) else f"with code {code}"
        reason = f"the engine exited {ended}. Evidence: {reading.error_line or reading.last_line or 'its log is empty'}"
        hint = "read its whole log with 'tgi-deploy logs NAME'; 'tgi-deploy diagnose NAME' finds its cause"
    # The log may already be at the next start.
    phase = finding.startup_phase if finding else reading.startup_phase
    return NotHealthyError(
        "engine_failed",
        f"waiting for the engine, phase {phase}: {reason}",
        hint=hint,
        data=_data(state, poll),
        failure=_failure(phase, poll, finding),
    )


def started_on_wrong_device(state: WaitState, poll: PollResult, finding: Finding) -> NotHealthyError:
    error = wrong_device(f"waiting for the engine, phase {finding.startup_phase}", finding)
    return error.copy(data=_data(state, poll), failure=_failure(finding.startup_phase, poll, finding))


def wrong_device(doing: str, finding: Finding) -> NotHealthyError:
    """Return the error for an engine that does not run on the planned accelerators; it may still answer."""
    return NotHealthyError(
        "wrong_device",
        f"{doing}: {finding.cause} ({finding.code}) Evidence: {finding.evidence}",
        hint=hint_of(finding.remedy_line, finding.code),
        failure=Failure(diagnosis=diagnosis_of(finding)),
    )


def timed_out(state: WaitState, poll: PollResult, deadlines: PhaseDeadlines) -> NotHealthyError:
    reading, allowed = poll.reading, deadlines.of_phase(state.phase)
    finding = reading.findings[0] if reading.findings else None
    quiet_s = poll.at_s - state.moved_s
    stalled = state.phase_seen and 0 < allowed.stall_s <= quiet_s
    limit, allowed_s = _limit(state, poll, deadlines)
    last_line = finding.evidence if finding else reading.last_line
    message = (
        f"waiting for the engine, phase {state.phase}: not ready within {limit}"
        + (f", without progress for {quiet_s:.0f} s" if stalled else "")
        + f". Health check: {poll.probe or 'no address yet'}. Last line of the log: {last_line or 'none yet'}"
    )
    hint = "'tgi-deploy diagnose NAME' finds the cause; the same 'up' keeps waiting"
    return NotHealthyError(
        "not_ready",
        message,
        hint=hint_of(finding.remedy_line, finding.code) if finding else hint,
        data={
            **_data(state, poll),
            "deadline_s": allowed_s,
            "stalled_s": round(quiet_s, 3) if stalled else None,
        },
        failure=_failure(state.phase, poll, finding),
    )


def _limit(state: WaitState, poll: PollResult, deadlines: PhaseDeadlines) -> tuple[str, float]:
    """Return the limit that passed, in words and in seconds."""
    allowed = deadlines.of_phase(state.phase)
    own_s = max(allowed.deadline_s, deadlines.stretched_to_s(state) - state.since_s)
    if not state.phase_seen or poll.at_s < state.since_s + own_s:
        return f"the {deadlines.overall_s:.0f} s for all phases", deadlines.overall_s
    return f"the {own_s:.0f} s for this phase", own_s


def hint_of(remedy: str, code: str) -> str:
    """Return a remedy as a hint. Hints start lower-case and end without a period, so that they can be joined."""
    return f"{remedy[:1].lower()}{remedy[1:].removesuffix('.')}; more: 'tgi-deploy explain {code}'"


def _failure(phase: str, poll: PollResult, finding: Finding | None) -> Failure:
    """Return the failure; without a finding, the log's last error is the evidence."""
    diagnosis = diagnosis_of(finding)
    if finding is None:
        diagnosis = replaced(diagnosis, evidence=poll.reading.error_line or poll.reading.last_line)
    return Failure(phase=phase, diagnosis=diagnosis)


def _data(state: WaitState, poll: PollResult) -> dict[str, Any]:
    """Return the data of the report. Times are in seconds since the start of the wait or of the phase."""
    reading, machine = poll.reading, poll.machine
    return {
        "phase_elapsed_s": round(poll.at_s - state.since_s, 3),
        "elapsed_s": round(poll.at_s, 3),
        "phases": [{"phase": item.phase, "took_s": round(item.took_s, 3)} for item in state.passed],
        "last_line": reading.last_line,
        "exit_code": reading.latest.exit_code,
        "machine": {"state": machine.state, "reason_code": machine.reason_code, "reason": machine.reason},
        "probe": None if poll.probe is None else str(poll.probe),
    }
