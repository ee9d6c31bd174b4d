"""Extends the error of a failed `up` with the cause, the machine's state, and what still costs money."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.diagnosis.finding import diagnosis_of
from tgi_deploy.errors import ALL_WAS_REMOVED, CREATED_WAS_REMOVED, DeployError, Diagnosis, Failure, ResourceRef
from tgi_deploy.operations.watching.broken_off import price_words, still_running
from tgi_deploy.operations.watching.diagnose import diagnose_deployment, remedy_there
from tgi_deploy.operations.watching.lookup import target_option, typed_request
from tgi_deploy.readiness.not_ready import hint_of
from tgi_deploy.values.base import replaced
from tgi_deploy.values.results import command_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.receipt import Receipt
    from tgi_deploy.values.deployment import Deployment, Revision
    from tgi_deploy.values.results import Finding

PROOF: Final = "proof"
# Errors that need no diagnosis: the log of a running engine adds nothing to them.
_SELF_EXPLANATORY: Final = frozenset(
    {"wrong_model", "wrong_version", "limits_differ", "unauthorized", "kv_capacity_short"}
)
# Consoles lag: the cause of a request that just failed may not be in the log yet.
_LOOKS: Final = 3
_KEEP_HINT: Final = "Keep the machine next time: 'diagnose' finds the cause, and running 'up' again keeps waiting."


def with_diagnosis(context: Context, deployment: Deployment, error: DeployError) -> DeployError:
    """Return the error with the finding from the wait; after a failed probe, with the finding from the log."""
    failure = error.failure or Failure()
    if failure.phase is None:
        found = None if error.code in _SELF_EXPLANATORY else _finding(context, deployment)
        failure = replaced(failure, phase=PROOF, diagnosis=diagnosis_of(found))
    known = failure.diagnosis or Diagnosis()
    evidence = known.evidence or error.message.partition(": ")[2] or error.message
    remedy, command = known.remedy or error.hint, known.command
    if known.finding and remedy:
        remedy = remedy_there(context, remedy, deployment.machine.place if deployment.machine else deployment.region)
        command = command_of(remedy)
    known = replaced(known, evidence=evidence, remedy=remedy, command=command)
    return error.copy(failure=replaced(failure, diagnosis=known))


def _finding(context: Context, deployment: Deployment) -> Finding | None:
    """Return the log's finding for a ready engine that failed a probe; None if there is none."""
    for look in range(_LOOKS):
        if look:
            context.clock.sleep(context.pace.ready_poll_s)
        found = _findings(context, deployment)
        if found:
            return found[0]
    return None


def _findings(context: Context, deployment: Deployment) -> Sequence[Finding]:
    """Return the findings; none if the machine or its log is no longer readable."""
    try:
        return diagnose_deployment(context, deployment.name).reading.findings
    except DeployError:
        return ()


def report_kept(deployment: Deployment, error: DeployError, *, before: Sequence[ResourceRef] = ()) -> DeployError:
    """Return the error for a machine that is still running. `before` are the resources from before this run."""
    name, machine = deployment.name, deployment.machine
    known = machine is not None and machine.attributes.get("id") in {item.id for item in before}
    state = "is older than this run and is kept" if known else "is still running"
    log = f"'tgi-deploy logs {name}' shows its log"
    return _report(
        error,
        f"the machine {state}{price_words(deployment.billed_usd_per_hour)}: {log}, 'tgi-deploy down {name}' removes it",
        Failure(deployment=name, outcome="kept", still_running=still_running(deployment), before=tuple(before)),
        command=_diagnosis(error).command
        or f"tgi-deploy {'down' if error.code in _SELF_EXPLANATORY else 'diagnose'} {name}",
    )


def report_left(deployment: Deployment, error: DeployError, why: DeployError) -> DeployError:
    """Return the error for a machine whose removal failed because of `why`; assume that it still runs."""
    command = f"tgi-deploy down {deployment.name}"
    price = price_words(deployment.billed_usd_per_hour)
    left = Failure(deployment=deployment.name, outcome="not_removed", still_running=still_running(deployment))
    words = f"its removal failed ({why.message}), so it may still be running{price}; '{command}' removes it"
    return _report(error, words, left, command=command)


def report_removed(
    context: Context,
    deployment: Deployment,
    error: DeployError,
    receipt: Receipt | None,
    *,
    before: Sequence[ResourceRef] = (),
) -> DeployError:
    """Return the error for a failed machine that was removed; resources that existed `before` remain."""
    name, diagnosis = deployment.name, _diagnosis(error)
    typed = typed_request(context, deployment.plan, deployment.ends, own=deployment.current.options)
    again = f"tgi-deploy up {typed} --name {name}{target_option(context, deployment.region)}"
    unknown = diagnosis.cause is None and error.code not in _SELF_EXPLANATORY
    return _report(
        error,
        f"{CREATED_WAS_REMOVED}: 'tgi-deploy down {name}' removes it" if before else ALL_WAS_REMOVED,
        Failure(deployment=name, outcome="removed", receipt=receipt, before=tuple(before)),
        command=diagnosis.command or (again if error.code in _SELF_EXPLANATORY else f"{again} --on-failure keep"),
        remedy=_KEEP_HINT if unknown else None,
    )


def report_restored(error: DeployError, source: Revision, deployment: Deployment) -> DeployError:
    """Return the error for an update that failed and was rolled back, so that the old revision serves again."""
    now = deployment.current.number
    words = (
        f"what this update created was removed; revision {source.number} was restored as revision {now} and "
        f"{_serves(deployment)} at {deployment.endpoint}"
    )
    failure = replaced(error.failure or Failure(), deployment=deployment.name, outcome="removed")
    return error.copy(
        hint=error.hint_and(words),
        data={**error.problem.data, "restored": {"revision": now, "endpoint": deployment.endpoint}},
        failure=failure,
    )


def report_still_serving(deployment: Deployment, error: DeployError) -> DeployError:
    """Return the error for a failed rolling update whose resources were removed; the old revision kept serving."""
    number, url = deployment.current.number, deployment.endpoint
    words = f"what this update created was removed, and revision {number} still serves at {url}"
    failure = replaced(error.failure or Failure(), deployment=deployment.name, outcome="removed")
    data = {**error.problem.data, "serving": {"revision": number, "endpoint": url}}
    return error.copy(hint=error.hint_and(words), data=data, failure=failure)


def _serves(deployment: Deployment) -> str:
    return "serves" if deployment.status == "ready" else "runs"


def report_not_restored(deployment: Deployment, error: DeployError, second: DeployError) -> DeployError:
    """Return the error for an update that failed and could not be rolled back, because of `second`."""
    words = (
        f"what this update created was removed, but the previous revision could not be restored: {second.message}; "
        f"'tgi-deploy rollback {deployment.name}' tries again, 'tgi-deploy down {deployment.name}' removes it"
    )
    failure = second.failure or error.failure or Failure()
    failure = replaced(failure, deployment=deployment.name, outcome=failure.outcome or "removed")
    return error.copy(
        hint=error.hint_and(words),
        data={**error.problem.data, "restored": None},
        failure=failure,
    )


def _report(
    error: DeployError, state: str, outcome: Failure, *, command: str, remedy: str | None = None
) -> DeployError:
    """Return the error with the machine's state. `remedy` replaces the error's hint."""
    known, diagnosis = error.failure or Failure(), _diagnosis(error)
    hint = state if remedy else _hint(error, diagnosis, state)
    diagnosis = replaced(diagnosis, command=command, remedy=remedy or diagnosis.remedy)
    return error.copy(hint=hint, failure=replaced(outcome, phase=known.phase, step=known.step, diagnosis=diagnosis))


def _diagnosis(error: DeployError) -> Diagnosis:
    return (error.failure.diagnosis if error.failure else None) or Diagnosis()


def _hint(error: DeployError, diagnosis: Diagnosis, state: str) -> str:
    """Return the hint: remedy, documentation, and the machine's state."""
    if diagnosis.cause is None:
        return state if error.hint is None or "logs" in error.hint else f"{error.hint}; {state}"
    return f"{hint_of(str(diagnosis.remedy), str(diagnosis.finding))}; {state}"
