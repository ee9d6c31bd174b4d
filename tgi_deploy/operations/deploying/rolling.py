"""Rolling updates: decides whether one is possible, promotes it and removes the old machine, or withdraws it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tgi_deploy.errors import ConflictError, DeployError, InputError, LeftBehindError, NotHealthyError, Problem, warning
from tgi_deploy.operations.deploying.claim import reject_newer
from tgi_deploy.operations.deploying.rollout import SteppedFront
from tgi_deploy.operations.deploying.stepping import are_gone, replace_replicas, turned_back
from tgi_deploy.operations.launching.traffic import url_to
from tgi_deploy.operations.settling import await_settled
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.operations.watching.limits import LeaseKeeper, Running, keep_ceiling
from tgi_deploy.reconcile.claim import is_of_other_update, owned_by
from tgi_deploy.reconcile.ends import moved_tag, reads_tags
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.reconcile.retry import polls
from tgi_deploy.rollout.stages import (
    begin_update,
    has_outdated,
    is_promoted,
    mark_draining,
    mark_old_removed,
    mark_promoted,
    mark_withdrawn,
    only_launched,
    outdated_steps,
    serving_resources,
)
from tgi_deploy.targets.protocol import SharedFront
from tgi_deploy.text import duration
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_EXPIRES, ChangeSet, revision_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.rollout import Origin, RevisionPlanner
    from tgi_deploy.targets.protocol import Attempt, Front
    from tgi_deploy.values.deployment import Deployment, Revision, Strategy
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.resource import Found

# How long a moved address may take to reach the new machine.
_MOVED_S: Final = 60.0


def front_of(context: Context, deployment: Deployment) -> Front | None:
    return context.target(deployment.target).front(context, deployment)


def keeps_serving(deployment: Deployment, seen: Sequence[Found]) -> bool:
    """Return whether the recorded machine, or the serving one of two, is alive."""
    record = deployment.machine
    return any(found.alive and record is not None and found.id == record.attributes.get("id") for found in seen)


def resume_or_withdraw(
    context: Context, recorded: Deployment, seen: Sequence[Found], *, same: Callable[[Deployment], bool], wait: bool
) -> Deployment:
    """Return the record to continue from. An unfinished rolling update to a different spec is rolled back first.

    So is one that would continue with --no-wait, which never promotes. If the old machine has terminated in the
    meantime, the update continues without it.
    """
    if recorded.rolling and not keeps_serving(recorded, seen):
        return mark_old_removed(recorded)
    if recorded.rolling and not (wait and same(recorded)):
        context.reporter.note(f"the update to revision {recorded.wanted.number} was not finished; rolling it back")
        return mark_withdrawn(recorded, seen)
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
    """Return the record of an update, rolling if possible, owned by the updating user.

    Raises ConflictError `rolling_unavailable`.
    """
    recorded = replaced(recorded, owner=context.owner or recorded.owner)
    rolling = begin_update(recorded, revision, "rolling")
    why = _obstacle(context, rolling, seen, wait=wait)
    if asked == "rolling" and why:
        raise _rolling_unavailable(recorded, why)
    if why and asked is None:
        context.reporter.note(f"updating with --strategy recreate: {why}")
    return begin_update(recorded, revision, "recreate") if why or asked == "recreate" else rolling


def _obstacle(context: Context, deployment: Deployment, seen: Sequence[Found], *, wait: bool) -> str:
    """Return why an update can't be rolling; empty if no reason is known."""
    if deployment.active is None or not keeps_serving(deployment, seen):
        return "no machine serves now"
    if not wait:
        return "with --no-wait the new machine would not be verified before the old one is removed"
    front = front_of(context, deployment)
    return "its target can't run two machines side by side" if front is None else front.no_room(deployment)


def _replaced_resources(deployment: Deployment, attempt: Attempt) -> str:
    """Return a sentence about the resources of the serving machine that an attempt would replace; empty if none."""
    serving = deployment.machine
    if serving is not None and attempt.place != serving.place:
        return f"the new machine would run in {attempt.place}, but the resources that both share are in {serving.place}"
    taken = (step for step in attempt.changes.steps if step.action == "delete" and revision_of(step.key) is None)
    found = next(taken, None)
    return f"the {found.kind} that the old machine uses would be replaced" if found is not None else ""


def replaces_old(deployment: Deployment, attempt: Attempt, asked: Strategy | None) -> bool:
    """Return whether an attempt replaces resources of the old machine.

    Raises ConflictError `rolling_unavailable` if it does, for a rolling update.
    """
    why = _replaced_resources(deployment, attempt)
    if why and asked == "rolling":
        raise _rolling_unavailable(deployment, why)
    return bool(why)


def _rolling_unavailable(deployment: Deployment, why: str) -> ConflictError:
    return ConflictError(
        "rolling_unavailable",
        f"updating '{deployment.name}' with --strategy rolling: {why}",
        hint="--strategy recreate removes the old machine first; nothing answers until the new one is verified",
    )


@contextmanager
def suggesting_recreate(deployment: Deployment) -> Iterator[None]:
    """Add a hint to --strategy recreate to errors about room or budget for a second machine."""
    try:
        yield
    except DeployError as error:
        if not deployment.rolling or error.code == "rolling_unavailable":
            raise
        other = "--strategy recreate needs no second machine: it removes the old one first"
        raise error.copy(hint=error.hint_and(other)) from error.__cause__


def total_spent(context: Context, serving: Deployment | None, plan: Plan, deployment: Deployment) -> Spent:
    """Return what the name has spent, including the old machine until the new one takes over."""
    spent, price = spent_by(context, deployment), serving.usd_per_hour if serving else None
    if serving is None or price is None:
        return spent
    longest_s = context.ready_deadline_s(plan.chosen) + serving.current.grace_s
    return replaced(spent, beside_usd_per_hour=price, beside_s=round(longest_s))


def spent_at_end(context: Context, deployment: Deployment) -> Spent:
    """Return what the name will have spent when its old machine, which is about to be removed, has drained."""
    spent, price = spent_by(context, only_launched(deployment)), deployment.usd_per_hour or Decimal(0)
    return replaced(spent, usd=spent.usd + price * deployment.current.grace_s / 3600)


def share_ceiling(
    context: Context, deployment: Deployment, plan: Plan, attempt: Attempt, seen: Sequence[Found]
) -> Deployment:
    """Make the serving machine end when both machines have spent --max-spend, in case this run is killed.

    `restore_limits` reverts this.
    """
    ceiling, rollout = attempt.ends.max_spend_usd, deployment.rollout
    expires_at = rollout.ends.expires_at if rollout and rollout.ends else None
    serving = next((found for found in serving_resources(deployment, seen) if found.is_machine and found.alive), None)
    if ceiling is None or serving is None or not reads_tags(serving.tags):
        return deployment
    deployment = context.executor().save(replaced(deployment, ends=attempt.ends))
    spent = total_spent(context, deployment, plan, deployment)
    highest = max(item.cost.usd_per_hour for item in (plan.chosen, *plan.fallbacks))
    left_s = max(1, int((ceiling - spent.usd) / (highest + spent.beside_usd_per_hour) * 3600))
    now = context.clock.now().replace(microsecond=0)
    end = min(filter(None, (now + timedelta(seconds=left_s), expires_at)))
    handler = context.cloud(serving.place).handler(serving.kind)
    handler.update(serving.attributes, {"tags": {TAG_EXPIRES: moved_tag(end, now)}})
    return deployment


def restore_limits(
    context: Context, before: Deployment | None, deployment: Deployment, seen: Sequence[Found]
) -> Deployment:
    """Restore the limits of the remaining machine after `share_ceiling`, and save the record.

    `before` is the record of the update, in which two machines shared the limits.
    """
    executor, record = context.executor(), deployment.machine
    shared = before is not None and before.rollout is not None and before.rollout.strategy == "rolling"
    if shared:
        _restore_shared(context, deployment)
    if record is None or before is None or not shared or before.ends.max_spend_usd is None:
        return executor.save(deployment)
    machine = context.cloud(record.place).handler(record.kind).read(record.attributes)
    if machine is None or not machine.alive:
        return executor.save(deployment)
    around = (found for found in seen if not found.is_machine)
    at = Running(name=deployment.name, recorded=deployment, machine=machine, seen=(machine, *around))
    return keep_ceiling(context, at, deployment.ends.max_spend_usd or Decimal(0)).recorded or deployment


def _restore_shared(context: Context, deployment: Deployment) -> None:
    """Apply the serving machine's limits again where one enforcer is shared by all revisions."""
    front: object = front_of(context, deployment)
    machine = deployment.machine
    if isinstance(front, SharedFront) and machine is not None and "id" in machine.attributes:
        LeaseKeeper.of(context, deployment).beat()
        front.restore(machine)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A finished update.

    `refused_s` is how long new requests were refused while the old machine drained; None if they were not.
    """

    deployment: Deployment
    refused_s: float | None = None


def promote(context: Context, deployment: Deployment, url: str) -> Deployment:
    """Record the verified revision as serving, with its endpoint. For a first machine, also direct traffic to it."""
    front, host = front_of(context, deployment), None
    machine = deployment.machine_at(deployment.wanted.number)
    if front is not None and front.stable and deployment.rolling:
        url = urlsplit(deployment.endpoint or url)._replace(scheme=urlsplit(url).scheme).geturl()
    elif front is not None and machine is not None:
        host = front.shift(deployment, machine)
    if front is not None and machine is not None and host is not None:
        url = url_to(machine, host, urlsplit(url).port or 0)
        if front.cuts and not _answers(context, replaced(deployment, endpoint=url)):
            raise _not_answering(deployment.name, url)
    if deployment.rolling:
        return context.executor().save(mark_promoted(deployment, url))
    serving = replaced(deployment.in_state("serving"), status="ready", endpoint=url, rollout=None)
    return context.executor().save(serving)


def finish(context: Context, deployment: Deployment, *, origin: Origin = "up", dry_run: bool = False) -> Finished:
    """Finish a promoted update: drain and delete the old machine. Safe to repeat.

    A rollback (`origin`) goes back to the old machine instead, if its replicas are replaced in steps. Without an
    update, delete resources that a lost request created for another revision. Errors name the serving revision.

    Raises ClaimedError, before any change, for a later update that the record does not have.
    """
    promoted = is_promoted(deployment)
    acts = not dry_run and (promoted or (deployment.rollout is None and has_outdated(deployment)))
    if acts:
        there = observe(deployment.name, deployment, cloud=context.cloud, places=deployment.places)
        reject_newer(context, deployment, there)
    front = front_of(context, deployment) if promoted else None
    if origin == "rollback" and isinstance(front, SteppedFront):
        deployment = turned_back(context, deployment, dry_run=dry_run)
    if not acts:
        return Finished(deployment=deployment)
    if isinstance(front, SteppedFront):
        promoted = not are_gone(context, deployment)
        if promoted:
            replace_replicas(context, deployment, front)
    try:
        if promoted:
            return _handed_over(context, deployment)
        await_settled(context, deployment)
        return Finished(deployment=_without_outdated(context, deployment, replaced(deployment, rollout=None)))
    except DeployError as error:
        now, name = f"revision {deployment.current.number} serves at {deployment.endpoint}", deployment.name
        words = f"{now}; the old machine still runs: the same 'up' removes it, 'tgi-deploy down {name}' removes both"
        raise error.copy(hint=error.hint_and(words)) from error.__cause__


def _handed_over(context: Context, deployment: Deployment) -> Finished:
    """Send new requests to the new machine, wait until the old one has finished its in-flight ones, and delete it.

    Raises NotHealthyError if the engine does not answer at an address that was moved.
    """
    front, new = front_of(context, deployment), deployment.machine
    answers, refused_s = True, None
    if front is not None and new is not None and not front.cuts:
        front.shift(deployment, new)
        for _ in _draining(context, deployment, front):
            pass
    elif front is not None and new is not None:
        deployment, since = _drained(context, deployment, front)
        answers = front.shift(deployment, new) is None or _answers(context, deployment)
        refused_s = (context.clock.now() - since).total_seconds()
        context.reporter.note(f"new requests were refused for at most {duration(refused_s)}")
    deployment = _without_outdated(context, deployment, replaced(deployment, rollout=None))
    if not answers:
        raise _not_answering(deployment.name, deployment.endpoint or "")
    return Finished(deployment=deployment, refused_s=refused_s)


def _drained(context: Context, deployment: Deployment, front: Front) -> tuple[Deployment, datetime]:
    """Return the record once the old machine has drained, and when its engine was last seen to accept requests."""
    answered_at, executor = context.clock.now(), context.executor()
    for number in _draining(context, deployment, front):
        now = context.clock.now()
        if deployment.rollout and deployment.rollout.refuses_since:
            continue
        probe = context.probe_of(replaced(deployment, active=number))
        if probe is not None and probe.ok:
            answered_at = now
        else:
            deployment = executor.save(mark_draining(deployment, answered_at))
    deployment = executor.save(mark_draining(deployment, answered_at))
    return deployment, (deployment.rollout and deployment.rollout.refuses_since) or answered_at


def _draining(context: Context, deployment: Deployment, front: Front) -> Iterator[int | None]:
    """Drain the old machine, and yield its revision at each poll that finds requests in flight."""
    for machine in deployment.machines:
        number = revision_of(machine.key)
        if number != deployment.current.number and "id" in machine.attributes:
            context.reporter.note(f"revision {number} finishes its in-flight requests: {machine.attributes['id']}")
            grace_s = (deployment.numbered(number) or deployment.current).grace_s
            for _ in front.drain(deployment, machine, grace_s):
                yield number


def _answers(context: Context, deployment: Deployment) -> bool:
    """Return whether the engine answers at the deployment's URL; after a move, that takes a moment."""
    for _ in polls(context.clock, replace(context.pace.sweep, deadline_s=_MOVED_S)):
        probe = context.probe_of(deployment)
        if probe is not None and probe.ok:
            return True
    return False


def _not_answering(name: str, url: str) -> NotHealthyError:
    return NotHealthyError(
        "address_not_answering",
        f"the address of '{name}' was moved to its verified machine, but the engine does not answer at {url}",
        hint=f"'tgi-deploy status {name}' shows what exists; the same 'up' tries again",
    )


def withdraw(context: Context, deployment: Deployment) -> Deployment:
    """Remove the resources of a rolling update before its promotion. Raises LeftBehindError."""
    await_settled(context, deployment)
    name, after = deployment.name, mark_withdrawn(deployment)
    try:
        return _without_outdated(context, deployment, after)
    except LeftBehindError as error:
        back = f"'tgi-deploy rollback {name}' finishes going back to revision {after.current.number}, which serves"
        hint = f"{back}; until then, this may cost money; 'tgi-deploy down {name}' would remove both"
        raise error.copy(hint=hint) from error.__cause__


def _without_outdated(context: Context, deployment: Deployment, after: Deployment) -> Deployment:
    """Delete the resources that belong to no revision in the record `after`, then save it."""
    executor = context.executor()
    there = owned_by(observe(deployment.name, deployment, cloud=context.cloud, places=deployment.places), deployment.id)
    # Resources of another update under the same number are not ours to delete.
    seen = [item for item in there if not is_of_other_update(deployment, item)]
    deployment = executor.execute(deployment, ChangeSet(steps=outdated_steps(after, seen)))
    stay = {None, after.current.number}
    resources = tuple(item for item in deployment.resources if revision_of(item.key) in stay)
    after = replaced(after, resources=resources, serial=deployment.serial)
    return restore_limits(context, deployment, after, seen)


def check_restorable(context: Context, plan_revision: RevisionPlanner, deployment: Deployment) -> tuple[Problem, ...]:
    """Warn before an update if the old revision could not be restored after a failure."""
    source = deployment.numbered(deployment.rollout.source) if deployment.rollout else None
    if source is None or deployment.rolling:
        return ()
    try:
        plan_revision(source)
    except (ConflictError, InputError) as error:
        found = warning("cannot_restore", f"if this fails, the old revision can't be restored: {error.message}")
        context.reporter.warn(found)
        return (found,)
    return ()
