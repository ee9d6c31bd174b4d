"""What a failed `up` tells: phase, cause, evidence, remedy, and what still costs money.

The keys of such an error's data, beside what the failure itself knows: `phase`, `finding` (a code of the table of
diagnosis, or null), `cause`, `evidence`, `line` (of the machine's log, or null), `remedy`, `command`, `deployment` (its
name), `fate` (`kept`, `removed`, or `left` where the removal failed), `still_costs` (null when nothing is left) and
`receipt` (null while it runs). One that broke off has what is on record in `exists`: {kind, id, region, phase} each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.diagnosis.finding import command_of, report_of
from tgi_deploy.errors import DeployError, NotHealthyError
from tgi_deploy.operations.removing.receipt import document
from tgi_deploy.operations.watching.broken_off import price_words, there
from tgi_deploy.operations.watching.diagnose import diagnose_deployment, remedy_there
from tgi_deploy.operations.watching.places import target_words, typed_model
from tgi_deploy.readiness.not_ready import hint_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.diagnosis.finding import Finding
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.receipt import Receipt
    from tgi_deploy.reconcile.model import Deployment

PROOF: Final = "proof"
LEFT: Final = "left"
# These say all there is to say: what an engine that runs would log is beside the point.
_PLAIN: Final = frozenset({"wrong_model", "wrong_version", "limits_differ", "unauthorized", "kv_capacity_short"})
# A console is late: the reason of an answer that just failed may not stand in it yet.
_LOOKS: Final = 3
MADE_GONE: Final = "what this run has made was removed again; what was there before is kept"
GONE: Final = "everything was removed again; --on-failure keep leaves the machine and its log"
_LOOK_AGAIN: Final = "Keep the machine next time: 'diagnose' looks for the cause, and running 'up' again waits on."


def explained(context: Context, deployment: Deployment, error: DeployError) -> DeployError:
    """Return the same failure with the finding that the wait has made, or for a question of the proof the log's."""
    known = {"phase": PROOF, **error.data}
    if "phase" not in error.data and "finding" not in error.data:
        known |= report_of(None if error.code in _PLAIN else _finding(context, deployment))
    evidence = known.get("evidence") or error.message.partition(": ")[2] or error.message
    remedy = known.get("remedy") or error.hint
    if known.get("finding") and remedy:
        remedy = remedy_there(remedy, _place(deployment))
        known["command"] = command_of(remedy)
    return _like(error, error.hint, {**report_of(None), **known, "evidence": evidence, "remedy": remedy})


def _place(deployment: Deployment) -> str:
    return deployment.machine.place if deployment.machine else deployment.region


def _like(error: DeployError, hint: str | None, data: Mapping[str, Any]) -> DeployError:
    kind = NotHealthyError if isinstance(error, NotHealthyError) else DeployError
    return kind(error.code, error.message, hint=hint, data=data)


def _finding(context: Context, deployment: Deployment) -> Finding | None:
    """Return what the log shows of an engine that was ready and failed a question; None where it shows nothing."""
    for look in range(_LOOKS):
        if look:
            context.clock.sleep(context.pace.ready_poll_s)
        found = _findings(context, deployment)
        if found:
            return found[0]
    return None


def _findings(context: Context, deployment: Deployment) -> Sequence[Finding]:
    """Return nothing where the machine or its log can't be asked any more."""
    try:
        return diagnose_deployment(context, deployment.name).reading.findings
    except DeployError:
        return ()


def kept(deployment: Deployment, error: DeployError, *, before: Sequence[Mapping[str, Any]] = ()) -> DeployError:
    """It still runs, and costs money. `before`: {kind, id, region} of each thing that was there before this run."""
    name, machine = deployment.name, deployment.machine
    known = machine is not None and machine.attributes.get("id") in {item["id"] for item in before}
    state = "was there before this run and is kept" if known else "still runs"
    told = f"the machine {state}{price_words(deployment.usd_per_hour)}: 'tgi-deploy logs {name}' shows its log, "
    command = f"tgi-deploy down {name}" if error.code in _PLAIN else f"tgi-deploy diagnose {name}"
    data = there(deployment, "kept") | {"command": error.data.get("command") or command, "before": list(before)}
    return _like(error, _hint(error, f"{told}'tgi-deploy down {name}' ends it"), {**error.data, **data})


def left(deployment: Deployment, error: DeployError, why: DeployError) -> DeployError:
    """It was to go, and `why` that failed: for all that is known it still runs, and costs money."""
    command = f"tgi-deploy down {deployment.name}"
    price = price_words(deployment.usd_per_hour)
    told = f"its removal failed ({why.message}): it may still run{price}; '{command}' removes it"
    data = there(deployment, LEFT) | {"command": command}
    return _like(error, _hint(error, told), {**error.data, **data})


def removed(
    deployment: Deployment, error: DeployError, receipt: Receipt | None, *, before: Sequence[Mapping[str, Any]] = ()
) -> DeployError:
    """The machine is gone, and costs nothing any more. What was there `before` is not."""
    again = f"tgi-deploy up {typed_model(deployment.plan)} --name {deployment.name}{target_words(deployment.region)}"
    command = again if error.code in _PLAIN else f"{again} --on-failure keep"
    data: dict[str, Any] = {
        "deployment": deployment.name,
        "fate": "removed",
        "still_costs": None,
        "receipt": document(receipt) if receipt else None,
        "before": list(before),
        "command": error.data.get("command") or command,
    }
    fate = f"{MADE_GONE}: 'tgi-deploy down {deployment.name}' ends it" if before else GONE
    if error.data["cause"] is None and error.code not in _PLAIN:
        data["remedy"] = _LOOK_AGAIN
        return _like(error, fate, {**error.data, **data})
    return _like(error, _hint(error, fate), {**error.data, **data})


def _hint(error: DeployError, fate: str) -> str:
    """What the failure calls for, where to read on, and what became of the machine."""
    if error.data["cause"] is None:
        return fate if error.hint is None or "logs" in error.hint else f"{error.hint}; {fate}"
    return f"{hint_of(str(error.data['remedy']), str(error.data['finding']))}; {fate}"
