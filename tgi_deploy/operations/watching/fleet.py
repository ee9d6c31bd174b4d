"""Many deployments at once: one paged search of each kind in each place, however many there are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tgi_deploy.errors import DeployError, warning
from tgi_deploy.operations.watching.lookup import by_name
from tgi_deploy.reconcile.clocks import may_be_new
from tgi_deploy.reconcile.observe import find_common, owners_of, read_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import Found

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What there is of one deployment. `untagged` is known by its recorded id alone.

    `unreadable` says why its record tells nothing: what it was in other regions is not known then.
    """

    name: str
    recorded: Deployment | None
    found: tuple[Found, ...]
    untagged: tuple[Found, ...] = ()
    unreadable: DeployError | None = None

    @property
    def everything(self) -> tuple[Found, ...]:
        return (*self.found, *self.untagged)


def look_at_all(
    context: Context, *, whole: bool = False, unasked: dict[str, DeployError] | None = None
) -> tuple[Seen, ...]:
    """Everything there is, by name. `whole`: also kinds that few deployments have.

    Raises what the cloud raises; with `unasked`, that goes there by its place, and the rest is looked at.
    """
    records, unreadable = load_all(context)
    kept = [record for record in records.values() if record is not None]
    everything: list[Found] = []
    for place in context.everywhere(kept):
        try:
            everything.extend(search(context, (place,), whole=whole))
        except DeployError as error:
            if unasked is None:
                raise
            unasked[place] = error
    seen = by_name(tuple(everything))
    missing = [
        (record.name, item)
        for record in kept
        for item in _unseen(record, seen.get(record.name, ()))
        if item.place not in (unasked or ())
    ]
    read = each(context, missing, lambda item: read_recorded(item[1], context.cloud(item[1].place)))
    untagged: dict[str, list[Found]] = {}
    for (name, _), found in zip(missing, read, strict=True):
        untagged.setdefault(name, []).extend(found)
    return tuple(
        Seen(
            name=name,
            recorded=records.get(name),
            found=seen.get(name, ()),
            untagged=tuple(untagged.get(name, ())),
            unreadable=unreadable.get(name),
        )
        for name in sorted({*records, *unreadable, *seen})
    )


def not_asked(unasked: Mapping[str, DeployError]) -> tuple[Problem, ...]:
    """Return a warning for each place that could not be asked."""
    return tuple(
        warning(error.code, f"{place} could not be searched, so its machines are unknown: {error.message}")
        for place, error in unasked.items()
    )


def names_of_owner(context: Context, owner: str) -> tuple[str, ...]:
    """Return the deployments that an owner has begun, by their records, or by tags where there is no record."""
    found = ((item.name, owners_of(item.recorded, item.everything)) for item in look_at_all(context))
    return tuple(name for name, owners in found if owners == (owner,))


def is_late(context: Context, recorded: Deployment | None, seen: Sequence[Found]) -> bool:
    """Return whether its machine is too new for its absence to mean that it is gone. The cloud knows ended ones."""
    record = recorded.machine if recorded else None
    thing_id = record.attributes.get("id") if record else None
    if record is None or thing_id is None or thing_id in {found.id for found in seen}:
        return False
    if context.target_at(record.place).facts.shows_at_once:
        return False
    if not may_be_new(record, context.clock.now(), within_s=context.pace.unsettled_s):
        return False
    return context.cloud(record.place).machine(thing_id).state == "missing"


def load_all(context: Context) -> tuple[dict[str, Deployment | None], dict[str, DeployError]]:
    """The records by name, and what is said of those that can't be read."""
    records: dict[str, Deployment | None] = {}
    unreadable: dict[str, DeployError] = {}
    for name in context.store.names():
        try:
            records[name] = context.store.load(name)
        except DeployError as error:
            unreadable[name] = error
    return records, unreadable


def search(context: Context, places: Iterable[str], *, whole: bool) -> tuple[Found, ...]:
    if whole:
        return tuple(found for place in places for found in context.cloud(place).find({}))
    return tuple(found for place in places for found in find_common(context.cloud(place), {}))


def _unseen(deployment: Deployment, found: Sequence[Found]) -> tuple[ResourceRecord, ...]:
    ids: Mapping[str, object] = {item.id: item for item in found}
    return tuple(item for item in deployment.resources if item.attributes.get("id", "") not in {"", *ids})


def each(context: Context, items: Sequence[_T], act: Callable[[_T], _R]) -> list[_R]:
    """`act` on all, some at once; results in the order of the items. The first thing raised ends it."""
    if context.pace.at_once == 1 or len(items) < 2:  # noqa: PLR2004 -- nothing to do beside it
        return [act(item) for item in items]
    pool = ThreadPoolExecutor(context.pace.at_once)
    try:
        return list(pool.map(act, items))
    finally:
        pool.shutdown(cancel_futures=True)
