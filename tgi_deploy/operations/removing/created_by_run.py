"""Removes the resources that one run created. Resources from before the run stay, and so does the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.errors import ResourceRef
from tgi_deploy.operations.removing.down import remove_own
from tgi_deploy.operations.settling import await_settled
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import KEPT, ChangeSet, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.receipt import Receipt
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import Found


@dataclass(frozen=True, slots=True)
class Existing:
    """The ids of the resources that a deployment had before a run; empty if the run created the deployment.

    `ended` are the recorded ones that no longer existed when the run began.
    """

    ids: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()

    @classmethod
    def of(cls, deployment: Deployment, seen: Sequence[Found]) -> Existing:
        """Return the live resources, except those that outlive the deployment (downloaded weights)."""
        outlives = {record.attributes.get("id") for record in deployment.resources if KEPT in record.notes}
        alive = frozenset(found.id for found in seen if found.alive)
        recorded = frozenset(record.attributes["id"] for record in deployment.resources if "id" in record.attributes)
        return cls(ids=alive - outlives, ended=recorded - alive)

    def has_machine_of(self, deployment: Deployment) -> bool:
        machine = deployment.machine
        return machine is not None and machine.attributes.get("id") in self.ids

    def left_of(self, deployment: Deployment) -> list[ResourceRef]:
        """Return the existing resources that are still recorded."""
        return [
            ResourceRef(kind=item.kind, id=item.attributes["id"], region=item.place)
            for item in deployment.resources
            if item.attributes.get("id") in self.ids
        ]


def remove_created(context: Context, deployment: Deployment, existing: Existing) -> Receipt | None:
    """Remove the resources that are not in `existing`. Those that belong to an existing machine stay.

    Return None if something stays: the command that removes it writes the receipt. Raises LeftBehindError.
    """
    if not existing.ids:
        return remove_own(context, replaced(deployment, given_up=True))
    remove_new(context, deployment, existing)
    return None


def remove_new(context: Context, deployment: Deployment, existing: Existing) -> None:
    """Remove the resources that are not in `existing`, and keep the record. Raises LeftBehindError."""
    if not existing.has_machine_of(deployment):
        await_settled(context, deployment)
        steps = deletions(
            deployment,
            lambda record: record.attributes.get("id", "") not in {"", *existing.ids},
            ended=existing.ended,
        )
        context.executor().execute(deployment, ChangeSet(steps=steps))


def deletions(
    deployment: Deployment, made: Callable[[ResourceRecord], bool], *, ended: frozenset[str] = frozenset()
) -> tuple[Step, ...]:
    """Return the deletion steps, newest resource first; resources that outlive their deployment are skipped.

    Recorded resources in state `created` count as alive, except those whose ids are in `ended`.
    """
    return tuple(
        replaced(
            Step.deletion(item, "was created by this run"),
            alive=item.state == "created" and item.attributes.get("id") not in ended,
        )
        for item in reversed(deployment.resources)
        if made(item) and KEPT not in item.notes
    )
