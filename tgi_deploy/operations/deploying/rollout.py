"""Updates: one revision takes the place of another, and what is on record of it at every moment.

There is one way so far, to recreate: the old machine is ended and seen to be gone before the new one is asked for, so
that there are never two. The resources around it, the claim to the name among them, stay. What is here is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import ConflictError
from tgi_deploy.operations.launching.launch import pending_revision, pool_of
from tgi_deploy.operations.planning.documents import plan_to_record
from tgi_deploy.planner.time_to_ready import estimate
from tgi_deploy.text import usd
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Rollout
from tgi_deploy.values.resource import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from decimal import Decimal
    from typing import Literal

    from tgi_deploy.targets.protocol import Launch
    from tgi_deploy.values.deployment import Deployment, Revision
    from tgi_deploy.values.plan import Candidate, Plan
    from tgi_deploy.values.plan_document import PlanDocument
    from tgi_deploy.values.resource import Found

    Origin = Literal["up", "rollback"]
    # From a recorded revision to the plan that runs it again, and all that its engine may report itself as.
    Again = Callable[[Revision], tuple[Plan, tuple[str, ...]]]


# States of a revision that nothing was promised by: it may become another spec.
_UNPROVED: Final = frozenset({"pending", "failed"})


def never_again(revision: Revision) -> tuple[Plan, tuple[str, ...]]:
    """Plan no recorded revision again."""
    raise ConflictError("revision_gone", f"revision {revision.number} is not planned again")


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """What an update changes, before it begins. `rows` are (what, before, after) of what differs.

    `silent_s` is how long nothing is expected to answer, `drain_s` how long requests that are open then may take.
    """

    source: int
    destination: int
    rows: tuple[tuple[str, str, str], ...]
    usd_per_hour_before: Decimal | None
    usd_per_hour_after: Decimal | None
    silent_s: int
    drain_s: int


def begin(deployment: Deployment, plan: Plan, way: Launch, *, origin: Origin, at: datetime) -> Deployment:
    """Return the record with a revision that is to replace what its machine runs.

    A revision that an unfinished update has never launched gives up its number to this one.
    """
    known, newest = deployment.rollout, deployment.revision
    unused = known is not None and known.stage == "ending"
    number = newest.number + (0 if unused else 1)
    made = pending_revision(plan, plan.chosen, way, pool_of(plan.chosen, way.place), at)
    revision = replaced(made, number=number, origin=origin)
    if newest.state == "pending":
        deployment = deployment.in_state("failed")
    source = deployment.active if known is None else known.source
    rollout = Rollout(source=source, destination=number, stage="ending")
    return replaced(deployment.with_revision(revision), rollout=rollout, status="creating")


def anew(deployment: Deployment, plan: Plan, way: Launch, *, at: datetime) -> Deployment:
    """Return the record of what has no machine any more, with a revision of its own for another spec that served."""
    wanted, place = deployment.wanted, way.place
    made = pending_revision(plan, plan.chosen, way, pool_of(plan.chosen, place), at)
    same = wanted.spec is not None and made.spec is not None and wanted.spec.digest == made.spec.digest
    if same or wanted.state in _UNPROVED:
        return replaced(deployment, endpoint=None)
    made = replaced(made, number=deployment.revision.number + 1)
    return replaced(deployment.in_state("retired").with_revision(made), endpoint=None)


def is_ending(deployment: Deployment) -> bool:
    """Whether its machine is one that an update has yet to end."""
    return deployment.rollout is not None and deployment.rollout.stage == "ending"


def ended(deployment: Deployment) -> Deployment:
    """Return the record once the old machine is gone: nothing serves, and the new revision may be launched."""
    rollout = deployment.rollout
    if rollout is None:
        return deployment
    revisions = (replaced(item, state="retired") if item.state == "serving" else item for item in deployment.revisions)
    return replaced(
        deployment, revisions=tuple(revisions), active=None, endpoint=None, rollout=replaced(rollout, stage="starting")
    )


def without_machine(deployment: Deployment) -> Deployment:
    """Return the record as it will be once the old machine is gone, to see what is left to do then."""
    machine = deployment.machine
    return ended(deployment if machine is None else deployment.without_record(machine.key))


def leaving(deployment: Deployment, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return the machines that an update has yet to end."""
    return tuple(found for found in seen if found.is_machine and not found.attached) if is_ending(deployment) else ()


def endings(deployment: Deployment, machines: Sequence[Found]) -> Iterator[Step]:
    """Yield the steps that end them. A recorded machine that does not show is ended, too, by its id."""
    rollout, record = deployment.rollout, deployment.machine
    if rollout is None:
        return
    reason = f"makes room for revision {rollout.destination}"
    seen = {found.id for found in machines}
    for found in machines:
        yield Step.deletion(found, reason)
    if is_ending(deployment) and record is not None and record.attributes.get("id", "") not in {"", *seen}:
        yield Step.deletion(record, reason)


def update_of(deployment: Deployment, plan: Plan, candidate: Candidate) -> Update | None:
    """Return what an update that is about to begin changes; None where there is none, or no record of what runs."""
    rollout, current = deployment.rollout, deployment.current
    if rollout is None or current.plan is None or not is_ending(deployment):
        return None
    new = plan_to_record(plan, candidate)
    container = current.spec.container if current.spec else candidate.engine.container
    return Update(
        source=current.number,
        destination=rollout.destination,
        rows=tuple(_rows(current.plan, new)),
        usd_per_hour_before=deployment.usd_per_hour,
        usd_per_hour_after=candidate.rent_usd_per_hour,
        silent_s=round(sum(phase.expected_s for phase in estimate(candidate))),
        drain_s=container.stop.grace_s,
    )


def _rows(old: PlanDocument, new: PlanDocument) -> Iterator[tuple[str, str, str]]:
    rows = (
        ("model", old.model.id, new.model.id),
        ("release", f"{old.engine.name} {old.engine.version}", f"{new.engine.name} {new.engine.version}"),
        ("machine", _machine(old), _machine(new)),
        ("shards", str(old.chosen.num_shard), str(new.chosen.num_shard)),
        ("scheme", old.chosen.quantize, new.chosen.quantize),
        ("context", f"{old.engine.max_total_tokens} tokens", f"{new.engine.max_total_tokens} tokens"),
        ("load", _load(old), _load(new)),
        ("price", _price(old), _price(new)),
    )
    yield from (row for row in rows if row[1] != row[2])


def _machine(plan: PlanDocument) -> str:
    chosen = plan.chosen
    return f"{chosen.instance_type} ({chosen.accelerator}, {chosen.market}) in {chosen.region}"


def _load(plan: PlanDocument) -> str:
    return f"{plan.requirements.concurrency} requests at once"


def _price(plan: PlanDocument) -> str:
    return "none" if plan.chosen.market == "owned" else f"{usd(plan.cost.usd_per_hour)} an hour"


def former(deployment: Deployment) -> Revision:
    """Return the revision that `rollback` goes to: what an unfinished update began at, or what served before.

    Raises ConflictError `no_former_revision`.
    """
    rollout = deployment.rollout
    found = deployment.numbered(rollout.source) if rollout is not None else _last_retired(deployment)
    if found is None:
        raise ConflictError(
            "no_former_revision",
            f"'{deployment.name}' has no revision on record that served before this one",
            hint=f"'tgi-deploy status {deployment.name}' shows its revisions; 'up' with other options makes a new one",
        )
    return found


def _last_retired(deployment: Deployment) -> Revision | None:
    """Return the last that served and ran something else than what runs now."""
    now = _what(deployment.current)
    retired = (item for item in reversed(deployment.revisions) if item.state == "retired" and item.plan is not None)
    return next((item for item in retired if _what(item) != now), None)


def _what(revision: Revision) -> object:
    plan = revision.plan
    if plan is None:
        return None
    chosen = plan.chosen
    return chosen.instance_type, chosen.region, chosen.market, chosen.num_shard, chosen.quantize, plan.engine
