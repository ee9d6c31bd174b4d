"""The stages of an update, as functions from record to record: on record before each begins, so that any can be killed.

`recreate`: the old machine is ended and seen to be gone before the new one is asked for, so that there are never two.
`rolling`: the new machine is made and proved beside the old one, which serves meanwhile; once the new one is promoted,
the old one drains and goes. Of both the claim to the name stays, and what else the whole deployment has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Rollout
from tgi_deploy.values.resource import Step, revision_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tgi_deploy.values.deployment import Deployment, DeploymentStatus, ResourceRecord, Revision, Strategy
    from tgi_deploy.values.resource import Found


def next_number(deployment: Deployment) -> int:
    """Return the number of a revision that is to replace what runs.

    One that an unfinished update has never launched gives up its number to it.
    """
    unused = deployment.rollout is not None and deployment.rollout.stage == "ending"
    return deployment.revision.number + (0 if unused else 1)


def begun(deployment: Deployment, revision: Revision, strategy: Strategy) -> Deployment:
    """Return the record of an update to a revision of the next number. A rolling one needs a revision that serves."""
    known = deployment.rollout
    if deployment.revision.state == "pending":
        deployment = deployment.in_state("failed")
    rollout = Rollout(
        source=deployment.active if known is None else known.source,
        destination=revision.number,
        stage="starting" if strategy == "rolling" else "ending",
        strategy=strategy,
        ends=deployment.ends if strategy == "rolling" else None,
        refuses_since=known.refuses_since if known else None,
    )
    return at_status(replaced(deployment.with_revision(revision), rollout=rollout), "creating")


def at_status(deployment: Deployment, status: DeploymentStatus) -> Deployment:
    """Return the record in another status; while one revision serves beside another, it keeps that of the first."""
    return deployment if deployment.rolling else replaced(deployment, status=status)


def is_ending(deployment: Deployment) -> bool:
    """Whether its machine is one that an update has yet to end."""
    return deployment.rollout is not None and deployment.rollout.stage == "ending"


def as_recreate(deployment: Deployment) -> Deployment:
    """Return the record of a rolling update that has made nothing yet as one that ends the old machine first."""
    rollout = deployment.rollout
    if rollout is None:
        return deployment
    changed = replaced(deployment, rollout=replaced(rollout, strategy="recreate", stage="ending", ends=None))
    return at_status(changed, "creating")


def refusing_from(deployment: Deployment, at: datetime) -> Deployment:
    """Return the record as its old machine begins to end; an update that goes on has begun that before."""
    rollout = deployment.rollout
    if rollout is None or rollout.refuses_since is not None:
        return deployment
    return replaced(deployment, rollout=replaced(rollout, refuses_since=at))


def ended(deployment: Deployment) -> Deployment:
    """Return the record once the old machine is gone: nothing serves, and the new revision may be launched."""
    rollout = deployment.rollout
    if rollout is None:
        return deployment
    revisions = tuple(
        replaced(item, state="retired") if item.state == "serving" else item for item in deployment.revisions
    )
    rollout = replaced(rollout, stage="starting", strategy="recreate", ends=None)
    return replaced(deployment, status="creating", revisions=revisions, active=None, endpoint=None, rollout=rollout)


def promoted(deployment: Deployment, endpoint: str) -> Deployment:
    """Return the record once the new revision is proved: it serves, and the old machine has to go."""
    if deployment.rollout is None:
        return deployment
    rollout = replaced(deployment.rollout, stage="promoted", ends=None)
    return replaced(deployment.in_state("serving"), status="ready", endpoint=endpoint, rollout=rollout)


def withdrawn(deployment: Deployment) -> Deployment:
    """Return the record of a rolling update that is given up before it is promoted: what served before still does."""
    rollout = deployment.rollout
    if rollout is None:
        return deployment
    resources = tuple(
        item for item in deployment.resources if revision_of(item.key) != rollout.destination or "id" in item.attributes
    )
    ends = rollout.ends or deployment.ends
    return replaced(deployment.in_state("failed"), rollout=None, ends=ends, resources=resources)


def alone(deployment: Deployment) -> Deployment:
    """Return the record as if the revision that is brought up were its only one, with nothing of any other."""
    wanted = deployment.wanted
    resources = tuple(item for item in deployment.resources if revision_of(item.key) in {None, wanted.number})
    return replaced(deployment, revisions=(wanted,), active=None, rollout=None, resources=resources)


def beside(deployment: Deployment, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return what serves while another revision is brought up: nothing of it may change."""
    if not deployment.rolling:
        return ()
    return tuple(found for found in seen if revision_of(found.key) not in {None, deployment.wanted.number})


def outdated(deployment: Deployment, seen: Sequence[Found]) -> tuple[Step, ...]:
    """Return the steps that delete what is of no revision that runs or is brought up, what is on record among it."""
    stay = {None, deployment.current.number, deployment.wanted.number}
    found = [item for item in seen if not item.attached and revision_of(item.key) not in stay]
    ids = {item.id for item in found}
    records = (item for item in deployment.resources if revision_of(item.key) not in stay)
    hidden = [item for item in records if item.attributes.get("id", "") not in {"", *ids}]
    why = f"is not of revision {deployment.current.number}, which serves"
    things: tuple[Found | ResourceRecord, ...] = (*reversed(found), *reversed(hidden))
    return tuple(Step.deletion(item, why) for item in sorted(things, key=lambda item: not item.is_machine))


def leaving(deployment: Deployment, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return the machines that an update has yet to end before the next is made."""
    return tuple(found for found in seen if found.is_machine and not found.attached) if is_ending(deployment) else ()


def endings(deployment: Deployment, machines: Sequence[Found]) -> tuple[Step, ...]:
    """Return the steps that end them. A recorded machine that does not show is ended, too, by its id."""
    rollout, record = deployment.rollout, deployment.machine
    if rollout is None or not is_ending(deployment):
        return ()
    reason = f"makes room for revision {rollout.destination}"
    seen = {found.id for found in machines}
    steps = tuple(Step.deletion(found, reason) for found in machines)
    hidden = record is not None and record.attributes.get("id", "") not in {"", *seen}
    return (*steps, Step.deletion(record, reason)) if hidden and record is not None else steps
