"""The stages of an update, as functions from record to record, saved before each stage so that any can be killed.

`recreate`: the old machine is gone before the new one is requested, so there are never two.
`rolling`: the new machine is created and verified while the old one serves; once the new one is promoted, the old one
drains and is deleted. With both, the claim to the name and all shared resources stay.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Rollout
from tgi_deploy.values.resource import Step, revision_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tgi_deploy.values.deployment import Deployment, DeploymentStatus, ResourceRecord, Revision, Strategy
    from tgi_deploy.values.resource import ChangeSet, Found


def next_number(deployment: Deployment) -> int:
    """Return the number of the next revision.

    The number of a revision that an unfinished update never launched is reused.
    """
    unused = deployment.rollout is not None and deployment.rollout.stage == "ending"
    return deployment.revision.number + (0 if unused else 1)


def begin_update(deployment: Deployment, revision: Revision, strategy: Strategy) -> Deployment:
    """Return the record at the start of an update. A rolling update needs a revision that serves."""
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
    """Return the record in another status; during a rolling update the serving revision's status stays."""
    return deployment if deployment.rolling else replaced(deployment, status=status)


def is_ending(deployment: Deployment) -> bool:
    """Return whether an update still has to remove its machine."""
    return deployment.rollout is not None and deployment.rollout.stage == "ending"


def is_promoted(deployment: Deployment) -> bool:
    """Return whether the new revision of an update serves, and the old machine is not removed yet."""
    return deployment.rollout is not None and deployment.rollout.stage == "promoted"


def as_recreate(deployment: Deployment) -> Deployment:
    """Turn a rolling update that has created nothing yet into one that removes the old machine first."""
    rollout = deployment.rollout
    if rollout is None:
        return deployment
    changed = replaced(deployment, rollout=replaced(rollout, strategy="recreate", stage="ending", ends=None))
    return at_status(changed, "creating")


def mark_draining(deployment: Deployment, at: datetime) -> Deployment:
    """Return the record as the old machine starts to shut down, unless it did so before the update was resumed."""
    rollout = deployment.rollout
    if rollout is None or rollout.refuses_since is not None:
        return deployment
    return replaced(deployment, rollout=replaced(rollout, refuses_since=at))


def mark_old_removed(deployment: Deployment) -> Deployment:
    """Return the record once the old machine is gone and the new revision may be launched."""
    rollout = deployment.rollout
    if rollout is None:
        return deployment
    revisions = tuple(
        replaced(item, state="retired") if item.state == "serving" else item for item in deployment.revisions
    )
    rollout = replaced(rollout, stage="starting", strategy="recreate", ends=None)
    return replaced(deployment, status="creating", revisions=revisions, active=None, endpoint=None, rollout=rollout)


def mark_promoted(deployment: Deployment, endpoint: str) -> Deployment:
    """Return the record once the new revision has been verified and serves; the old machine remains to be deleted."""
    if deployment.rollout is None:
        return deployment
    rollout = replaced(deployment.rollout, stage="promoted", ends=None)
    return replaced(deployment.in_state("serving"), status="ready", endpoint=endpoint, rollout=rollout)


def turns_back(deployment: Deployment) -> bool:
    """Return whether a promoted update goes back to the revision that it began with."""
    source = deployment.numbered(deployment.rollout.source) if deployment.rollout else None
    return is_promoted(deployment) and source is not None and source.state == "failed"


def next_commands(deployment: Deployment, *, lost: bool = False) -> str:
    """Return the commands that finish a promoted update of which both revisions run, or the new one is `lost`."""
    rollback, rollout = f"'tgi-deploy rollback {deployment.name}'", deployment.rollout
    if rollout is None or turns_back(deployment):
        return f"{rollback} resumes it"
    on = "" if lost else "the same 'up' resumes it, "
    return f"{on}{rollback} goes back to revision {rollout.source}"


def mark_turned_back(deployment: Deployment) -> Deployment:
    """Return the record of a promoted update that goes back: its new machine is now the one to be removed."""
    rollout = deployment.rollout
    if rollout is None or rollout.source is None or turns_back(deployment):
        return deployment
    back = replaced(rollout, source=rollout.destination, destination=rollout.source)
    return replaced(deployment.in_state("failed"), rollout=back).in_state("serving")


def mark_withdrawn(deployment: Deployment, seen: Sequence[Found] = ()) -> Deployment:
    """Return the record of a rolling update abandoned before promotion: the previous revision still serves.

    Its requested resources stay on record if they are in `seen`.
    """
    rollout = deployment.rollout
    if rollout is None:
        return deployment
    created = {found.key: found for found in seen}
    answered = (
        replaced(item, state="created", attributes=created[item.key].attributes)
        if "id" not in item.attributes and item.key in created
        else item
        for item in deployment.resources
    )
    resources = tuple(
        item for item in answered if revision_of(item.key) != rollout.destination or "id" in item.attributes
    )
    ends = rollout.ends or deployment.ends
    return replaced(deployment.in_state("failed"), rollout=None, ends=ends, resources=resources)


def only_launched(deployment: Deployment) -> Deployment:
    """Return the record with only the revision that is being brought up."""
    wanted = deployment.wanted
    resources = tuple(item for item in deployment.resources if revision_of(item.key) in {None, wanted.number})
    return replaced(deployment, revisions=(wanted,), active=None, rollout=None, resources=resources)


def serving_resources(deployment: Deployment, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return the resources that serve while another revision is brought up and must not change."""
    if not deployment.rolling:
        return ()
    return tuple(found for found in seen if revision_of(found.key) not in {None, deployment.wanted.number})


def has_outdated(deployment: Deployment) -> bool:
    """Return whether a revision serves and the record has resources of another one."""
    return deployment.active is not None and bool(_outdated_records(deployment))


def _outdated_records(deployment: Deployment) -> tuple[ResourceRecord, ...]:
    stay = _staying(deployment)
    return tuple(item for item in deployment.resources if revision_of(item.key) not in stay)


def _staying(deployment: Deployment) -> frozenset[int | None]:
    """Return the revisions that run or are being brought up; None is what belongs to the whole deployment."""
    return frozenset({None, deployment.current.number, deployment.wanted.number})


def outdated_steps(deployment: Deployment, seen: Sequence[Found]) -> tuple[Step, ...]:
    """Return the steps that delete resources of revisions that neither run nor are being brought up."""
    stay = _staying(deployment)
    found = [item for item in seen if not item.attached and revision_of(item.key) not in stay]
    ids = {item.id for item in found}
    hidden = [item for item in _outdated_records(deployment) if item.attributes.get("id", "") not in {"", *ids}]
    why = f"does not belong to the serving revision {deployment.current.number}"
    things: tuple[Found | ResourceRecord, ...] = (*reversed(found), *reversed(hidden))
    return tuple(Step.deletion(item, why) for item in sorted(things, key=lambda item: not item.is_machine))


def machines_to_end(deployment: Deployment, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return the machines that an update still has to remove before it creates the next."""
    return tuple(found for found in seen if found.is_machine and not found.attached) if is_ending(deployment) else ()


def end_steps(deployment: Deployment, machines: Sequence[Found]) -> tuple[Step, ...]:
    """Return the steps that remove these machines, and, by id, a recorded machine that is not visible."""
    rollout, record = deployment.rollout, deployment.machine
    if rollout is None or not is_ending(deployment):
        return ()
    reason = f"makes room for revision {rollout.destination}"
    seen = {found.id for found in machines}
    steps = tuple(Step.deletion(found, reason) for found in machines)
    hidden = record is not None and record.attributes.get("id", "") not in {"", *seen}
    return (*steps, Step.deletion(record, reason)) if hidden and record is not None else steps


def claiming_steps(making: ChangeSet) -> tuple[Step, ...]:
    """Return the creations before the machine if they claim the revision and nothing has to be deleted first."""
    if any(step.action == "delete" and revision_of(step.key) is None for step in making.steps):
        return ()
    made = (step for step in making.steps if step.action == "create")
    first = tuple(takewhile(lambda step: not step.is_machine, made))
    return first if any(revision_of(step.key) is not None for step in first) else ()
