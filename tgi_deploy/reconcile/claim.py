"""Decides which deployment owns a name when two are created at once.

The first to create a resource under a name owns it: resource names are unique per network or region, so the cloud
rejects the second. The loser backs off and removes only its own resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.reconcile.errors import ClaimedError
from tgi_deploy.values.resource import TAG_CREATED, TAG_ID, TAG_OWNER, TAG_UPDATE, revision_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found, Resource


def owned_by(found: Iterable[Found], deployment_id: str) -> tuple[Found, ...]:
    """Return the resources of this deployment, including those known by id that lost their tags."""
    return tuple(item for item in found if item.tags.get(TAG_ID, deployment_id) == deployment_id)


def foreign(found: Iterable[Found], deployment_id: str) -> tuple[Found, ...]:
    """Return the resources of another deployment with the same name."""
    return tuple(item for item in found if item.tags.get(TAG_ID, deployment_id) != deployment_id)


def reject_foreign(deployment: Deployment, found: Sequence[Found]) -> None:
    """Raise ClaimedError if another deployment has a resource under this name."""
    others = foreign(found, deployment.id)
    if others:
        raise claimed_error(deployment.name, others[0], owner=deployment.owner)


def reject_concurrent_update(deployment: Deployment, found: Iterable[Found]) -> None:
    """Raise ClaimedError if another run is already updating this deployment to the same revision."""
    first = next((item for item in found if item.alive and is_of_other_update(deployment, item)), None)
    if first is not None:
        raise claimed_error(deployment.name, first, owner=deployment.owner)


def is_of_other_update(deployment: Deployment, found: Found) -> bool:
    """Return whether another update created it for a revision number that this record also has."""
    revision = deployment.numbered(revision_of(found.key))
    return revision is not None and found.tags.get(TAG_UPDATE, revision.update) != revision.update


def claimed_error(name: str, found: Found, *, owner: str, until: str = "") -> ClaimedError:
    """Return the error that names the deployment's owner to `owner`. `until` is an alternative to removing it."""
    tags = found.tags
    theirs, begun = tags.get(TAG_OWNER, ""), tags.get(TAG_CREATED, "")
    since = f", created {begun}" if begun else ""
    what = f"{found.kind} {found.id} in {found.place} (deployment {tags[TAG_ID]})"
    removes = f"'tgi-deploy down {name}' removes what it left"
    if theirs and theirs == owner:
        message = f"'{name}' is in use by another of your runs ({theirs}{since}): {what}"
        hint = f"let that run finish; if it is over, {removes}"
    else:
        message = f"'{name}' belongs to {theirs or 'someone else'}{since}: {what}"
        hint = f"choose another --name; if that run has ended, {removes}"
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


def name_taken_error(name: str, resource: Resource, why: str) -> ClaimedError:
    """Return the error for a unique name held by a resource without our tags."""
    return ClaimedError(
        f"the name of the {resource.kind} of '{name}' is in use in {resource.place}, by a resource without this tool's "
        f"tags: {why}",
        hint="choose another --name, or remove that resource",
        data={"kind": resource.kind, "region": resource.place},
    )
