"""The use case `down`: remove a deployment and prove that it is gone. The record goes last; tags suffice without it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tgi_deploy.app.known import known_names
from tgi_deploy.errors import LeftBehindError
from tgi_deploy.reconcile.diff import diff
from tgi_deploy.reconcile.errors import InUseError
from tgi_deploy.reconcile.executor import left_behind
from tgi_deploy.reconcile.model import TAG_ID, TAG_NAME, ChangeSet, Deployment
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.reconcile.retry import looks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tgi_deploy.app.context import Context
    from tgi_deploy.reconcile.model import Found


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What there is of a deployment, and the steps that remove it. `deployment` None: no record is left of it."""

    name: str
    deployment: Deployment | None
    seen: tuple[Found, ...]
    changes: ChangeSet

    @property
    def nothing(self) -> bool:
        return self.deployment is None and not self.seen


@dataclass(frozen=True, kw_only=True, slots=True)
class DownOutcome:
    """Names that were removed and names of which there was nothing; `declined`: not confirmed."""

    removed: tuple[str, ...]
    absent: tuple[str, ...]
    removals: tuple[Removal, ...]
    declined: bool = False


def down(context: Context, names: Sequence[str], confirm: Callable[[Sequence[Removal]], bool]) -> DownOutcome:
    """Remove the named deployments, all that are known if none is named.

    Raises LeftBehindError (exit 6) with every id that is still there; all names are tried before.
    """
    wanted = tuple(dict.fromkeys(names)) or known_names(context)
    removals = tuple(_look(context, name) for name in wanted)
    present = [removal for removal in removals if not removal.nothing]
    absent = tuple(removal.name for removal in removals if removal.nothing)
    if present and not confirm(present):
        return DownOutcome(removed=(), absent=absent, removals=removals, declined=True)
    failures: list[LeftBehindError] = []
    for removal in present:
        try:
            with context.store.lock(removal.name, command=context.command):
                remove_everything(context, _recorded(context, removal.name))
        except LeftBehindError as error:
            failures.append(error)
    if failures:
        raise _all_left(failures)
    return DownOutcome(removed=tuple(item.name for item in present), absent=absent, removals=removals)


def remove_everything(context: Context, deployment: Deployment) -> None:
    """Delete all that belongs to it, look that nothing is left, then forget it. The lock is the caller's.

    Raises LeftBehindError; the record stays then.
    """
    executor = context.executor()
    places = (*deployment.places, *context.regions)
    seen = observe(deployment.name, deployment, cloud=context.cloud, places=places)
    deployment = executor.save(replace(deployment, phase="deleting"))
    executor.execute(deployment, diff((), deployment.resources, seen))
    _sweep(context, deployment.name, places)
    context.store.remove(deployment.name)


def _sweep(context: Context, name: str, places: Sequence[str]) -> None:
    """Look by tags until nothing is left; what a machine has left behind is deleted here."""
    left: tuple[Found, ...] = ()
    for _ in looks(context.clock, context.pace.sweep):
        left = observe(name, None, cloud=context.cloud, places=places)
        if not left:
            return
        for found in left:
            _delete_leftover(context, found)
    raise left_behind(list(left), "it is still there")


def _delete_leftover(context: Context, found: Found) -> None:
    if not found.alive:
        return
    try:
        context.cloud(found.place).handler(found.kind).delete(found.attributes)
    except InUseError as error:
        context.reporter.note(error.message)


def _look(context: Context, name: str) -> Removal:
    recorded = context.store.load(name)
    seen = observe(name, recorded, cloud=context.cloud, places=context.regions)
    records = recorded.resources if recorded else ()
    return Removal(name=name, deployment=recorded, seen=seen, changes=diff((), records, seen))


def _recorded(context: Context, name: str) -> Deployment:
    """The record, or a new one for what only its tags tell: an interrupted removal then shows in `list`."""
    recorded = context.store.load(name)
    if recorded is not None:
        return recorded
    now = context.clock.now()
    seen = observe(name, None, cloud=context.cloud, places=context.regions)
    ids = sorted({found.tags[TAG_ID] for found in seen if found.tags.get(TAG_NAME) == name})
    region = seen[0].place if seen else context.regions[0]
    return Deployment(
        name=name,
        id=ids[0] if ids else context.new_id(),
        target="ec2",
        region=region,
        phase="deleting",
        created=now,
        updated=now,
    )


def _all_left(failures: Sequence[LeftBehindError]) -> LeftBehindError:
    if len(failures) == 1:
        return failures[0]
    items = [item for failure in failures for item in failure.data["left_behind"]]
    return LeftBehindError(
        "left_behind",
        "; ".join(failure.message for failure in failures),
        hint=failures[0].hint,
        data={"left_behind": items},
    )
