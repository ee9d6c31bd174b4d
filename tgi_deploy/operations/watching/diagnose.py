"""The use case `diagnose`: finds the cause of a failure in a machine's console and state, and the plan. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.diagnosis.reader import HANG_S, Subject, read, state_line, without_mark
from tgi_deploy.operations.watching.logs import locate
from tgi_deploy.operations.watching.lookup import target_option, typed_request
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import UNQUANTIZED
from tgi_deploy.values.results import COMMAND, command_of, sentence_of

if TYPE_CHECKING:
    from tgi_deploy.diagnosis.reader import Reading
    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan import FrontierPoint
    from tgi_deploy.values.plan_document import Choice, PlanDocument
    from tgi_deploy.values.resource import MachineState

_UP: Final = "tgi-deploy up "


@dataclass(frozen=True, kw_only=True, slots=True)
class DeploymentDiagnosis:
    """The reading of the log, and the machine's state in the cloud."""

    reading: Reading
    machine: MachineState


def diagnose_deployment(context: Context, name: str) -> DeploymentDiagnosis:
    """Read the machine's state and its console.

    Raises:
        InputError: `unknown_deployment`.
        DeployError: `machine_missing`, or an error of the cloud.
    """
    deployment, place, instance_id = locate(context, name)
    cloud = context.cloud(place)
    machine = cloud.machine(instance_id)
    log = cloud.console(instance_id) if machine.state != "missing" else ""
    subject = subject_of(context, deployment, place)
    text = "\n".join(filter(None, (log, state_line(machine.why, subject))))
    found = read(text, context.grammar_of(deployment), subject=subject)
    last_line = log.count("\n") + 1 if log else 0
    return DeploymentDiagnosis(reading=_placed(context, found, place, last_line=last_line), machine=machine)


def subject_of(
    context: Context, deployment: Deployment, place: str, *, plan: PlanDocument | None = None, hang_s: float = HANG_S
) -> Subject:
    """Return the facts about a deployment's engine from outside its log. `plan` replaces the recorded one."""
    plan = plan or deployment.plan
    facts = {"name": deployment.name, **(_facts(context, plan, deployment) if plan else {})}
    label = context.target_at(place).facts.state_label
    return Subject(facts=facts, planned=True, hang_s=hang_s, state_label=label)


def remedy_there(context: Context, remedy: str, place: str) -> str:
    """Return a remedy with its command, if it has one, adapted to the location."""
    command = command_of(remedy)
    return remedy if command is None else COMMAND.join((sentence_of(remedy), *_there(context, (command,), place)))


def _there(context: Context, commands: tuple[str, ...], place: str) -> tuple[str, ...]:
    """Return the commands for the location, without those whose options have no effect there."""
    useless, option = context.target_at(place).facts.not_changed, target_option(context, place)
    return tuple(
        f"{command}{option}" if command.startswith(_UP) else command
        for command in commands
        if not (command.startswith(_UP) and useless.intersection(command.split()))
    )


def _placed(context: Context, found: Reading, place: str, *, last_line: int) -> Reading:
    """Return the reading with remedies for the location. A finding from the machine's state has no log line."""
    findings = (without_mark(item) if item.line > last_line else item for item in found.findings)
    return replace(
        found, findings=tuple(replaced(item, commands=_there(context, item.commands, place)) for item in findings)
    )


def _smaller(plan: PlanDocument) -> dict[str, str]:
    """Return facts about alternatives in the plan that need less memory on each accelerator."""
    others: tuple[Choice | FrontierPoint, ...] = (*plan.alternatives, *plan.fallbacks, *plan.frontier)
    shards = (item.num_shard for item in others if item.num_shard > plan.chosen.num_shard)
    schemes = (item.quantize for item in others if item.quantize != plan.chosen.quantize == UNQUANTIZED)
    found = {"more_shards": min(shards, default=None), "fewer_bits": next(schemes, None)}
    return {fact: str(value) for fact, value in found.items() if value is not None}


def _facts(context: Context, plan: PlanDocument, deployment: Deployment) -> dict[str, str]:
    """Return the values for placeholders in remedies. MODEL includes the caller's options; later options win."""
    found = {
        "num_shard": str(plan.chosen.num_shard),
        "context": str(plan.requirements.context_tokens),
        "disk_gib": str(plan.storage.root_volume_gib),
        "instance": plan.chosen.instance_type,
        "model": typed_request(context, plan, deployment.ends, own=deployment.wanted.options),
    }
    found |= _smaller(plan)
    args = plan.engine.args
    for fact, flag in context.engine(plan.engine.name).remedy_flags:
        if flag in args[:-1]:
            found[fact] = args[args.index(flag) + 1]
    return found
