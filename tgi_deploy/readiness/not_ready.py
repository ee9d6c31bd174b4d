"""Errors for a machine that did not become ready, with the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.diagnosis.finding import diagnosis_of
from tgi_deploy.errors import DeployError, Failure, NotHealthyError
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from tgi_deploy.readiness.deadlines import PhaseDeadlines
    from tgi_deploy.readiness.spot import SpotNotice
    from tgi_deploy.readiness.waiting import Sighting, Track
    from tgi_deploy.values.resource import MachineState
    from tgi_deploy.values.results import Finding

_RECLAIMED_HINT: Final = "run 'up' again for another spot machine, or with --market on-demand for one that stays"
_DEATH_HINT: Final = "run 'up' again for a new machine; if it dies again, try another region or instance type"


def machine_died(track: Track, sighting: Sighting) -> DeployError:
    machine = sighting.machine
    return DeployError(
        "spot_reclaimed" if machine.reclaimed else "machine_died",
        f"waiting for the engine, phase {track.phase}: the machine {machine.description}",
        hint=_RECLAIMED_HINT if machine.reclaimed else _death_hint(machine, sighting.state_cause),
        data=_data(track, sighting),
        failure=_failure(track.phase, sighting, sighting.state_cause),
    )


def reclaimed(track: Track, sighting: Sighting, notice: SpotNotice) -> DeployError:
    return DeployError(
        "spot_reclaimed",
        f"waiting for the engine, phase {track.phase}: {notice}",
        hint=_RECLAIMED_HINT,
        data={**_data(track, sighting), "action": notice.action, "time": notice.time},
        failure=_failure(track.phase, sighting, None),
    )


def not_created(track: Track, sighting: Sighting) -> DeployError:
    machine = sighting.machine
    return DeployError(
        machine.refusal,
        f"waiting for the engine, phase {track.phase}: {machine.why}",
        hint=machine.remedy,
        data=_data(track, sighting),
        failure=_failure(track.phase, sighting, sighting.state_cause),
    )


def _death_hint(machine: MachineState, cause: Finding | None) -> str:
    """Return the target's remedy, else the table's remedy for the state's reason, and where to read more."""
    if cause is None or machine.remedy:
        return machine.remedy or _DEATH_HINT
    return hint_of(cause.remedy, cause.code)


def engine_failed(track: Track, sighting: Sighting, finding: Finding | None) -> NotHealthyError:
    reading = sighting.reading
    if finding is not None:
        reason = f"{finding.cause} ({finding.code}) Evidence: {finding.evidence}"
        hint = hint_of(finding.remedy_line, finding.code)
    else:
        code = reading.latest.exit_code
        ended = "repeatedly" if code in (None, -1) else f"with code {code}"
        reason = f"the engine exited {ended}. Evidence: {reading.error_line or reading.last_line or 'its log is empty'}"
        hint = "read its whole log with 'logs NAME'; 'diagnose NAME' finds its cause"
    # The log may already be at the next start.
    phase = finding.startup_phase if finding else reading.startup_phase
    return NotHealthyError(
        "engine_failed",
        f"waiting for the engine, phase {phase}: {reason}",
        hint=hint,
        data=_data(track, sighting),
        failure=_failure(phase, sighting, finding),
    )


def started_on_wrong_device(track: Track, sighting: Sighting, finding: Finding) -> NotHealthyError:
    error = wrong_device(f"waiting for the engine, phase {finding.startup_phase}", finding)
    return error.copy(data=_data(track, sighting), failure=_failure(finding.startup_phase, sighting, finding))


def wrong_device(doing: str, finding: Finding) -> NotHealthyError:
    """Return the error for an engine that does not run on the planned accelerators; it may still answer."""
    return NotHealthyError(
        "wrong_device",
        f"{doing}: {finding.cause} ({finding.code}) Evidence: {finding.evidence}",
        hint=hint_of(finding.remedy_line, finding.code),
        failure=Failure(diagnosis=diagnosis_of(finding)),
    )


def timed_out(track: Track, sighting: Sighting, patience: PhaseDeadlines, name: str = "NAME") -> NotHealthyError:
    reading, allowed = sighting.reading, patience.of_phase(track.phase)
    finding = reading.findings[0] if reading.findings else None
    quiet_s = sighting.at_s - track.moved_s
    stalled = track.evident and 0 < allowed.stall_s <= quiet_s
    limit, allowed_s = _limit(track, sighting, patience)
    last_line = finding.evidence if finding else reading.last_line
    message = (
        f"waiting for the engine, phase {track.phase}: not ready within {limit}"
        + (f", without progress for {quiet_s:.0f} s" if stalled else "")
        + f". Health check: {sighting.probe or 'no address yet'}. Last line of the log: {last_line or 'none yet'}"
    )
    hint = f"{diagnose_hint(name)}; keep waiting by running 'up' again, or remove it with 'down {name}'"
    return NotHealthyError(
        "not_ready",
        message,
        hint=hint_of(finding.remedy_line, finding.code) if finding else hint,
        data={
            **_data(track, sighting),
            "deadline_s": allowed_s,
            "stalled_s": round(quiet_s, 3) if stalled else None,
        },
        failure=_failure(track.phase, sighting, finding),
    )


def _limit(track: Track, sighting: Sighting, patience: PhaseDeadlines) -> tuple[str, float]:
    """Return the limit that passed, in words and in seconds."""
    allowed = patience.of_phase(track.phase)
    own_s = max(allowed.deadline_s, patience.stretched_to_s(track) - track.since_s)
    if not track.evident or sighting.at_s < track.since_s + own_s:
        return f"the {patience.overall_s:.0f} s for all phases", patience.overall_s
    return f"the {own_s:.0f} s for this phase", own_s


def diagnose_hint(name: str) -> str:
    return f"'diagnose {name}' finds the cause"


def hint_of(remedy: str, code: str) -> str:
    """Return a remedy as a hint. Hints start lower-case and end without a period, so that they can be joined."""
    return f"{remedy[:1].lower()}{remedy[1:].removesuffix('.')}; more: 'tgi-deploy explain {code}'"


def _failure(phase: str, sighting: Sighting, finding: Finding | None) -> Failure:
    """Return the failure; without a finding, the log's last error is the evidence."""
    diagnosis = diagnosis_of(finding)
    if finding is None:
        diagnosis = replaced(diagnosis, evidence=sighting.reading.error_line or sighting.reading.last_line)
    return Failure(phase=phase, diagnosis=diagnosis)


def _data(track: Track, sighting: Sighting) -> dict[str, Any]:
    """Return the report's data: seconds, and the codes of the cloud and the table."""
    reading, machine = sighting.reading, sighting.machine
    return {
        "phase_elapsed_s": round(sighting.at_s - track.since_s, 3),
        "elapsed_s": round(sighting.at_s, 3),
        "phases": [{"phase": item.phase, "took_s": round(item.took_s, 3)} for item in track.passed],
        "last_line": reading.last_line,
        "exit_code": reading.latest.exit_code,
        "machine": {"state": machine.state, "reason_code": machine.reason_code, "reason": machine.reason},
        "probe": None if sighting.probe is None else str(sighting.probe),
    }
