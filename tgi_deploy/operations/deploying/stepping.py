"""Replaces the replicas of a promoted update a few at a time, where there is no room for all of the new ones at once.

Its progress is visible in the cloud alone, so that the next command resumes after a kill. A failure undoes nothing:
both revisions serve until the same command resumes, or a rollback returns in the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, NotHealthyError, warning
from tgi_deploy.operations.deploying.failure_report import with_diagnosis
from tgi_deploy.operations.deploying.readiness import all_ready
from tgi_deploy.operations.watching.limits import LeaseKeeper, share_limits
from tgi_deploy.reconcile.errors import ResourceNotFoundError
from tgi_deploy.reconcile.retry import polls
from tgi_deploy.rollout.stages import mark_turned_back, next_commands, turns_back
from tgi_deploy.text import plural
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import revision_of

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.rollout import SteppedFront
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import ReplicaState

# From the end of a terminating replica's grace period until its accelerators are reported as free.
_FREED_S: Final = 60.0


def turned_back(context: Context, deployment: Deployment, *, dry_run: bool) -> Deployment:
    """Return the record with its promoted update turned back, saved unless in a dry run.

    Without its old machine, the update goes forward, and the record is returned unchanged.
    """
    rollout = deployment.rollout
    old = deployment.machine_at(rollout.source) if rollout and rollout.source else None
    there = old is not None and "id" in old.attributes and _is_there(context, old)
    back = mark_turned_back(deployment) if there else deployment
    if rollout is None or old is None or deployment.machine is None or back == deployment:
        return deployment
    context.reporter.note(
        f"the update to revision {rollout.destination} was not finished; going back to revision {rollout.source}"
    )
    if dry_run:
        return replaced(back, rollout=None)
    share_limits(context, deployment.machine, old)
    return context.executor().save(back)


def unfinished_steps(context: Context, deployment: Deployment, *, alone: bool) -> Problem | None:
    """Return the warning that the steps of a promoted update continue first; None if none are left.

    `alone`: nothing else follows.
    """
    rollout, new, plan = deployment.rollout, deployment.machine, deployment.plan
    if rollout is None or new is None or plan is None:
        return None
    ready, wanted = _ready_replicas(context, new), plan.chosen.replicas
    if ready >= wanted or plan.requirements.replicas.varies:
        return None
    number = rollout.destination
    what = f"going back to revision {number}" if turns_back(deployment) else f"the update to revision {number}"
    are = "is" if ready == 1 else "are"
    then = "" if alone else " first, and then you are asked about the new settings"
    return warning(
        "update_unfinished",
        f"{what} is not finished: {ready} of {plural(wanted, 'replica')} {are} ready; its steps continue{then}",
        next_commands(deployment) if alone else f"without the new settings, {next_commands(deployment)}",
    )


def _ready_replicas(context: Context, machine: ResourceRecord) -> int:
    replicas = context.cloud(machine.place).machine(machine.attributes["id"]).replicas
    return sum(item.status == "ready" for item in replicas)


def are_gone(context: Context, deployment: Deployment) -> bool:
    """Return whether no machine of an update is left: someone else has removed both."""
    return not any(_is_there(context, machine) for machine in deployment.machines if "id" in machine.attributes)


def _is_there(context: Context, machine: ResourceRecord) -> bool:
    found = context.cloud(machine.place).handler(machine.kind).read(machine.attributes)
    return found is not None and found.alive


def replace_replicas(context: Context, deployment: Deployment, front: SteppedFront) -> None:
    """Replace the old replicas of a promoted update until all of the new revision are ready. Safe to repeat.

    The old machine stays, perhaps without replicas. Raises DeployError if a step fails; then ready replicas of both
    revisions serve.
    """
    rollout = deployment.rollout
    if rollout is None or rollout.source is None:
        return
    old, new, source = deployment.machine_at(rollout.source), deployment.machine, deployment.numbered(rollout.source)
    plan, before = deployment.plan, source.plan if source else None
    if old is None or new is None or "id" not in old.attributes or plan is None or before is None:
        return
    if plan.requirements.replicas.varies:
        return  # an autoscaler sets their number: such an update needs room for all of them
    former = replaced(deployment, active=rollout.source)
    replacement = _Replacement(
        context=context,
        deployment=deployment,
        front=front,
        old=old,
        new=new,
        before=before.chosen.replicas,
        wanted=plan.chosen.replicas,
        old_grace_s=front.grace_s(former),
        lease=LeaseKeeper.of(context, deployment),
        old_lease=LeaseKeeper.of(context, former),
    )
    try:
        if not _is_there(context, new):
            raise ResourceNotFoundError(f"{new.attributes['id']} does not exist in {new.place}")
        if not replacement.done:
            share_limits(context, new, old)
        while not replacement.done:
            replacement.step()
    except DeployError as error:
        if isinstance(error, NotHealthyError):
            error = with_diagnosis(context, deployment, error)
        both = f"revisions {rollout.destination} and {rollout.source}"
        serves = f"ready replicas of {both} serve at {deployment.endpoint}"
        lost = isinstance(error, ResourceNotFoundError)
        words = f"{serves}: {next_commands(deployment, lost=lost)}, 'tgi-deploy down {deployment.name}' removes both"
        raise error.copy(hint=error.hint_and(words)) from error.__cause__


@dataclass(frozen=True, kw_only=True, slots=True)
class _Replacement:
    """Replaces the `before` replicas of the machine `old` by `wanted` ones of `new`.

    Enough old ones stay for the load that the new ones do not carry yet; replicas of a revision share the load equally.
    If that leaves no room for the next new one, at least the smaller number stays ready. `old_grace_s`: how long an old
    one may take to finish its in-flight requests.
    """

    context: Context
    deployment: Deployment
    front: SteppedFront
    old: ResourceRecord
    new: ResourceRecord
    before: int
    wanted: int
    old_grace_s: int
    lease: LeaseKeeper
    old_lease: LeaseKeeper

    @property
    def done(self) -> bool:
        return self._ready >= self.wanted

    def step(self) -> None:
        """Remove old replicas that are no longer needed, then start as many new ones as have room, and wait for them.

        Raises DeployError `no_free_gpus`, NotHealthyError.
        """
        for _ in polls(self.context.clock, replace(self.context.pace.sweep, deadline_s=self.old_grace_s + _FREED_S)):
            self.lease.beat()
            self.old_lease.beat()
            ready, requested = self._ready, self.front.replicas(self.new)
            if requested < self.wanted:
                self.front.share(self.deployment)
                self._remove_old(ready, requested)
            number = self._fitting(requested)
            if number > requested:
                self._resize(self.new, number)
            if number > ready:
                all_ready(self.old_lease.kept_by(self.context), self.deployment)
                self.context.clock.sleep(self.context.pace.health_poll_s)  # until the target has seen them ready, too
                return
        raise DeployError(
            "no_free_gpus",
            f"updating '{self.deployment.name}': {ready} of {plural(self.wanted, 'replica')} of the new revision are "
            "ready, and the next one has no room",
            hint="another workload may have taken the accelerators of the old replicas",
        )

    def _remove_old(self, ready: int, requested: int) -> None:
        """Remove the old replicas that are not needed next to `ready` new ones, of which `requested` are requested."""
        old = self.front.replicas(self.old)
        needed = min(old, -(-self.before * (self.wanted - ready) // self.wanted))
        if needed == old and self._old_pods <= old and self._fitting(requested) == requested:
            needed = min(old, max(0, min(self.before, self.wanted) - ready))
        if needed < old:
            self._resize(self.old, needed)

    def _fitting(self, requested: int) -> int:
        """Return how many new replicas have room.

        The accelerators of an old one are free once it has terminated, unless they were on a node that the cluster had
        added for it and removes again.
        """
        old = self.front.replicas(self.old)
        more = 0 if self._old_pods > old else max(0, max(self.before, self.wanted) + 1 - old - requested)
        return self.front.fitting(self.deployment, added=more)

    @property
    def _ready(self) -> int:
        return _ready_replicas(self.context, self.new)

    @property
    def _old_pods(self) -> int:
        """How many old replicas still hold accelerators, including terminating ones."""
        return sum(item.status != "terminated" for item in self._replicas(self.old))

    def _replicas(self, machine: ResourceRecord) -> tuple[ReplicaState, ...]:
        return self.context.cloud(machine.place).machine(machine.attributes["id"]).replicas

    def _resize(self, machine: ResourceRecord, number: int) -> None:
        what = f"revision {revision_of(machine.key) or 1} to {plural(number, 'replica')}"
        self.context.reporter.note(f"scaling {what}")
        self.context.cloud(machine.place).handler(machine.kind).update(machine.attributes, {"replicas": number})
