"""The use case `diagnose`: what went wrong, by a deployment's console, its machine's state and its plan. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.app.watching.logs import hide_secrets, locate
from tgi_deploy.app.watching.places import DOCKER, target_of, typed_model, up_there
from tgi_deploy.reconcile.diagnosis import HANG_S, Diagnosis, diagnose
from tgi_deploy.reconcile.signatures import COMMAND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.app.context import Context
    from tgi_deploy.reconcile.model import MachineState

# Where a fact of the remedies stands in the plan's document.
_IN_PLAN: Final = {
    "num_shard": ("chosen", "num_shard"),
    "context": ("requirements", "context_tokens"),
    "disk_gib": ("storage", "root_volume_gib"),
    "instance": ("chosen", "instance_type"),
}
_MARK: Final = "error: "
_UP: Final = "tgi-deploy up "
_PREFILL: Final = "--max-batch-prefill-tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """A diagnosis, and what the cloud says of the machine."""

    diagnosis: Diagnosis
    machine: MachineState


def diagnose_deployment(context: Context, name: str, *, hang_s: float | None = None, ended: bool = False) -> Examined:
    """Ask for the machine's state and console, and read both by the table; `hang_s` as there, or its own.

    `ended`: the machine is known to have ended, and what it wrote as it went is no cause.

    Raises:
        InputError: `unknown_deployment`.
        DeployError: `no_machine`, or what the cloud answers.
    """
    place, instance_id = locate(context, name)
    cloud = context.cloud(place)
    machine = cloud.machine(instance_id)
    log = cloud.console(instance_id) if machine.state != "missing" else ""
    recorded = context.store.load(name)
    facts = {"name": name} | (_facts(recorded.plan) if recorded else {})
    reason = _reason(place, machine)
    log = "" if ended and reason else hide_secrets(log)
    text = "\n".join(filter(None, (log, reason)))
    wait_s = HANG_S if hang_s is None else hang_s
    found = diagnose(text, context.phases(), facts=facts, hang_s=wait_s, planned=True)
    last_line = log.count("\n") + 1 if log else 0
    return Examined(diagnosis=_placed(found, place, last_line=last_line), machine=machine)


def _placed(found: Diagnosis, place: str, *, last_line: int) -> Diagnosis:
    """Remedies for the place; what only the state reason shows is no line of the log."""
    remedied = tuple(replace(item, remedy=_remedy(item.remedy, place)) for item in found.findings)
    findings = tuple(
        replace(item, line=0, evidence=item.evidence.removeprefix(_MARK)) if item.line > last_line else item
        for item in remedied
    )
    return replace(found, findings=findings)


def _remedy(remedy: str, place: str) -> str:
    sentence, _, command = remedy.partition(COMMAND)
    if command.startswith(_UP):
        return COMMAND.join(filter(None, (sentence, up_there(command, place))))
    return remedy


def _reason(place: str, machine: MachineState) -> str:
    """The state reason as a line that the table reads."""
    whose = "the container" if target_of(place) == DOCKER else "EC2 state reason of the machine"
    return f"{_MARK}{whose}: {machine.why}" if machine.why else ""


def _facts(plan: Mapping[str, Any]) -> dict[str, str]:
    found = {name: plan.get(part, {}).get(key) for name, (part, key) in _IN_PLAN.items()}
    if plan.get("model"):
        found["model"] = typed_model(plan)
    args = [str(word) for word in plan.get("engine", {}).get("args", ())]
    if _PREFILL in args[:-1]:
        found["prefill"] = args[args.index(_PREFILL) + 1]
    return {name: str(value) for name, value in found.items() if value is not None}
