"""What a failed `up` tells: phase, cause, evidence, remedy, and what still costs money.

The keys of such an error's data, beside what the failure itself knows: `phase`, `finding` (a code of the table of
diagnosis, or null), `cause`, `evidence`, `line` (of the machine's log, or null), `remedy`, `command`, `deployment` (its
name), `fate` (`kept`, `removed`, or `left` where the removal failed), `still_costs` (null when nothing is left) and
`receipt` (null while it runs). One that broke off has what is on record in `exists`: {kind, id, region, phase} each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.app.removing.receipt import document
from tgi_deploy.app.watching.broken_off import price_words, there
from tgi_deploy.app.watching.diagnose import diagnose_deployment
from tgi_deploy.app.watching.places import target_words, typed_model
from tgi_deploy.errors import DeployError, NotHealthyError
from tgi_deploy.reconcile.signatures import COMMAND
from tgi_deploy.reconcile.unready import hint_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.app.context import Context
    from tgi_deploy.app.removing.receipt import Receipt
    from tgi_deploy.reconcile.findings import Finding
    from tgi_deploy.reconcile.model import Deployment

PROOF: Final = "proof"
LEFT: Final = "left"
# These say all there is to say: what an engine that runs would log is beside the point.
_PLAIN: Final = frozenset({"wrong_model", "wrong_version", "limits_differ", "unauthorized", "kv_capacity_short"})
_ENDED: Final = frozenset({"spot_reclaimed", "machine_died"})
# A console is late: the reason of an answer that just failed may not stand in it yet.
_LOOKS: Final = 3
MADE_GONE: Final = "what this run has made was removed again; what was there before is kept"
GONE: Final = "everything was removed again; --on-failure keep leaves the machine and its log"
_LOOK_AGAIN: Final = "Keep the machine next time: 'diagnose' looks for the cause, and running 'up' again waits on."
# Shards hang that did nothing but wait for this share of the time that loading may take. All of it has passed by then;
# but of a long wait a console keeps the end alone: its 64 KiB hold six minutes of eight shards.
_HANG_SHARE: Final = 0.25


def explained(context: Context, deployment: Deployment, error: DeployError) -> DeployError:
    """The same failure with what the machine's log and state and the plan tell of it."""
    found = None if error.code in _PLAIN else _finding(context, deployment, error)
    known = error.data
    facts: dict[str, Any] = {
        "phase": known.get("phase") or PROOF,
        "finding": known.get("finding"),
        "cause": None,
        "evidence": known.get("evidence") or error.message.partition(": ")[2] or error.message,
        "line": None,
        "remedy": error.hint,
        "command": None,
    }
    if found is not None:
        facts |= {"finding": found.code, "cause": found.cause, "evidence": found.evidence, "line": found.line or None}
        facts |= {"remedy": found.remedy, "command": found.remedy.partition(COMMAND)[2] or None}
    return _like(error, error.hint, {**known, **facts})


def _like(error: DeployError, hint: str | None, data: Mapping[str, Any]) -> DeployError:
    kind = NotHealthyError if isinstance(error, NotHealthyError) else DeployError
    return kind(error.code, error.message, hint=hint, data=data)


def _finding(context: Context, deployment: Deployment, error: DeployError) -> Finding | None:
    """What a diagnosis says of it now: the cause that the wait has named already, if it has named one."""
    wanted = error.data.get("finding")
    looks = 1 if "phase" in error.data else _LOOKS
    for look in range(looks):
        if look:
            context.clock.sleep(context.pace.ready_poll_s)
        found = _diagnosed(context, deployment, error)
        if found:
            return next((item for item in found if item.code == wanted), None if wanted else found[0])
    return None


def _diagnosed(context: Context, deployment: Deployment, error: DeployError) -> Sequence[Finding]:
    """Nothing, where the machine or its log can't be asked any more."""
    allowed_s = error.data.get("deadline_s")
    hang_s = None if allowed_s is None else allowed_s * _HANG_SHARE
    try:
        ended = error.code in _ENDED
        return diagnose_deployment(context, deployment.name, hang_s=hang_s, ended=ended).diagnosis.findings
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
