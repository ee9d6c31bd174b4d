"""Decides whether `up` may adopt the resources that exist under its name, or has to leave the name to someone else.

The clouds' unique names decide between two concurrent runs (reconcile/claim.py). This module decides about existing
resources: our own, someone else's, or leftovers of a run whose computer was lost.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tgi_deploy.operations.watching.lookup import created_at
from tgi_deploy.reconcile.claim import claimed_error, foreign, is_of_other_update, owned_by
from tgi_deploy.reconcile.clocks import CLOCKS_APART
from tgi_deploy.reconcile.retry import polls
from tgi_deploy.values.resource import TAG_ID, TAG_NAME, TAG_OWNER, revision_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found

# Longer than any launch goes without creating a resource or waiting for one, plus clock skew.
FRESH: Final = timedelta(minutes=15) + CLOCKS_APART
_DAY: Final = timedelta(days=1)


def settle_claim(context: Context, name: str, recorded: Deployment | None, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return the resources in `seen` that this run may adopt; without a record, those that a finished run left.

    Raises ClaimedError if someone else owns the name, or may be using it right now.
    """
    if recorded is not None:
        ours = owned_by(seen, recorded.id)
        _give_way(name, ours, foreign(seen, recorded.id), owner=context.owner)
        reject_newer(context, recorded, ours)
        _reject_takeover(recorded, ours)
        return ours
    if not seen:
        return ()
    first = min(seen, key=_seniority)
    theirs = owned_by(seen, first.tags.get(TAG_ID, ""))
    _reject_if_in_use(context, name, theirs)
    return theirs


def _give_way(name: str, ours: Sequence[Found], theirs: Sequence[Found], *, owner: str) -> None:
    """Raise ClaimedError if another deployment owns the name: the one with a machine, else the older one."""
    alive = [item for item in theirs if item.alive and not item.attached]
    if alive and (not ours or min(alive, key=_seniority) is min((*ours, *alive), key=_seniority)):
        raise claimed_error(name, min(alive, key=_seniority), owner=owner)


def reject_newer(context: Context, recorded: Deployment, seen: Iterable[Found]) -> None:
    """Raise ClaimedError for an update, in progress or finished, that the record does not have."""
    name, last = recorded.name, recorded.revision.number
    newer = [
        item
        for item in owned_by(seen, recorded.id)
        if item.alive and ((revision_of(item.key) or 0) > last or is_of_other_update(recorded, item))
    ]
    if not newer:
        return
    first = min(newer, key=lambda item: not item.is_machine)
    number, error = revision_of(first.key) or 1, claimed_error(name, first, owner=context.owner)
    here = f"ends with {last}" if number > last else f"has another revision {number}"
    raise error.copy(
        message=f"{error.message}; it is of revision {number}, and the record here {here}",
        hint=f"let that run finish, and then {with_its_record(name)}; 'tgi-deploy down {name}' removes everything",
    )


def with_its_record(name: str) -> str:
    """Return what makes a command act on what another computer has recorded."""
    return f"use the computer that has its record, or copy that record's folder here (deployments/{name})"


def _reject_takeover(recorded: Deployment, ours: Sequence[Found]) -> None:
    """Raise ClaimedError if someone else took over this deployment's id after our machine terminated."""
    known = {item.attributes.get("id") for item in recorded.resources}
    living = [item for item in ours if item.is_machine and item.alive]
    unrecorded = (item for item in living if item.id not in known)
    others = [item for item in unrecorded if item.tags.get(TAG_OWNER, recorded.owner) != recorded.owner]
    if recorded.owner and others and others == living:
        raise claimed_error(recorded.name, others[0], owner=recorded.owner)


def _reject_if_in_use(context: Context, name: str, theirs: Sequence[Found]) -> None:
    machine = next((item for item in theirs if item.is_machine and item.alive), None)
    owner = theirs[0].tags.get(TAG_OWNER, context.owner)
    newest = max((at for at in map(created_at, theirs) if at is not None), default=None)
    if machine is not None and owner != context.owner:
        raise claimed_error(name, machine, owner=context.owner)
    left = FRESH - (context.clock.now() - newest) if newest is not None else timedelta()
    if left > timedelta():
        raise claimed_error(name, machine or theirs[0], owner=context.owner, until=_free_when(context, left))


def _free_when(context: Context, left: timedelta) -> str:
    """Return when the name becomes free; empty if the clock that dated the claim is days ahead."""
    if left > _DAY:
        return ""
    return f", and after {(context.clock.now() + left).strftime('%H:%M')} UTC the same command resumes it"


def _seniority(item: Found) -> tuple[bool, bool, datetime | None, str]:
    """Return the sort key: live machines first, then by creation time, then by id."""
    at = created_at(item)
    return not (item.is_machine and item.alive), at is None, at, item.id


def yield_to_older(context: Context, deployment: Deployment, regions: Iterable[str]) -> None:
    """Resolve two launches of one name in different regions, where both claims succeed. The older machine stays.

    Raises ClaimedError in the newer launch. It polls until an older machine must be visible, so exactly one backs off.
    """
    record = deployment.machine
    places = tuple(dict.fromkeys(regions))
    if record is None or len(places) < 2:  # noqa: PLR2004 -- within one region, names are unique
        return
    handlers = [context.cloud(place).handler(record.kind) for place in places]
    for _ in polls(context.clock, context.pace.visibility_timeout):
        seen = [found for handler in handlers for found in handler.find({TAG_NAME: deployment.name})]
        _give_way(deployment.name, owned_by(seen, deployment.id), foreign(seen, deployment.id), owner=deployment.owner)
