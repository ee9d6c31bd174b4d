"""The change that `up` proposes: what the user confirms before anything is created, removed or billed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from tgi_deploy.operations.deploying.in_place import NETWORK
from tgi_deploy.operations.deploying.surplus import surplus_warning
from tgi_deploy.operations.planning.documents import credits_on, interruptions
from tgi_deploy.operations.watching.lookup import price_of_all
from tgi_deploy.planner.time_to_ready import phases_of_start

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.deploying.rollout import Update
    from tgi_deploy.operations.deploying.scaling import Resizing
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import Ends
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.plan_document import PlannedCredits, PlannedInterruptions
    from tgi_deploy.values.resource import ChangeSet, Found


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """The change to confirm. `surplus` are other machines than the serving one, which would be terminated.

    `ends` are the limits. `cidrs`, or else `reached`, is who may connect. `update` is None if nothing is replaced,
    `resizing` if the number of replicas stays. `unfinished`: the warning that the steps of an earlier update continue,
    which is then all there is to confirm.
    """

    deployment: Deployment
    candidate: Candidate
    changes: ChangeSet
    zone: str
    ends: Ends
    cidrs: tuple[str, ...] = ()
    findings: tuple[Problem, ...] = ()
    surplus: tuple[Found, ...] = ()
    update: Update | None = None
    reached: str = ""
    resizing: Resizing | None = None
    unfinished: Problem | None = None

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Return the warnings before confirmation, including surplus machines."""
        warned = [item for item in (self.unfinished, *self.findings) if item is not None and item.severity == "warning"]
        return (*warned, *(surplus_warning(self.deployment, machine) for machine in self.surplus))

    @property
    def surplus_usd_per_hour(self) -> Decimal | None:
        return price_of_all(self.deployment, self.surplus)

    @property
    def credits(self) -> PlannedCredits | None:
        """Return how long credits cover the bill; None without credits."""
        return credits_on(self.candidate.cost.usd_per_hour, self.candidate.offer.credits)

    @property
    def interruptions(self) -> PlannedInterruptions | None:
        """Return the price including interruptions; None if the machine is never reclaimed."""
        return interruptions(self.candidate)

    @property
    def ready_s(self) -> float:
        """Return the expected seconds until the engine answers."""
        return sum(phase.expected_s for phase in phases_of_start(self.candidate))

    @property
    def ends_surplus_alone(self) -> bool:
        ends = bool(self.changes.steps) and all(step.action == "delete" for step in self.changes.steps)
        return ends and not self.changes_networks_alone

    @property
    def changes_networks_alone(self) -> bool:
        return bool(self.changes.steps) and all(step.kind == NETWORK for step in self.changes.steps)

    @property
    def asks(self) -> bool:
        """Whether the user has to confirm it: more replicas on machines that are paid for already need no question."""
        return bool(self.changes.changes) or self.added_usd_per_hour > 0 or self.unfinished is not None

    @property
    def added_usd_per_hour(self) -> Decimal:
        """Return what machines that have to be added for more replicas cost at most; 0 if none."""
        return self.resizing.headroom.added_usd_per_hour if self.resizing else Decimal(0)
