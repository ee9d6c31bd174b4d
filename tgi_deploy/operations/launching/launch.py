"""What every target shares on the way from a plan to a running machine: the attempts, and their record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.reconcile.claim import own
from tgi_deploy.reconcile.clocks import may_be_new
from tgi_deploy.reconcile.ends import lease_end
from tgi_deploy.reconcile.errors import NoCapacityError, QuotaError
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.reconcile.retry import looks
from tgi_deploy.targets.protocol import Failover, ImagePull
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.targets.protocol import Attempt, Launch
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan import Candidate, Plan
    from tgi_deploy.values.resource import Found

_MISSING_GRACE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """`deployment` as recorded; `address` is where its engine is reached, as a probe takes it."""

    deployment: Deployment
    candidate: Candidate
    address: str


def first_attempt(way: Launch, deployment: Deployment, seen: Sequence[Found]) -> Attempt:
    """Return the attempt that `launch` would begin with; nothing is changed. Raises what makes it impossible."""
    return next(way.attempts(lambda: (deployment, seen)))


def launch(context: Context, way: Launch, plan: Plan, deployment: Deployment) -> Launched:
    """Carry out attempts until a machine runs. Raises what ends the attempts, or what stops at once."""
    executor = context.executor()

    def look() -> tuple[Deployment, Sequence[Found]]:
        seen = observe(deployment.name, deployment, cloud=context.cloud, places=deployment.places)
        return deployment, own(seen, deployment.id)

    for attempt in way.attempts(look):
        deployment = executor.save(described(deployment, attempt, plan, context.clock))
        for file_name, text in attempt.artifacts:
            context.store.save_artifact(deployment.name, file_name, text)
        if isinstance(way, ImagePull):
            way.pull(attempt)
        try:
            deployment = executor.execute(deployment, attempt.changes)
            address = way.address(deployment, pool=attempt.pool)
        except (NoCapacityError, QuotaError) as error:
            if not isinstance(way, Failover):
                raise
            way.refused(attempt, error)
            deployment = context.store.load(deployment.name) or deployment
        else:
            deployment = executor.save(replaced(deployment, phase="running"))
            return Launched(deployment=deployment, candidate=attempt.candidate, address=address)
    raise ValueError("a launch ends its attempts by raising why")


def described(deployment: Deployment, attempt: Attempt, plan: Plan, clock: Clock) -> Deployment:
    """The record of what is about to be tried."""
    candidate = attempt.candidate
    owned = candidate.offer.market == "owned"
    return replaced(
        deployment,
        region=attempt.place,
        phase="creating",
        # Rejections are by far the largest part, it would be written anew at every step, and helps nobody later.
        plan=plan_document(replaced(plan, chosen=candidate, rejections=())),
        usd_per_hour=None if owned else candidate.cost.usd_per_hour,
        ttl_s=attempt.ttl_s,
        expires=attempt.expires,
        idle_s=attempt.idle_s,
        lease_s=attempt.lease_s,
        lease_until=lease_end(attempt.lease_s, clock),
        spent_usd=attempt.spent_usd,
    )


def await_visible(context: Context, deployment: Deployment) -> bool:
    """Wait, for a minute at most, until the cloud knows the recorded machine, alive or ended; return whether it does.

    One that was certainly made longer ago is not waited for: it is gone if it does not show.
    """
    record = deployment.machine
    if record is None or "id" not in record.attributes:
        return False
    if not may_be_new(record, context.clock.now(), within_s=_MISSING_GRACE_S):
        return False
    cloud = context.cloud(record.place)
    patience = replace(context.pace.running, deadline_s=_MISSING_GRACE_S)
    states = (cloud.machine(record.attributes["id"]).state for _ in looks(context.clock, patience))
    return any(state != "missing" for state in states)
