"""What every target shares on the way from a plan to a machine: one attempt, its record, and who makes attempts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from tgi_deploy.app.planning.documents import as_recorded, plan_document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tgi_deploy.app.launching.traffic import Traffic
    from tgi_deploy.planner.types import Candidate, Plan
    from tgi_deploy.reconcile.model import ChangeSet, Deployment, Found, Resource
    from tgi_deploy.reconcile.ports import Clock


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One candidate in one place, ready to be carried out.

    `pool` is what capacity is counted by, `zone` where in the place it goes, `cidrs` who may connect. `expires` is when
    a machine that lives for `ttl_s` ends.
    """

    candidate: Candidate
    place: str
    pool: str
    zone: str
    cidrs: tuple[str, ...]
    wanted: tuple[Resource, ...]
    changes: ChangeSet
    ttl_s: int | None
    artifacts: tuple[tuple[str, str], ...]
    idle_s: int | None = None
    lease_s: int | None = None
    expires: datetime | None = None


class Launchpad(Protocol):
    """A target's way from a plan to a running machine."""

    @property
    def target(self) -> str: ...

    @property
    def place(self) -> str:
        """Where the first attempt goes."""

    @property
    def traffic(self) -> Traffic:
        """What will go to its endpoint, by the settings: nothing is asked."""

    def first(self, deployment: Deployment, seen: Sequence[Found]) -> Attempt:
        """The attempt that `launch` would begin with; nothing is changed. Raises what makes it impossible."""

    def launch(self, deployment: Deployment) -> tuple[Deployment, Candidate]:
        """Carry out attempts until a machine runs; the deployment as recorded, and what was launched."""

    def address(self, deployment: Deployment) -> str:
        """Where its engine is reached, as a probe takes it."""


def described(deployment: Deployment, attempt: Attempt, plan: Plan, clock: Clock) -> Deployment:
    """The record of what is about to be tried."""
    candidate = attempt.candidate
    owned = candidate.offer.market == "owned"
    return replace(
        deployment,
        region=attempt.place,
        phase="creating",
        plan=_recorded_plan(replace(plan, chosen=candidate)),
        usd_per_hour=None if owned else candidate.cost.usd_per_hour,
        ttl_s=attempt.ttl_s,
        expires=attempt.expires,
        idle_s=attempt.idle_s,
        lease_s=attempt.lease_s,
        lease_until=lease_end(attempt.lease_s, clock),
    )


def expiry(deployment: Deployment, ttl_s: int | None, seen: Sequence[Found], clock: Clock) -> datetime | None:
    """When a machine of this lifetime ends. One that is there keeps its moment, so does one that may be on its way."""
    if ttl_s is None:
        return None
    now, known, machine = clock.now(), deployment.expires, deployment.machine
    there = any(found.is_machine and found.alive for found in seen)
    begun = machine is not None and machine.phase == "intent" and known is not None and known > now
    if known is not None and ttl_s == deployment.ttl_s and (there or begun):
        return known
    return (now + timedelta(seconds=ttl_s)).replace(microsecond=0)


def lease_end(lease_s: int | None, clock: Clock) -> datetime | None:
    """Until when a lease lasts that is made or renewed now."""
    return None if lease_s is None else (clock.now() + timedelta(seconds=lease_s)).replace(microsecond=0)


def _recorded_plan(plan: Plan) -> dict[str, Any]:
    """Without what was refused: by far the largest part, it is written anew at every step, and helps nobody later."""
    document = plan_document(replace(plan, rejections=()))
    del document["rejections"]
    return as_recorded(document)
