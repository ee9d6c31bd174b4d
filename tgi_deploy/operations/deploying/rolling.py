"""Rolling updates: whether one is possible, and its end: promoted with the old machine gone, or withdrawn."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tgi_deploy.errors import ConflictError, DeployError, InputError, Problem, warning
from tgi_deploy.operations.removing.down import await_settled
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.operations.watching.limits import Running, keep_ceiling
from tgi_deploy.reconcile.claim import is_of_other_update, owned_by
from tgi_deploy.reconcile.ends import moved_tag, reads_tags
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.rollout.stages import (
    begin_update,
    has_outdated,
    mark_old_gone,
    mark_promoted,
    mark_withdrawn,
    outdated_steps,
    serving_resources,
)
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_EXPIRES, ChangeSet, revision_of
from tgi_deploy.values.serving import url_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.rollout import Again
    from tgi_deploy.targets.protocol import Attempt, Front
    from tgi_deploy.values.deployment import Deployment, Revision, Strategy
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.resource import Found


def front_of(context: Context, deployment: Deployment) -> Front | None:
    return context.target(deployment.target).front(context, deployment)


def serves_on(deployment: Deployment, seen: Sequence[Found]) -> bool:
    """Return whether the recorded machine, of two the one that serves, lives."""
    record = deployment.machine
    return any(found.alive and record is not None and found.id == record.attributes.get("id") for found in seen)


def taken_up(
    context: Context, recorded: Deployment, seen: Sequence[Found], *, same: Callable[[Deployment], bool]
) -> Deployment:
    """Return the record to go on from: a rolling update that is now requested differently is withdrawn first.

    One whose old machine has ended meanwhile goes on without it.
    """
    if recorded.rolling and not serves_on(recorded, seen):
        return mark_old_gone(recorded)
    if recorded.rolling and not same(recorded):
        context.reporter.note(f"the update to revision {recorded.wanted.number} was not finished; rolling it back")
        return mark_withdrawn(recorded)
    return recorded


def begin(
    context: Context,
    recorded: Deployment,
    revision: Revision,
    seen: Sequence[Found],
    *,
    asked: Strategy | None,
    wait: bool,
) -> Deployment:
    """Return the record of an update, a rolling one where that can be, in the name of who updates.

    Raises ConflictError `cannot_roll`.
    """
    recorded = replaced(recorded, owner=context.owner or recorded.owner)
    rolling = begin_update(recorded, revision, "rolling")
    why = _obstacle(context, rolling, seen, wait=wait)
    if asked == "rolling" and why:
        raise _cannot_roll(recorded, why)
    return begin_update(recorded, revision, "recreate") if why or asked == "recreate" else rolling


def _obstacle(context: Context, deployment: Deployment, seen: Sequence[Found], *, wait: bool) -> str:
    """Return why an update can't be rolling; empty if no reason is known."""
    if deployment.active is None or not serves_on(deployment, seen):
        return "nothing is serving that could keep serving during the update"
    if not wait:
        return "with --no-wait nothing would be proved before the old machine ends"
    front = front_of(context, deployment)
    return "two machines of this deployment can't run side by side" if front is None else front.no_room(deployment)


def _hindrance(deployment: Deployment, attempt: Attempt) -> str:
    """Return what of the old machine an attempt would take away while that machine serves; empty where nothing."""
    serving = deployment.machine
    if serving is not None and attempt.place != serving.place:
        return f"the new machine would run in {attempt.place}, but the resources that both share are in {serving.place}"
    taken = (step for step in attempt.changes.steps if step.action == "delete" and revision_of(step.key) is None)
    found = next(taken, None)
    return f"the {found.kind} that the old machine uses would be replaced" if found is not None else ""


def is_hindered(deployment: Deployment, attempt: Attempt, asked: Strategy | None) -> bool:
    """Return whether an attempt takes away what the old machine needs. Raises `cannot_roll` if it is to roll."""
    why = _hindrance(deployment, attempt)
    if why and asked == "rolling":
        raise _cannot_roll(deployment, why)
    return bool(why)


def _cannot_roll(deployment: Deployment, why: str) -> ConflictError:
    return ConflictError(
        "cannot_roll",
        f"updating '{deployment.name}' with --strategy rolling: {why}",
        hint="--strategy recreate ends the old machine first; nothing answers until the new one is proved",
    )


@contextmanager
def naming_recreate(deployment: Deployment) -> Iterator[None]:
    """Have what a second machine has no room or budget for name the update that does without."""
    try:
        yield
    except DeployError as error:
        if not deployment.rolling or error.code == "cannot_roll":
            raise
        other = "--strategy recreate needs no second machine: it ends the old one first"
        raise error.copy(hint=error.hint_and(other)) from error.__cause__


def spent_in_all(context: Context, serving: Deployment | None, plan: Plan, deployment: Deployment) -> Spent:
    """Return what a name has spent, and what the machine costs that serves until the new one has taken over."""
    spent, price = spent_by(context, deployment), serving.usd_per_hour if serving else None
    if serving is None or price is None:
        return spent
    longest_s = context.ready_deadline_s(plan.chosen) + serving.current.grace_s
    return replaced(spent, beside_usd_per_hour=price, beside_s=round(longest_s))


def share_ceiling(
    context: Context, deployment: Deployment, plan: Plan, attempt: Attempt, seen: Sequence[Found]
) -> Deployment:
    """Have the machine that serves end once both have spent --max-spend, as the new one will: nobody may come back.

    `alone_again` takes that back.
    """
    ceiling, rollout = attempt.ends.max_spend_usd, deployment.rollout
    expires_at = rollout.ends.expires_at if rollout and rollout.ends else None
    serving = next((found for found in serving_resources(deployment, seen) if found.is_machine and found.alive), None)
    if ceiling is None or serving is None or not reads_tags(serving.tags):
        return deployment
    deployment = context.executor().save(replaced(deployment, ends=attempt.ends))
    spent = spent_in_all(context, deployment, plan, deployment)
    dearest = max(item.cost.usd_per_hour for item in (plan.chosen, *plan.fallbacks))
    left_s = max(1, int((ceiling - spent.usd) / (dearest + spent.beside_usd_per_hour) * 3600))
    now = context.clock.now().replace(microsecond=0)
    end = min(filter(None, (now + timedelta(seconds=left_s), expires_at)))
    handler = context.cloud(serving.place).handler(serving.kind)
    handler.complete(serving.attributes, {"tags": {TAG_EXPIRES: moved_tag(end, now)}})
    return deployment


def alone_again(
    context: Context, before: Deployment | None, deployment: Deployment, seen: Sequence[Found]
) -> Deployment:
    """Save the record, and give its machine what is left of its ceiling, if by the record `before` two shared one."""
    executor, record = context.executor(), deployment.machine
    shared = before is not None and before.rollout is not None and before.rollout.strategy == "rolling"
    if record is None or before is None or not shared or before.ends.max_spend_usd is None:
        return executor.save(deployment)
    machine = context.cloud(record.place).handler(record.kind).read(record.attributes)
    if machine is None or not machine.alive:
        return executor.save(deployment)
    around = (found for found in seen if not found.is_machine)
    at = Running(name=deployment.name, recorded=deployment, machine=machine, seen=(machine, *around))
    return keep_ceiling(context, at, deployment.ends.max_spend_usd or Decimal(0)).recorded or deployment


def promote(context: Context, deployment: Deployment, url: str) -> Deployment:
    """Record that the revision that is proved serves, and where. Of a first machine the traffic is sent there, too."""
    front, host = front_of(context, deployment), None
    machine = deployment.machine_at(deployment.wanted.number)
    if front is not None and front.stable and deployment.rolling:
        url = deployment.endpoint or url
    elif front is not None and machine is not None:
        host = front.shift(deployment, machine)
    if host is not None:
        url = url_of(host, urlsplit(url).port or 0)
    if deployment.rolling:
        return context.executor().save(mark_promoted(deployment, url))
    serving = replaced(deployment.in_state("serving"), status="ready", endpoint=url, rollout=None)
    return context.executor().save(serving)


def finish(context: Context, deployment: Deployment) -> Deployment:
    """Bring an update that is promoted to its end: the old machine drains and goes. Safe to repeat.

    Without one, delete what a lost request made for another revision. An error says which revision serves.
    """
    promoted = deployment.rollout is not None and deployment.rollout.stage == "promoted"
    if not promoted and (deployment.rollout is not None or not has_outdated(deployment)):
        return deployment
    try:
        if promoted:
            _hand_over(context, deployment)
        else:
            await_settled(context, deployment)
        return _without_outdated(context, deployment, replaced(deployment, rollout=None))
    except DeployError as error:
        now, name = f"revision {deployment.current.number} serves at {deployment.endpoint}", deployment.name
        words = f"{now}; the old machine still runs: the same 'up' ends it, 'tgi-deploy down {name}' ends both"
        raise error.copy(hint=error.hint_and(words)) from error.__cause__


def _hand_over(context: Context, deployment: Deployment) -> None:
    """Send new requests to the new machine, and wait until the old one has answered those that are open."""
    front, new = front_of(context, deployment), deployment.machine
    if front is None or new is None:
        return
    if not front.cuts:
        front.shift(deployment, new)
    _drain(context, deployment, front)
    if front.cuts:
        front.shift(deployment, new)


def _drain(context: Context, deployment: Deployment, front: Front) -> None:
    for machine in deployment.machines:
        number = revision_of(machine.key)
        if number != deployment.current.number and "id" in machine.attributes:
            context.reporter.note(f"revision {number} finishes its in-flight requests: {machine.attributes['id']}")
            front.drain(deployment, machine, (deployment.numbered(number) or deployment.current).grace_s)


def withdraw(context: Context, deployment: Deployment) -> Deployment:
    """Remove the resources of a rolling update before its promotion. Raises LeftBehindError."""
    await_settled(context, deployment)
    return _without_outdated(context, deployment, mark_withdrawn(deployment))


def _without_outdated(context: Context, deployment: Deployment, after: Deployment) -> Deployment:
    """Delete what is of no revision of the record that comes `after`, then save that."""
    executor = context.executor()
    there = owned_by(observe(deployment.name, deployment, cloud=context.cloud, places=deployment.places), deployment.id)
    # What another update has made under the same number is not ours to remove.
    seen = [item for item in there if not is_of_other_update(deployment, item)]
    deployment = executor.execute(deployment, ChangeSet(steps=outdated_steps(after, seen)))
    stay = {None, after.current.number}
    resources = tuple(item for item in deployment.resources if revision_of(item.key) in stay)
    after = replaced(after, resources=resources, serial=deployment.serial)
    return alone_again(context, deployment, after, seen)


def no_way_back(context: Context, again: Again, deployment: Deployment) -> tuple[Problem, ...]:
    """Warn before an update of what could not be put back, should the new revision fail."""
    source = deployment.numbered(deployment.rollout.source) if deployment.rollout else None
    if source is None or deployment.rolling:
        return ()
    try:
        again(source)
    except (ConflictError, InputError) as error:
        found = warning("no_way_back", f"if this fails, the old revision can't be restored: {error.message}")
        context.reporter.warn(found)
        return (found,)
    return ()
