"""Reads the state of many deployments, with one paged search per resource type and location."""

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
    """The resources of one deployment. `untagged` ones are known only by their recorded ids.

    `unreadable` is why its record can't be read; its resources in other regions are then unknown.
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
    context: Context, *, whole: bool = False, not_searched: dict[str, DeployError] | None = None
) -> tuple[Seen, ...]:
    """Return all existing resources by deployment name; with `whole`, also of types that few deployments have.

    Raises the errors of the cloud. With `not_searched`, errors are stored there by location instead.
    """
    records, unreadable = load_all(context)
    kept = [record for record in records.values() if record is not None]
    everything: list[Found] = []
    for place in context.everywhere(kept):
        try:
            everything.extend(search(context, (place,), whole=whole))
        except DeployError as error:
            if not_searched is None:
                raise
            not_searched[place] = error
    seen = by_name(tuple(everything))
    missing = [
        (record.name, item)
        for record in kept
        for item in _unseen(record, seen.get(record.name, ()))
        if item.place not in (not_searched or ())
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


def unsearched_warnings(not_searched: Mapping[str, DeployError]) -> tuple[Problem, ...]:
    """Return a warning for each location that could not be searched."""
    return tuple(
        warning(error.code, f"{place} could not be searched, so its machines are unknown: {error.message}")
        for place, error in not_searched.items()
    )


def names_of_owner(context: Context, owner: str) -> tuple[str, ...]:
    """Return the names of an owner's deployments, according to their records, or to tags without a record."""
    found = ((item.name, owners_of(item.recorded, item.everything)) for item in look_at_all(context))
    return tuple(name for name, owners in found if owners == (owner,))


def is_late(context: Context, recorded: Deployment | None, seen: Sequence[Found]) -> bool:
    """Return whether the deployment's machine may be missing only because it is too new to be visible."""
    record = recorded.machine if recorded else None
    resource_id = record.attributes.get("id") if record else None
    if record is None or resource_id is None or resource_id in {found.id for found in seen}:
        return False
    if context.target_at(record.place).facts.shows_at_once:
        return False
    if not may_be_new(record, context.clock.now(), within_s=context.pace.visibility_timeout_s):
        return False
    return context.cloud(record.place).machine(resource_id).state == "missing"


def load_all(context: Context) -> tuple[dict[str, Deployment | None], dict[str, DeployError]]:
    """Return the records by name, and the errors of unreadable ones."""
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
    """Call `act` for all items, several in parallel, and return the results in order. Raises the first exception."""
    if context.pace.at_once == 1 or len(items) < 2:  # noqa: PLR2004 -- a single item needs no thread
        return [act(item) for item in items]
    pool = ThreadPoolExecutor(context.pace.at_once)
    try:
        return list(pool.map(act, items))
    finally:
        pool.shutdown(cancel_futures=True)
