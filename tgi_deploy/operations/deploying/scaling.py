"""Changes the number of replicas of a running deployment: `scale`, and `up` with another --replicas.

The revision stays the same, so no replica restarts. Within a range, the target adjusts the number to the load. Both
number and range are recorded before the call, so that the same command finishes a killed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tgi_deploy.errors import DeployError, InputError, Problem, warning
from tgi_deploy.operations.deploying.current_state import current_machine
from tgi_deploy.operations.deploying.readiness import all_ready
from tgi_deploy.operations.planning.option_texts import replicas_of
from tgi_deploy.operations.watching.ledger import PRICED, RESIZED
from tgi_deploy.reconcile.executor import event_data
from tgi_deploy.targets.protocol import Scaling
from tgi_deploy.text import plural, quoted
from tgi_deploy.values.base import as_value, replaced
from tgi_deploy.values.plan_options import MOST_REPLICAS
from tgi_deploy.values.request import Replicas
from tgi_deploy.values.resource import TAG_PRICE
from tgi_deploy.values.supply import Headroom, usd_per_month

if TYPE_CHECKING:
    from tgi_deploy.operations.context import Context
    from tgi_deploy.readiness.waiting import ReadyReport
    from tgi_deploy.targets.protocol import LaunchRequest, TargetFacts
    from tgi_deploy.values.base import Value
    from tgi_deploy.values.deployment import Deployment, Pool, ResourceRecord
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.plan_document import PlanDocument, PlannedCost
    from tgi_deploy.values.supply import CostLine


@runtime_checkable
class Cutting(Protocol):
    """A target whose cloud may cut off requests when the number of replicas is reduced."""

    def cut_off(self, deployment: Deployment) -> Problem | None:
        """Return the warning about the requests that may be cut off; None if all have enough time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resizing:
    """A change of a running deployment's replicas. `warnings`: requests it may cut off, missing room, prices."""

    before: Replicas
    after: Replicas
    headroom: Headroom
    warnings: tuple[Problem, ...] = ()

    def sentence(self, change: str = "became") -> str:
        """Return the change as a sentence: `1 replica became 1..4`."""
        before = self.before
        number = f"{before.words} replicas" if before.varies else plural(before.least, "replica")
        return f"{number} {change} {self.after.words}"

    def remark(self, *, dry_run: bool) -> Problem:
        """Return the warning that the number has changed, or would."""
        return warning("replicas_changed", self.sentence("would become") if dry_run else self.sentence())


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleOutcome:
    """`before` is the number or range on record; `ready` is None if nothing was waited for.

    `remarks` are warnings that were reported before the change.
    """

    deployment: Deployment
    before: Replicas
    replicas: Replicas
    ready: ReadyReport | None = None
    remarks: tuple[Problem, ...] = ()


def scale(context: Context, name: str, replicas: Replicas, *, wait: bool = True) -> ScaleOutcome:
    """Change the number of replicas or its range, and wait until all of them are ready.

    Raises:
        InputError: `unknown_deployment`, `not_scalable`.
        ConflictError: `locked`, `being_removed`, `update_unfinished`, `name_taken`.
        DeployError: `no_free_gpus`, `cluster_quota`, `autoscaling_unavailable`, `endpoint_busy`,
            `replicas_out_of_range`, before any change.
        NotHealthyError: replicas do not become ready; the others serve.
    """
    with context.store.lock(name, command=context.command):
        recorded = current_machine(context, name).recorded
        if recorded is None or recorded.plan is None:
            raise InputError(
                "not_scalable",
                f"'{name}' has no record on this computer, and the settings of a new replica are only in the record",
                hint="use the computer that brought it up, or run the same 'up' here to adopt it if nothing differs",
            )
        own = as_value(recorded.current.options, context.target(recorded.target).options, "options")
        range_stays = context.target(recorded.target).facts.range_of_revision
        before = one(size_of(recorded)) if range_stays else bounds_of(recorded)
        resizing = _resizing(_scaling(context, recorded), recorded, before, replicas)
        for item in resizing.warnings:
            context.reporter.warn(item)
        if price := resizing.headroom.price_words:
            context.reporter.note(f"this costs up to {price} more")
        return resized(context, recorded, resizing, own, wait=wait)


def resized(
    context: Context, deployment: Deployment, resizing: Resizing, options: Value, *, wait: bool
) -> ScaleOutcome:
    """Set a recorded deployment's replicas. `options` are the target's. Raises the errors of `scale`."""
    target, machine, executor = _scaling(context, deployment), deployment.machine, context.executor()
    before, replicas = resizing.before, resizing.after
    range_stays = context.target(deployment.target).facts.range_of_revision
    changes = target.follow(deployment, replicas, options)
    sized = _with_size(deployment, replicas, bounds_of(deployment) if range_stays else replicas)
    deployment = executor.execute(executor.save(sized), changes)
    if machine is not None and not replicas.varies:
        context.cloud(machine.place).handler(machine.kind).update(machine.attributes, {"replicas": replicas.least})
    if machine is not None:
        data = event_data(machine, machine.attributes, deployment)
        executor.event(deployment, RESIZED, resizing.sentence(), data=data)
        _tag_price(context, deployment, machine)
    ready = all_ready(context, deployment) if wait else None
    if ready is not None:
        deployment = in_its_pool(context, deployment)
    return ScaleOutcome(deployment=deployment, before=before, replicas=replicas, ready=ready, remarks=resizing.warnings)


def in_its_pool(context: Context, deployment: Deployment) -> Deployment:
    """Record in which pool a deployment runs whose cloud chose it, and the price there: of several, the highest.

    Machines that an autoscaler adds later can come from any pool.
    """
    revision, machine = deployment.current, deployment.machine
    if machine is None or not revision.any_pool or bounds_of(deployment).varies:
        return deployment
    found = context.cloud(machine.place).handler(machine.kind).read(machine.attributes)
    kinds = found.attributes.get("instance_type", "").split(", ") if found is not None else []
    used = sorted((pool for pool in revision.pools if pool.instance_type in kinds), key=_price, reverse=True)
    if len(used) != len(kinds):
        return deployment
    pools = (*used, *(pool for pool in revision.pools if pool not in used))
    executor = context.executor()
    deployment = executor.save(deployment.with_revision(replaced(revision, pools=pools, any_pool=False)))
    text = f"{machine.attributes['id']} runs on {' and '.join(kinds)}"
    executor.event(deployment, PRICED, text, data=event_data(machine, machine.attributes, deployment))
    _tag_price(context, deployment, machine)
    return deployment


def _price(pool: Pool) -> Decimal:
    return pool.machine_usd_per_hour or Decimal(0)


def _tag_price(context: Context, deployment: Deployment, machine: ResourceRecord) -> None:
    """Tag a machine with its price now, for computers without the record. A failure is only a warning."""
    price = deployment.price_of(machine.key)
    if price is None:
        return
    try:
        context.cloud(machine.place).handler(machine.kind).update(machine.attributes, {"tags": {TAG_PRICE: str(price)}})
    except DeployError as problem:
        context.reporter.note(f"the tag with the price was not updated: {problem.message}")


def bounds_of(deployment: Deployment) -> Replicas:
    """Return the recorded range; without autoscaling, both bounds are the recorded number."""
    asked = deployment.plan.requirements.replicas if deployment.plan else Replicas()
    return asked if asked.varies else one(size_of(deployment))


def number_or_range(text: str) -> Replicas:
    """Parse the replicas for `scale`: `2` or `1..4`. Raises InputError `bad_option_value`."""
    found = replicas_of(text, MOST_REPLICAS)
    if found is None:
        raise InputError(
            "bad_option_value",
            f"{quoted(text)} is not a number of replicas",
            hint="write a number, as in 'tgi-deploy scale NAME 2', or a range, as in 'tgi-deploy scale NAME 1..4'",
        )
    return found


def one(number: int) -> Replicas:
    return Replicas(least=number, most=number)


def size_of(deployment: Deployment) -> int:
    """Return the recorded number of replicas."""
    return deployment.plan.chosen.replicas if deployment.plan else 1


def keeping_size(plan: Plan, recorded: Deployment | None, facts: TargetFacts, *, back: bool = False) -> Plan:
    """Return the plan with the recorded number of replicas, if that is enough and the request allows it.

    If the request leaves the number open, a recorded range stays, unless ranges belong to revisions (see `facts`).
    With `back`, the plan is for an earlier revision, whose own size does not count.
    """
    of_revision = facts.range_of_revision
    kept = bounds_of(recorded) if recorded and not of_revision else Replicas()
    if kept.varies and (back or plan.request.replicas.most is None):
        number = min(max(plan.chosen.replicas, kept.least), kept.most or 0)
        return replaced(_planned(plan, number), request=replaced(plan.request, replicas=kept))
    if plan.request.replicas.varies and not of_revision:
        return plan
    size = 0 if recorded is None else size_of(recorded)
    enough = plan.chosen.replicas <= size <= (plan.request.replicas.most or size)
    return _planned(plan, size) if enough else plan


def _planned(plan: Plan, number: int) -> Plan:
    cost = replaced(plan.chosen.cost, lines=_sized(plan.chosen.cost.lines, plan.chosen.replicas, number))
    return replaced(plan, chosen=replaced(plan.chosen, replicas=number, cost=cost))


def resizing_of(context: Context, request: LaunchRequest, deployment: Deployment) -> Resizing | None:
    """Return how the plan changes the replicas of an existing deployment; None if they stay. Raises as `scale` does."""
    asked, target = request.plan.request.replicas, context.target(deployment.target)
    if deployment.plan is None or not isinstance(target, Scaling):
        return None
    replicas = asked if asked.varies else one(request.plan.chosen.replicas)
    live = target.autoscaler(deployment)
    before = Replicas(least=live.least, most=live.most) if live else one(size_of(deployment))
    if before == replicas and asked.most is not None and not asked.varies:
        before = one(target.running(deployment))  # a change may have been killed after it was recorded
    if before == replicas:
        return None
    return _resizing(target, deployment, before, replicas)


def _with_size(deployment: Deployment, replicas: Replicas, range_: Replicas) -> Deployment:
    """Return the record with `range_`, a number of replicas within `replicas`, and the bill for that number."""
    revision = deployment.current
    if revision.plan is None:
        return deployment
    plan, before = revision.plan, revision.plan.chosen.replicas
    number = min(max(before, replicas.least), replicas.most or replicas.least)
    pools = tuple(
        pool
        if pool.machine_usd_per_hour is None
        or plan.requirements.replicas.varies  # a range is billed by its upper bound
        else replaced(pool, machine_usd_per_hour=pool.machine_usd_per_hour * number / before)
        for pool in revision.pools
    )
    asked, chosen = plan.requirements, replaced(plan.chosen, replicas=number)
    if range_.varies or asked.replicas.varies:
        asked = replaced(asked, replicas=range_)
    sized = replaced(plan, chosen=chosen, cost=_cost_of(plan, number), requirements=asked)
    return deployment.with_revision(replaced(revision, plan=sized, pools=pools, any_pool=len(pools) > 1))


def _cost_of(plan: PlanDocument, number: int) -> PlannedCost:
    price = plan.cost.usd_per_hour * number / plan.chosen.replicas
    lines = _sized(plan.cost.lines, plan.chosen.replicas, number)
    return replaced(plan.cost, lines=lines, usd_per_hour=price, usd_per_month=usd_per_month(price))


def _sized(lines: tuple[CostLine, ...], before: int, after: int) -> tuple[CostLine, ...]:
    """Return the cost lines for another number of replicas."""
    return tuple(replaced(line, usd_per_hour=line.usd_per_hour * after / before) for line in lines)


def _scaling(context: Context, deployment: Deployment) -> Scaling:
    target = context.target(deployment.target)
    if not isinstance(target, Scaling):
        raise InputError(
            "not_scalable",
            f"'{deployment.name}' runs on {target.name}, where a deployment has only one replica",
            hint="bring up each replica under a different --name",
        )
    return target


def _resizing(target: Scaling, deployment: Deployment, before: Replicas, replicas: Replicas) -> Resizing:
    """Return the change with its warnings and its price.

    Raises DeployError for a shortage of room; a range may have room for its least number only.
    """
    running = target.running(deployment)
    cut = target.cut_off(deployment) if replicas.least < running and isinstance(target, Cutting) else None
    more = (replicas.most or replicas.least) > running
    headroom = target.headroom(deployment, running, replicas) if more else Headroom()
    for shortage in headroom.problems:
        if shortage.severity == "error":
            raise DeployError(
                shortage.code,
                f"scaling '{deployment.name}' to {replicas.words}: {shortage.message}",
                hint=f"{shortage.hint}; nothing has changed",
            )
    return Resizing(
        before=before,
        after=replicas,
        headroom=headroom,
        warnings=(*([cut] if cut is not None else ()), *headroom.problems),
    )
