"""Launches a plan on any target: makes attempts and records them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.operations.planning.documents import plan_to_record
from tgi_deploy.operations.settling import await_settled
from tgi_deploy.reconcile.claim import owned_by, reject_concurrent_update
from tgi_deploy.reconcile.ends import lease_end
from tgi_deploy.reconcile.errors import NoCapacityError, QuotaError
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.rollout.stages import at_status, only_launched, serving_resources
from tgi_deploy.targets.protocol import Failover, ImagePull
from tgi_deploy.values.base import changed_fields, replaced
from tgi_deploy.values.deployment import Deployment, ModelRef, Pool, Revision, Spec, SpecHardware

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.targets.protocol import Attempt, Launch
    from tgi_deploy.values.plan import Candidate, Plan
    from tgi_deploy.values.resource import Found

_MISSING_GRACE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """A launched deployment, as recorded. `address` is the address of its engine, in the form that `probe` takes."""

    deployment: Deployment
    candidate: Candidate
    address: str


def first_attempt(launch: Launch, deployment: Deployment, seen: Sequence[Found]) -> Attempt:
    """Return the first attempt of a launch, without changing anything. Raises DeployError if it is impossible."""
    return next(launch.attempts(lambda: (_seen_by_launch(deployment), seen)))


def _seen_by_launch(deployment: Deployment) -> Deployment:
    """Return the record with only the revision that is being brought up, and whether another one serves beside it."""
    return replaced(only_launched(deployment), rollout=deployment.rollout if deployment.rolling else None)


def launch_replica(context: Context, launch: Launch, plan: Plan, deployment: Deployment) -> Launched:
    """Try attempts until a machine runs. Raises the last attempt's error, or any other error at once."""
    executor = context.executor()

    def look() -> tuple[Deployment, Sequence[Found]]:
        seen = observe(
            deployment.name, deployment, cloud=context.cloud, places=deployment.places, side=launch.rare_kinds
        )
        ours = owned_by(seen, deployment.id)
        reject_concurrent_update(deployment, ours)
        return _seen_by_launch(deployment), [
            found for found in ours if found not in serving_resources(deployment, ours)
        ]

    for attempt in launch.attempts(look):
        deployment = executor.save(described(deployment, attempt, plan, launch, context.clock))
        for file_name, text in attempt.artifacts:
            context.store.save_artifact(deployment.name, file_name, text)
        if isinstance(launch, ImagePull):
            launch.pull(attempt)
        try:
            deployment = executor.execute(deployment, attempt.changes)
            address = launch.address(only_launched(deployment), pool=attempt.pool)
        except (NoCapacityError, QuotaError) as error:
            if not isinstance(launch, Failover):
                raise
            launch.refused(attempt, error)
            deployment = context.store.load(deployment.name) or deployment
            await_settled(context, deployment)  # before another region, resources that show up late must go, too
        else:
            deployment = executor.save(at_status(deployment, "running"))
            return Launched(deployment=deployment, candidate=attempt.candidate, address=address)
    raise ValueError("a launch has to raise an error after its last attempt")


def described(deployment: Deployment, attempt: Attempt, plan: Plan, launch: Launch, clock: Clock) -> Deployment:
    """Return the record of the next attempt."""
    ends = replaced(attempt.ends, lease_until=lease_end(attempt.ends.lease_s, clock))
    revision = _revision(deployment, attempt, plan, launch, clock)
    described = replaced(deployment.with_revision(revision), ends=ends).in_state("pending")
    return at_status(described, "creating")


def _revision(deployment: Deployment, attempt: Attempt, plan: Plan, launch: Launch, clock: Clock) -> Revision:
    """Return the pending revision with the current attempt."""
    candidate, wanted = attempt.candidate, deployment.wanted
    zone = "" if attempt.zone == attempt.place else attempt.zone
    made = pending_revision(
        plan, candidate, launch, replaced(pool_of(candidate, attempt.place), zone=zone), clock.now()
    )
    kept = {name: getattr(wanted, name) for name in ("number", "origin", "created_at", "update")}
    others = tuple(pool_of(item, attempt.place) for item in attempt.others)
    return replaced(made, pools=(*made.pools, *others), any_pool=bool(others), **kept)


def pending_revision(plan: Plan, candidate: Candidate, launch: Launch, pool: Pool, at: datetime) -> Revision:
    """Return a pending revision for a plan's candidate."""
    return Revision(
        number=1,
        origin="up",
        state="pending",
        created_at=at,
        pools=(pool,),
        spec=spec_of(plan, candidate),
        plan=plan_to_record(plan, candidate),
        marks=launch.marks,
        options=changed_fields(launch.options),
    )


def spec_of(plan: Plan, candidate: Candidate) -> Spec:
    """Return the spec of one replica of a candidate."""
    engine, hardware = candidate.engine, candidate.offer.instance_type
    return Spec(
        engine=engine.name,
        release=engine.version,
        model=ModelRef(id=engine.settings.model_id, commit=engine.settings.revision),
        hardware=SpecHardware(
            accelerator=hardware.accelerator.name,
            accelerators=candidate.num_shard,
            interconnect=hardware.interconnect,
            cpu_arch=hardware.cpu_arch,
        ),
        container=engine.container,
        weights="hub" if plan.request.model.model.local_path is None else "folder",
        disk_gib=candidate.storage.root_volume_gib,
    )


def pool_of(candidate: Candidate, place: str) -> Pool:
    offer = candidate.offer
    return Pool(
        place=place,
        instance_type=offer.instance_type.name,
        market=offer.market,
        machine_usd_per_hour=candidate.rent_usd_per_hour,
    )
