"""The use case `down`: removes deployments and verifies that nothing is left.

Tags alone are enough to find everything. The record is deleted last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, LeftBehindError
from tgi_deploy.operations.removing.kept import kept_ids, kept_resources
from tgi_deploy.operations.removing.leftovers import left_error, raise_all, removing, until_then
from tgi_deploy.operations.removing.receipt import Receipt, Unsearched, reset_spending, write
from tgi_deploy.operations.settling import not_shown_yet, observe_settled
from tgi_deploy.operations.watching.ledger import Ledger, recorded_events, sighting
from tgi_deploy.reconcile.claim import claimed_error, owned_by
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.reconcile.errors import InUseError
from tgi_deploy.reconcile.executor import left_behind
from tgi_deploy.reconcile.observe import find_common, observe, owners_of
from tgi_deploy.reconcile.retry import polls
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Deployment, Pool, Revision
from tgi_deploy.values.resource import TAG_ID, TAG_NAME, TAG_OWNER, ChangeSet, Found, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.errors import ResourceRef
    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ports import Cloud
    from tgi_deploy.reconcile.retry import PollPolicy
    from tgi_deploy.values.deployment import Event

_HIDDEN: Final = "not shown yet"
_UNUSED: Final = "available"  # the state of a detached interface or volume


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """The resources of a deployment, and the steps that remove it. `deployment` is None without a record.

    `kept` are the ids of resources that stay.
    """

    name: str
    deployment: Deployment | None
    seen: tuple[Found, ...]
    changes: ChangeSet
    kept: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return self.deployment is None and not self.seen

    @property
    def owners(self) -> tuple[str, ...]:
        return owners_of(self.deployment, self.seen)


@dataclass(frozen=True, kw_only=True, slots=True)
class DownOutcome:
    """The names that were removed, and those without any resources. `declined` is whether the user declined."""

    removed: tuple[str, ...]
    absent: tuple[str, ...]
    removals: tuple[Removal, ...]
    declined: bool = False
    receipts: tuple[Receipt, ...] = ()


def down(
    context: Context,
    names: Sequence[str],
    confirm: Callable[[Sequence[Removal]], bool],
    *,
    volumes: bool = False,
) -> DownOutcome:
    """Remove the named deployments; with `volumes` also their kept resources.

    Raises LeftBehindError (exit 6) with every remaining id, after all names were tried.
    """
    removals = tuple(_look(context, name, volumes=volumes) for name in dict.fromkeys(names))
    present = [removal for removal in removals if not removal.nothing]
    absent = tuple(removal.name for removal in removals if removal.nothing)
    for name in absent:
        reset_spending(context, name)
    if present and not confirm(present):
        return DownOutcome(removed=(), absent=absent, removals=removals, declined=True)
    failures: list[DeployError] = []
    receipts: list[Receipt] = []
    for removal in present:
        try:
            receipts.append(remove_named(context, removal.name, volumes=volumes))
        except DeployError as error:
            failures.append(error)
    raise_all(failures)
    removed = tuple(item.name for item in present)
    return DownOutcome(removed=removed, absent=absent, removals=removals, receipts=tuple(receipts))


def remove_named(context: Context, name: str, *, volumes: bool) -> Receipt:
    """Remove one deployment. Raises ConflictError `locked`, LeftBehindError."""
    with context.store.lock(name, command=context.command), removing(context, name):
        return remove_everything(context, _recorded(context, name), volumes=volumes)


def remove_own(context: Context, deployment: Deployment) -> Receipt:
    """Remove a deployment like `remove_everything`, except another deployment's resources under the same name.

    Raises ClaimedError if someone else has launched a machine for this deployment that is not recorded here.
    """
    tags = {TAG_NAME: deployment.name, TAG_ID: deployment.id}
    seen = _settled_view(context, deployment)
    kept = kept_ids(deployment, seen, volumes=False)
    going = [found for found in owned_by(seen, deployment.id) if found.id not in kept]
    _reject_foreign_machines(context, deployment, going)
    return _remove_seen(context, deployment, going, tags)


def _reject_foreign_machines(context: Context, deployment: Deployment, going: Sequence[Found]) -> None:
    known = {record.attributes.get("id") for record in deployment.resources}
    for found in going:
        theirs = found.tags.get(TAG_OWNER, context.owner) != context.owner
        if found.is_machine and found.alive and theirs and found.id not in known:
            raise claimed_error(deployment.name, found, owner=context.owner)


def remove_everything(context: Context, deployment: Deployment, *, volumes: bool = False) -> Receipt:
    """Delete everything with the deployment's name, verify that nothing is left, then delete the record.

    The caller holds the lock. Raises LeftBehindError, and then keeps the record.
    """
    seen = _settled_view(context, deployment)
    kept = kept_ids(deployment, seen, volumes=volumes)
    going = [found for found in seen if found.id not in kept]
    return _remove_seen(context, replaced(deployment, given_up=False), going, {TAG_NAME: deployment.name})


def _settled_view(context: Context, deployment: Deployment) -> tuple[Found, ...]:
    """Return the deployment's resources, once recently requested ones have had time to become visible.

    A recorded machine that is still not visible is included, because it can be deleted by its id.
    """
    places = places_of(context, deployment)
    found = partial(observe, deployment.name, deployment, cloud=context.cloud, places=places)
    seen = observe_settled(context, deployment, found)
    hidden = (
        Found(
            key=record.key,
            kind=record.kind,
            place=record.place,
            attributes=record.attributes,
            state=_HIDDEN,
            is_machine=True,
        )
        for record in not_shown_yet(context, deployment, seen)
        if record.is_machine and "id" in record.attributes
    )
    return (*seen, *hidden)


def _remove_seen(context: Context, deployment: Deployment, seen: Sequence[Found], tags: Mapping[str, str]) -> Receipt:
    """Remove the resources in `seen`, then everything that is found by `tags`; return the receipt."""
    name, places = deployment.name, places_of(context, deployment)
    executor = replace(context.executor(), holders=_late_machines(context, deployment, seen, tags))
    deployment = executor.save(replaced(deployment, status="deleting"))

    def note(event: Event) -> None:
        context.store.append_event(event)

    for found in seen:
        note(sighting(found, deployment, context.clock.now(), name=name))
    try:
        executor.execute(deployment, diff((), deployment.resources, seen))
        attached = tuple(found for found in seen if found.attached)
        sweep(context, tags, places, note=note, seen=attached, polling=context.pace.sweep)
    except LeftBehindError as error:
        raise still_there(context, deployment, places, error) from error
    receipt = receipt_of(context, deployment, places)
    context.store.remove(name)
    return receipt


def _late_machines(
    context: Context, deployment: Deployment, seen: Sequence[Found], tags: Mapping[str, str]
) -> Callable[[Step], tuple[Step, ...]]:
    """Return a function that finds what blocks the deletion in a step, and returns the steps that remove it.

    Blockers are machines that became visible only now, or again, and resources that machines left behind.
    """
    known = {found.id for found in seen if found.state != _HIDDEN}

    def holders(step: Step) -> tuple[Step, ...]:
        if step.is_machine:
            return ()
        cloud = context.cloud(step.place)
        machines = machines_in(cloud, deployment.name)
        mine = owned_by(machines, tags[TAG_ID]) if TAG_ID in tags else machines
        late = [found for found in mine if found.alive or found.id not in known]
        known.update(found.id for found in late)
        left = [found for found in find_common(cloud, tags) if found.attached and found.state == _UNUSED]
        removals = (Step.deletion(found, "was left behind by its machine") for found in left)
        return (*diff((), deployment.resources, late).steps, *removals)

    return holders


def machines_in(cloud: Cloud, name: str) -> tuple[Found, ...]:
    handlers = (handler for handler in map(cloud.handler, cloud.kinds) if handler.runs_engines)
    return tuple(found for handler in handlers for found in handler.find({TAG_NAME: name}))


def places_of(context: Context, deployment: Deployment) -> tuple[str, ...]:
    """Return all locations of the deployment, including those that a failover moved it away from."""
    touched = Ledger.of(context.store.events(deployment.name)).regions
    return tuple(dict.fromkeys((*deployment.places, *touched, *context.where(deployment))))


def receipt_of(
    context: Context, deployment: Deployment, places: Sequence[str], *, left: Sequence[ResourceRef] = ()
) -> Receipt:
    """Return the receipt, computed from the deployment's history."""
    history = (*context.store.events(deployment.name), *recorded_events(deployment))
    return issue(context, deployment, Ledger.of(history), places, left=left)


def issue(
    context: Context,
    deployment: Deployment,
    ledger: Ledger,
    places: Sequence[str],
    *,
    left: Sequence[ResourceRef] = (),
) -> Receipt:
    """Close the ledger and store the receipt."""
    now = context.clock.now()
    kept = kept_resources(context, deployment, ledger, left)
    lines = ledger.closed(now, expires=deployment.ends.expires_at, left=left)
    return write(
        context,
        Receipt(
            name=deployment.name,
            id=deployment.id,
            version=context.version,
            at=now,
            lines=lines,
            regions=tuple(places),
            left=tuple(left),
            kept=kept,
            unsearched=_unsearched(context, deployment, ledger, places),
            given_up=deployment.given_up,
        ),
    )


def _unsearched(
    context: Context, deployment: Deployment, ledger: Ledger, places: Sequence[str]
) -> tuple[Unsearched, ...]:
    """Return the resource types that could not be searched for, unless the record shows that none was created."""
    if not context.unsearched:
        return ()
    if deployment.plan is not None and not any(
        _is_rare(context, line.region, line.kind) for line in ledger.lines.values()
    ):
        return ()
    return tuple(
        Unsearched(region=region, kind=kind, why=why)
        for (region, kind), why in context.unsearched.items()
        if region in places
    )


def _is_rare(context: Context, place: str, kind: str) -> bool:
    cloud = context.cloud(place)
    return kind in cloud.kinds and cloud.handler(kind).rare


def still_there(
    context: Context, deployment: Deployment, places: Sequence[str], error: LeftBehindError
) -> LeftBehindError:
    """Return the error with the removal command for each resource and the path of the preliminary receipt."""
    items = error.left
    receipt = receipt_of(context, deployment, places, left=items)
    machines = {line.id for line in receipt.machines}
    runs = any(item.id in machines for item in items)
    costs = until_then(deployment.usd_per_hour if runs else None)
    hint = f"'tgi-deploy down {deployment.name}' resumes it; {costs}"
    return left_error(context, error.message, items, hint=hint, receipts=(receipt,))


def sweep(
    context: Context,
    tags: Mapping[str, str],
    places: Sequence[str],
    *,
    note: Callable[[Event], None],
    seen: Sequence[Found] = (),
    polling: PollPolicy,
) -> None:
    """Delete resources by tags, dependents first, until a search finds nothing.

    `note` receives an event for each resource that appears or disappears. Raises LeftBehindError.
    """
    known = {found.id: found for found in seen}
    left: dict[str, Found] = {}
    reported: set[str] = set()
    for _ in polls(context.clock, polling):
        left = {found.id: found for place in places for found in context.cloud(place).find(tags)}
        now, name = context.clock.now(), tags.get(TAG_NAME, "")
        for found in left.values():
            if found.id not in known:
                note(sighting(found, None, now, name=name))
        for resource_id in known.keys() - left.keys():
            note(sighting(known[resource_id], None, now, name=name, code="deleted"))
        known = left
        if not left:
            return
        for found in reversed(left.values()):
            _delete_leftover(context, found, reported)
    raise left_behind(list(left.values()), "it still exists")


def _delete_leftover(context: Context, found: Found, reported: set[str]) -> None:
    """Start to delete a resource. If it is in use, that is reported once; `reported` are the ids reported so far."""
    if not found.alive and found.state != "stopped":
        return
    try:
        context.cloud(found.place).handler(found.kind).delete(found.attributes)
    except InUseError as error:
        if found.id not in reported:
            reported.add(found.id)
            context.reporter.note(f"{error.message}; waiting")


def _look(context: Context, name: str, *, volumes: bool) -> Removal:
    recorded = context.store.load(name)
    seen = observe(name, recorded, cloud=context.cloud, places=context.where(recorded), side=recorded is None)
    return removal_of(name, recorded, seen, volumes=volumes)


def removal_of(name: str, recorded: Deployment | None, seen: Sequence[Found], *, volumes: bool) -> Removal:
    """Return the removal of a deployment, with the steps that delete the resources in `seen`."""
    records = recorded.resources if recorded else ()
    kept = kept_ids(recorded, seen, volumes=volumes)
    changes = diff((), records, [found for found in seen if found.id not in kept])
    return Removal(name=name, deployment=recorded, seen=tuple(seen), changes=changes, kept=tuple(sorted(kept)))


def _recorded(context: Context, name: str) -> Deployment:
    """Return the record, or one built from tags, so that `list` shows an interrupted removal."""
    recorded = context.store.load(name)
    if recorded is not None:
        return recorded
    seen = observe(name, None, cloud=context.cloud, places=context.regions, side=True)
    ids = sorted({found.tags[TAG_ID] for found in seen if found.tags.get(TAG_NAME) == name})
    place = seen[0].place if seen else context.regions[0]
    return placeholder_record(context, name, ids[0] if ids else context.new_id(), place)


def placeholder_record(context: Context, name: str, deployment_id: str, place: str) -> Deployment:
    """Return a record for a removal without an earlier record."""
    now = context.clock.now()
    return Deployment(
        name=name,
        id=deployment_id,
        target=context.target_at(place).name,
        status="deleting",
        created_at=now,
        updated_at=now,
        revisions=(Revision(number=1, origin="adopted", state="retired", created_at=now, pools=(Pool(place=place),)),),
    )
