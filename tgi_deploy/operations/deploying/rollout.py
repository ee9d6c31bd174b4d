"""Decides which revision an update replaces, and what the update changes for clients and costs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

from tgi_deploy.errors import ConflictError
from tgi_deploy.operations.launching.launch import pending_revision, pool_of
from tgi_deploy.operations.planning.documents import plan_to_record
from tgi_deploy.planner.time_to_ready import estimate, moved_machines
from tgi_deploy.rollout.stages import next_number, turns_back
from tgi_deploy.targets.protocol import Front, LaunchRequest
from tgi_deploy.text import usd
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from decimal import Decimal
    from typing import Literal

    from tgi_deploy.targets.protocol import Launch
    from tgi_deploy.values.deployment import Deployment, ResourceRecord, Revision, Strategy
    from tgi_deploy.values.plan import Candidate, Plan
    from tgi_deploy.values.plan_document import PlanDocument

    Origin = Literal["up", "heal", "rollback"]
    # Returns a plan that runs a recorded revision again, and the versions that its engine may report.
    RevisionPlanner = Callable[[Revision], tuple[Plan, tuple[str, ...]]]


_R = TypeVar("_R", bound=LaunchRequest)
# States of an unverified revision, whose spec may still change.
_UNVERIFIED: Final = frozenset({"pending", "failed"})


def not_planned_again(revision: Revision) -> tuple[Plan, tuple[str, ...]]:
    """Raise ConflictError `revision_unavailable`: the default if recorded revisions can't be planned again."""
    raise ConflictError("revision_unavailable", f"revision {revision.number} can't be planned again")


@runtime_checkable
class EarlyFront(Protocol):
    """A front that sends new requests to the new machine automatically, before the machine has been verified."""

    @property
    def moves(self) -> str:
        """When it does so: words that follow "new requests go to the new machine"."""

    def batch(self, deployment: Deployment) -> tuple[int, int]:
        """Return how many machines it replaces in a step, and of how many."""


@runtime_checkable
class SteppedFront(Front, Protocol):
    """A front that can send requests to the replicas of two revisions, so that an update needs room for only one more.

    Updating `replicas` of one of its machines changes the number of replicas there.
    """

    def replicas(self, machine: ResourceRecord) -> int:
        """Return how many replicas a machine should have now."""

    def fitting(self, deployment: Deployment, *, added: int | None = None) -> int:
        """Return how many replicas of the desired revision run, plus how many could start now next to the others.

        At most all of them; also all before the first has been verified, if the revisions can't be replaced in steps.
        At most `added` of them may need machines that the target would add first; None: as many as the budget allows.
        """

    def added_usd_per_hour(self, deployment: Deployment, first: int) -> Decimal | None:
        """Return the price of the machines that the target would add for so many new replicas, 0 for all.

        None without any, or if the machines have no price.
        """

    def share(self, deployment: Deployment) -> None:
        """Send new requests to the replicas of both revisions. Idempotent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """The effects of an update. `rows` are (what, before, after) of the differences.

    `downtime_s` is the expected time without an answer, `drain_s` how long in-flight requests may take. `stable` is
    whether the URL stays the same, `moves` when new requests go to the new machine. Two machines run for at most
    `overlap_s`, which costs `extra_usd` more. `at_a_time`: how many replicas are replaced in a step, 0 for all in one.
    """

    source: int
    destination: int
    strategy: Strategy
    rows: tuple[tuple[str, str, str], ...]
    usd_per_hour_before: Decimal | None
    usd_per_hour_after: Decimal | None
    downtime_s: int
    stable: bool
    moves: str
    drain_s: int
    overlap_s: int
    extra_usd: Decimal | None
    at_a_time: int = 0


def next_revision(
    deployment: Deployment, plan: Plan, launch: Launch, *, origin: Origin, at: datetime, update: str
) -> Revision:
    """Return the revision that will replace the running one. `update` is the id of an update that begins now."""
    made = pending_revision(plan, plan.chosen, launch, pool_of(plan.chosen, launch.place), at)
    known = deployment.numbered(number := next_number(deployment))
    return replaced(made, number=number, origin=origin, update=known.update if known else update)


def beside(request: _R, deployment: Deployment, front: object) -> _R:
    """Return the request for a machine next to the serving one.

    It has no fallbacks in other locations, because both machines share resources in one, and starts with as many
    replicas as fit.
    """
    plan = request.plan
    fallbacks = tuple(item for item in plan.fallbacks if item.offer.region == plan.chosen.offer.region)
    first = front.fitting(deployment) if isinstance(front, SteppedFront) else 0
    return replaced(request, plan=replaced(plan, fallbacks=fallbacks), first_replicas=first)


def relaunched(deployment: Deployment, plan: Plan, launch: Launch, *, at: datetime, update: str) -> Deployment:
    """Return the record for relaunching a deployment without a machine; a new revision if the old spec had served."""
    wanted, place = deployment.wanted, launch.place
    made = pending_revision(plan, plan.chosen, launch, pool_of(plan.chosen, place), at)
    same = wanted.spec is not None and made.spec is not None and wanted.spec.digest == made.spec.digest
    if same or wanted.state in _UNVERIFIED:
        return replaced(deployment, status="creating", endpoint=None)
    made = replaced(made, number=deployment.revision.number + 1, update=update)
    return replaced(deployment.in_state("retired").with_revision(made), status="creating", endpoint=None)


def update_of(
    deployment: Deployment,
    plan: Plan,
    candidate: Candidate,
    front: Front | None,
    others: tuple[Candidate, ...] = (),
    *,
    first_replicas: int = 0,
) -> Update | None:
    """Return the effects of the update; None without an update, or without a record of what is running.

    `others` are what the cloud may provide instead of the candidate; the extra price is that of the costliest.
    `first_replicas`: how many the new machine starts with; 0 for all.
    """
    rollout, current = deployment.rollout, deployment.current
    if rollout is None or current.plan is None or current.number == rollout.destination:
        return None
    new, rolls = plan_to_record(plan, candidate), deployment.rolling
    moved = moved_machines(plan, rolling=rolls)
    starts_s = round(sum(phase.expected_s for phase in estimate(candidate, moved=moved)))
    drain_s = current.grace_s if front is None else front.grace_s(deployment)
    each, every = _batch(front, deployment, first_replicas, candidate.replicas) if rolls else (1, 1)
    overlap_s = -(-every // each) * (starts_s + drain_s) if rolls else 0
    # In each step, as many replicas as are replaced at a time run beside the others.
    rents = [item.rent_usd_per_hour * each / every for item in (candidate, *others) if item.rent_usd_per_hour]
    beside = max(rents, default=None) or _added(front, deployment, first_replicas) if rolls else None
    return Update(
        source=current.number,
        destination=rollout.destination,
        strategy=rollout.strategy,
        rows=tuple(_rows(current.plan, new)),
        usd_per_hour_before=deployment.usd_per_hour,
        usd_per_hour_after=candidate.rent_usd_per_hour,
        downtime_s=starts_s if not rolls else drain_s if front is not None and front.cuts else 0,
        stable=front is not None and front.stable,
        moves=_moves(front, in_steps=0 < first_replicas < candidate.replicas),
        drain_s=drain_s,
        overlap_s=overlap_s,
        extra_usd=None if beside is None else beside * overlap_s / 3600,
        at_a_time=each if each < every else 0,
    )


def _moves(front: object, *, in_steps: bool) -> str:
    if in_steps:
        return "once the first new replica has been verified, both revisions serve until all are replaced"
    when = front.moves if isinstance(front, EarlyFront) else "once it has been verified"
    return f"new requests go to the new machine {when}"


def _batch(front: object, deployment: Deployment, first: int, replicas: int) -> tuple[int, int]:
    """Return how many replicas are replaced in a step, and of how many. `first`: with how many it starts, 0 for all."""
    return front.batch(deployment) if isinstance(front, EarlyFront) else (first or replicas, replicas)


def _added(front: object, deployment: Deployment, first: int) -> Decimal | None:
    return front.added_usd_per_hour(deployment, first) if isinstance(front, SteppedFront) else None


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
    """Return the revision that `rollback` goes to: the start of an unfinished update, or the previous one.

    Raises ConflictError `no_previous_revision`.
    """
    rollout = deployment.rollout
    if turns_back(deployment):
        return deployment.current
    found = deployment.numbered(rollout.source) if rollout is not None else _last_retired(deployment)
    if found is None:
        raise ConflictError(
            "no_previous_revision",
            f"'{deployment.name}' has no earlier revision in its record",
            hint=f"'tgi-deploy status {deployment.name}' shows its revisions; 'up' creates a new one",
        )
    return found


def _last_retired(deployment: Deployment) -> Revision | None:
    """Return the last revision that served with a different spec."""
    now = _what(deployment.current)
    retired = (item for item in reversed(deployment.revisions) if item.state == "retired" and item.plan is not None)
    return next((item for item in retired if _what(item) != now), None)


def _what(revision: Revision) -> object:
    plan = revision.plan
    if plan is None:
        return None
    chosen = plan.chosen
    return chosen.instance_type, chosen.region, chosen.market, chosen.num_shard, chosen.quantize, plan.engine
