"""Finds surplus machines of a deployment: only one was requested, but each is billed.

A second machine exists if a cloud lists one after the wait for it is over, or if someone launches a copy by hand. The
recorded machine has the endpoint and is never terminated in favor of another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import ConflictError, warning
from tgi_deploy.operations.watching.lookup import machine_of, second_machines
from tgi_deploy.operations.watching.status import second_machine
from tgi_deploy.rollout.stages import outdated_steps
from tgi_deploy.values.resource import TAG_OWNER, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.errors import Problem
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found


def surplus_of(deployment: Deployment, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return the live machines other than the recorded one; none if that one is dead and may be replaced.

    Raises ConflictError `name_taken` for a machine that another owner created under this deployment's id.
    """
    first, record = machine_of(deployment, seen), deployment.machine
    if first is None or record is None or not first.alive or first.id != record.attributes.get("id"):
        return ()
    surplus = second_machines(deployment, seen)
    for machine in surplus:
        _reject_foreign(deployment, first, machine)
    return surplus


def surplus_warning(deployment: Deployment, machine: Found) -> Problem:
    return warning("second_machine", second_machine(deployment, machine))


def _reject_foreign(deployment: Deployment, first: Found, machine: Found) -> None:
    owner = machine.tags.get(TAG_OWNER, deployment.owner)
    if deployment.owner and owner != deployment.owner:
        raise ConflictError(
            "name_taken",
            f"{second_machine(deployment, machine)}; {owner} created it, and {first.id} is recorded here",
            hint=f"ask {owner} which one serves; 'tgi-deploy down {deployment.name}' removes both",
        )


def removal_of_surplus(surplus: Sequence[Found], deployment: Deployment, seen: Sequence[Found]) -> tuple[Step, ...]:
    """Return the steps that terminate surplus machines and delete resources of outdated revisions."""
    record = deployment.machine
    reason = f"duplicates {record.attributes['id']}" if surplus and record else "is surplus"
    machines = {machine.id for machine in surplus}
    others = (step for step in outdated_steps(deployment, seen) if step.attributes.get("id") not in machines)
    return (*(Step.deletion(machine, reason) for machine in surplus), *others)
