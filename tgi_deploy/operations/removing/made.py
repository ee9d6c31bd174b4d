"""What one run has made of a deployment, and its removal: what was there before stays, and the record with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.errors import Thing
from tgi_deploy.operations.removing.down import await_settled, remove_own
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import KEPT, ChangeSet, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.receipt import Receipt
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import Found


@dataclass(frozen=True, slots=True)
class Before:
    """The ids of what a deployment had before a run; none where the run began it."""

    ids: frozenset[str]

    @classmethod
    def of(cls, deployment: Deployment, seen: Sequence[Found]) -> Before:
        """What stays in any case (downloaded weights) does not count, nor does what is ending."""
        outlives = {record.attributes.get("id") for record in deployment.resources if KEPT in record.notes}
        return cls(frozenset(found.id for found in seen if found.alive) - outlives)

    def has_machine_of(self, deployment: Deployment) -> bool:
        machine = deployment.machine
        return machine is not None and machine.attributes.get("id") in self.ids

    def left_of(self, deployment: Deployment) -> list[Thing]:
        """Return what is still on record of it."""
        return [
            Thing(kind=item.kind, id=item.attributes["id"], region=item.place)
            for item in deployment.resources
            if item.attributes.get("id") in self.ids
        ]


def remove_made(context: Context, deployment: Deployment, before: Before) -> Receipt | None:
    """Remove what is there now and was not `before`. What is around a machine from before belongs to it, and stays.

    None where something stays: its receipt is for whoever removes that. Raises LeftBehindError.
    """
    if not before.ids:
        return remove_own(context, replaced(deployment, given_up=True))
    remove_beside(context, deployment, before)
    return None


def remove_beside(context: Context, deployment: Deployment, before: Before) -> None:
    """Remove what was not there `before`, and keep the record. Raises LeftBehindError."""
    if not before.has_machine_of(deployment):
        await_settled(context, deployment)
        steps = deletions(deployment, lambda record: record.attributes.get("id", "") not in {"", *before.ids})
        context.executor().execute(deployment, ChangeSet(steps=steps))


def deletions(deployment: Deployment, made: Callable[[ResourceRecord], bool]) -> tuple[Step, ...]:
    """The last made first; without what outlives its deployment."""
    return tuple(
        replaced(Step.deletion(item, "was made by this run"), alive=item.state == "created")
        for item in reversed(deployment.resources)
        if made(item) and KEPT not in item.notes
    )
