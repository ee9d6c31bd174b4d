"""Two people, one name: whose a name is.

Whoever makes the first thing under a name has it: the things' own names are unique in a network and in a region, so
of two who ask at once one is refused. Everybody else gives way and removes what is their own, and nothing more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.reconcile.errors import ClaimedError
from tgi_deploy.values.resource import TAG_CREATED, TAG_ID, TAG_OWNER, revision_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found, Resource


def own(found: Iterable[Found], deployment_id: str) -> tuple[Found, ...]:
    """What is of this very deployment. A thing that lost its tags and is known by its id is."""
    return tuple(item for item in found if item.tags.get(TAG_ID, deployment_id) == deployment_id)


def strange(found: Iterable[Found], deployment_id: str) -> tuple[Found, ...]:
    """What another deployment of the same name has."""
    return tuple(item for item in found if item.tags.get(TAG_ID, deployment_id) != deployment_id)


def refuse_stranger(deployment: Deployment, found: Sequence[Found]) -> None:
    """Raises ClaimedError where another deployment has something under this name."""
    strangers = strange(found, deployment.id)
    if strangers:
        raise claimed(deployment.name, strangers[0], owner=deployment.owner)


def refuse_other_update(deployment: Deployment, found: Iterable[Found]) -> None:
    """Raises ClaimedError where another owner updates this very deployment, and was first with that revision."""
    rollout = deployment.rollout
    if rollout is None:
        return
    for item in found:
        first = item.alive and revision_of(item.key) == rollout.destination
        if first and item.tags.get(TAG_OWNER, deployment.owner) != deployment.owner:
            raise claimed(deployment.name, item, owner=deployment.owner)


def claimed(name: str, found: Found, *, owner: str, until: str = "") -> ClaimedError:
    """Return the error that tells `owner` whose it is. `until`: what else there is to do than to remove it."""
    tags = found.tags
    theirs, begun = tags.get(TAG_OWNER, ""), tags.get(TAG_CREATED, "")
    since = f", begun {begun}" if begun else ""
    what = f"{found.kind} {found.id} in {found.place} (deployment {tags[TAG_ID]})"
    removes = f"'tgi-deploy down {name}' removes what it left"
    if theirs and theirs == owner:
        message = f"'{name}' is in use by another run of yours ({theirs}{since}): {what}"
        hint = f"let that run finish; if it is over, {removes}"
    else:
        message = f"'{name}' belongs to {theirs or 'somebody'}{since}: {what}"
        hint = f"choose another --name; if that run is dead, {removes}"
    return ClaimedError(
        message,
        hint=f"{hint}{until}",
        data={
            "owner": theirs,
            "begun": begun,
            "deployment_id": tags[TAG_ID],
            "kind": found.kind,
            "id": found.id,
            "region": found.place,
        },
    )


def taken(name: str, resource: Resource, why: str) -> ClaimedError:
    """The unique name is in use, and nothing with our tags has it."""
    return ClaimedError(
        f"the name of the {resource.kind} of '{name}' is in use in {resource.place}, by something that has no tags of "
        f"this tool: {why}",
        hint="choose another --name, or remove what has that name",
        data={"kind": resource.kind, "region": resource.place},
    )
