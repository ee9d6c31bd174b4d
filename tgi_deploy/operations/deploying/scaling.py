"""The number of replicas of a running deployment: `scale`, and `up` with another --replicas.

The revision stays the same, so that nothing restarts. The number is recorded before the call: the same command again
finishes a killed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError, InputError, Problem, warning
from tgi_deploy.operations.deploying.current_state import at_hand
from tgi_deploy.operations.deploying.readiness import wait
from tgi_deploy.operations.watching.ledger import RESIZED
from tgi_deploy.operations.watching.limits import LeaseKeeper
from tgi_deploy.planner.time_to_ready import planned_again
from tgi_deploy.reconcile.executor import event_data
from tgi_deploy.targets.protocol import Scaling
from tgi_deploy.values.base import replaced
from tgi_deploy.values.supply import usd_per_month

if TYPE_CHECKING:
    from tgi_deploy.operations.context import Context
    from tgi_deploy.readiness.waiting import ReadyReport
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.supply import CostLine


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleOutcome:
    """`before` is the number on record; `ready` is None if nothing was waited for."""

    deployment: Deployment
    before: int
    replicas: int
    ready: ReadyReport | None = None


def scale(context: Context, name: str, replicas: int, *, wait: bool = True) -> ScaleOutcome:
    """Change the number of replicas, and wait until all of them are ready.

    Raises:
        InputError: `unknown_deployment`, `not_scalable`.
        ConflictError: `locked`, `being_removed`, `update_unfinished`, `name_taken`.
        DeployError: `no_free_gpus`, `cluster_quota`: nothing has changed; NotHealthyError for replicas that do
            not become ready: the others serve.
    """
    with context.store.lock(name, command=context.command):
        recorded = at_hand(context, name).recorded
        if recorded is None or recorded.plan is None:
            raise InputError(
                "not_scalable",
                f"'{name}' has no record on this computer, which has what a replica needs",
                hint="use the computer that brought it up; the same 'up' here takes it over if nothing differs",
            )
        return resized(context, recorded, replicas, wait=wait)


def resized(context: Context, deployment: Deployment, replicas: int, *, wait: bool) -> ScaleOutcome:
    """Give a recorded deployment that many replicas. Raises like `scale`."""
    before, machine = size_of(deployment), deployment.machine
    _check_room(context, deployment, replicas)
    deployment = context.executor().save(_with_size(deployment, replicas))
    if machine is not None:
        context.cloud(machine.place).handler(machine.kind).update(machine.attributes, {"replicas": replicas})
        data = event_data(machine, machine.attributes, deployment)
        context.executor().event(deployment, RESIZED, f"{before} replicas became {replicas}", data=data)
    ready = _all_ready(context, deployment) if wait else None
    return ScaleOutcome(deployment=deployment, before=before, replicas=replicas, ready=ready)


def size_of(deployment: Deployment) -> int:
    """Return the recorded number of replicas."""
    return deployment.plan.chosen.replicas if deployment.plan else 1


def keeping_size(plan: Plan, recorded: Deployment | None) -> Plan:
    """Return the plan for as many replicas as recorded, if they are enough and the request allows that many."""
    size = 0 if recorded is None else size_of(recorded)
    if not plan.chosen.replicas <= size <= (plan.request.replicas.most or size):
        return plan
    cost = replaced(plan.chosen.cost, lines=_sized(plan.chosen.cost.lines, plan.chosen.replicas, size))
    return replaced(plan, chosen=replaced(plan.chosen, replicas=size, cost=cost))


def with_replicas(
    context: Context, plan: Plan, deployment: Deployment, *, dry_run: bool, wait: bool
) -> tuple[Deployment, tuple[Problem, ...]]:
    """Give an existing deployment the plan's number of replicas; return the record and a remark."""
    before, replicas = size_of(deployment), plan.chosen.replicas
    if before == replicas or deployment.plan is None:
        return deployment, ()
    if dry_run:
        return deployment, (warning("replicas_changed", f"{before} replicas would become {replicas}"),)
    deployment = resized(context, deployment, replicas, wait=wait).deployment
    return deployment, (warning("replicas_changed", f"{before} replicas became {replicas}"),)


def _with_size(deployment: Deployment, replicas: int) -> Deployment:
    revision = deployment.current
    if revision.plan is None:
        return deployment
    plan, before = revision.plan, revision.plan.chosen.replicas
    lines = _sized(plan.cost.lines, before, replicas)
    price = plan.cost.usd_per_hour * replicas / before
    cost = replaced(plan.cost, lines=lines, usd_per_hour=price, usd_per_month=usd_per_month(price))
    asked = plan.requirements.replicas
    pools = tuple(
        pool
        if pool.machine_usd_per_hour is None or asked.least < (asked.most or 0)  # then it is the bill of the most
        else replaced(pool, machine_usd_per_hour=pool.machine_usd_per_hour * replicas / before)
        for pool in revision.pools
    )
    sized = replaced(plan, chosen=replaced(plan.chosen, replicas=replicas), cost=cost)
    return deployment.with_revision(replaced(revision, plan=sized, pools=pools))


def _sized(lines: tuple[CostLine, ...], before: int, after: int) -> tuple[CostLine, ...]:
    """Return the bill of another number of replicas."""
    return tuple(replaced(line, usd_per_hour=line.usd_per_hour * after / before) for line in lines)


def _check_room(context: Context, deployment: Deployment, replicas: int) -> None:
    target = context.target(deployment.target)
    if not isinstance(target, Scaling):
        raise InputError(
            "not_scalable",
            f"'{deployment.name}' has one machine on {target.name}, where a deployment has one replica",
            hint="bring up each replica under a different --name",
        )
    more = replicas - target.running(deployment)
    shortage = target.shortage(deployment, more) if more > 0 else None
    if shortage is not None:
        raise DeployError(
            shortage.code,
            f"scaling '{deployment.name}' to {replicas}: {shortage.message}",
            hint=f"{shortage.hint}; nothing has changed",
        )


def _all_ready(context: Context, deployment: Deployment) -> ReadyReport:
    plan = deployment.plan
    if plan is None:
        raise ValueError("the record has no plan")
    phases = planned_again(plan.time_to_ready, plan.storage, emptied=True)
    return wait(LeaseKeeper.of(context, deployment).kept_by(context), deployment, phases)
