"""What every target shares on the way from a plan to a machine: one attempt, its record, and who makes attempts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING, Protocol

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.operations.planning.wish import SHORTEST_TTL_S, least_spend
from tgi_deploy.reconcile.model import MACHINES
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tgi_deploy.operations.launching.traffic import Traffic
    from tgi_deploy.reconcile.ends import Spent
    from tgi_deploy.reconcile.model import ChangeSet, Deployment, Found, Resource
    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.values.plan import Candidate, Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One candidate in one place, ready to be carried out.

    `pool` is what capacity is counted by, `zone` where in the place it goes, `cidrs` who may connect. `expires` is when
    a machine that lives for `ttl_s` ends, `spent_usd` what `ttl_s` takes for spent.
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
    spent_usd: Decimal | None = None

    @property
    def replaces_a_machine(self) -> bool:
        """Return whether one is to go and none is to stay."""
        actions = {step.action for step in self.changes.steps if step.kind in MACHINES}
        return "delete" in actions and not actions & {"keep", "adopt"}


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


def seconds_left(name: str, ceiling_usd: Decimal, spent: Spent, usd_per_hour: Decimal) -> int:
    """Return for how long a machine may run on what is left of --max-spend.

    Raises InputError `max_spend_reached` where that is too short for one to start.
    """
    seconds = int((ceiling_usd - spent.usd) / usd_per_hour * 3600)
    if seconds >= SHORTEST_TTL_S:
        return seconds
    least = least_spend(usd_per_hour, spent.usd)
    raise InputError(
        "max_spend_reached",
        f"{name}: {spent_words(spent, ceiling_usd)}, and the rest lasts {max(0, seconds)} s at ${usd_per_hour} an hour",
        hint=f"a machine needs five minutes to start: give at least --max-spend {least}, "
        f"or run 'tgi-deploy down {name}', after which the count begins anew",
    )


def spent_words(spent: Spent, ceiling_usd: Decimal) -> str:
    machines = "1 machine" if spent.machines == 1 else f"{spent.machines} machines"
    usd = spent.usd.quantize(Decimal("0.01"), ROUND_UP)
    return f"${usd} of --max-spend ${ceiling_usd} is spent already ({machines})"


def expiry(deployment: Deployment, ttl_s: int | None, seen: Sequence[Found], clock: Clock) -> datetime | None:
    """When a machine of this lifetime ends. One that is there keeps its moment, so does one that may be on its way."""
    if ttl_s is None:
        return None
    known = deployment.expires
    if known is not None and ttl_s == deployment.ttl_s and is_under_way(deployment, seen, clock):
        return known
    return (clock.now() + timedelta(seconds=ttl_s)).replace(microsecond=0)


def is_under_way(deployment: Deployment, seen: Sequence[Found], clock: Clock) -> bool:
    """Return whether a machine is there, or may be on its way and not past its end."""
    known, machine = deployment.expires, deployment.machine
    begun = machine is not None and machine.phase == "intent" and known is not None and known > clock.now()
    return begun or any(found.is_machine and found.alive for found in seen)


def lease_end(lease_s: int | None, clock: Clock) -> datetime | None:
    """Until when a lease lasts that is made or renewed now."""
    return None if lease_s is None else (clock.now() + timedelta(seconds=lease_s)).replace(microsecond=0)
