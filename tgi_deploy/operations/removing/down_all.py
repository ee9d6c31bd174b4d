"""`down --all`: removes many deployments together.

One search finds all of them, machines are terminated a hundred at a time, one search per poll covers all that are being
removed, and their other resources are deleted a few at a time. Each deployment has its own lock, history, verification
and receipt. Unusual cases (a pending request, a resource without tags, a rare type) are handled like a single `down`.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, LeftBehindError
from tgi_deploy.operations.removing.down import (
    DownOutcome,
    Removal,
    placeholder_record,
    places_of,
    receipt_of,
    removal_of,
    remove_named,
    still_there,
)
from tgi_deploy.operations.removing.leftovers import raise_all, removing
from tgi_deploy.operations.settling import not_shown_yet
from tgi_deploy.operations.watching.fleet import Seen, each, look_at_all, search
from tgi_deploy.operations.watching.ledger import sighting
from tgi_deploy.operations.watching.lookup import by_name
from tgi_deploy.reconcile.errors import InUseError
from tgi_deploy.reconcile.executor import left_behind
from tgi_deploy.reconcile.ports import BatchHandler
from tgi_deploy.reconcile.retry import polls
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.receipt import Receipt
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found

_ENDING: Final = frozenset({"shutting-down", "terminated"})  # stopped machines can be terminated, too
_LOCKED_AT_ONCE: Final = 400  # each lock is an open file, and the usual limit of a process is 1024


@dataclass(slots=True)
class _Ending:
    """One deployment being removed. `known` are its resources at the last poll, by id."""

    deployment: Deployment
    places: tuple[str, ...]
    known: dict[str, Found]
    error: DeployError | None = None

    @property
    def name(self) -> str:
        return self.deployment.name

    @property
    def machines(self) -> list[Found]:
        return [found for found in self.known.values() if found.is_machine]


@dataclass(slots=True)
class _Result:
    receipts: list[Receipt] = field(default_factory=list)
    failures: list[DeployError] = field(default_factory=list)


def down_all(context: Context, confirm: Callable[[Sequence[Removal]], bool], *, volumes: bool = False) -> DownOutcome:
    """Remove all known deployments. Those with an unreadable record are left unchanged and reported.

    Raises LeftBehindError (exit 6) with every remaining id, or another failure, after all deployments were tried.
    """
    everything = look_at_all(context, whole=True)
    seen = [item for item in everything if item.unreadable is None]
    removals = tuple(removal_of(item.name, item.recorded, item.everything, volumes=volumes) for item in seen)
    if removals and not confirm(removals):
        return DownOutcome(removed=(), absent=(), removals=removals, declined=True)
    result = _Result(failures=[_untouched(item, item.unreadable) for item in everything if item.unreadable])
    ordinary = [item for item in seen if _is_ordinary(context, item)]
    together = {item.name for item in ordinary}
    for start in range(0, len(ordinary), _LOCKED_AT_ONCE):
        some = ordinary[start : start + _LOCKED_AT_ONCE]
        _try_together(context, some, result)
    for item in seen:
        if item.name not in together:
            _try(result, lambda name=item.name: remove_named(context, name, volumes=volumes))  # type: ignore[misc]
    raise_all(result.failures)
    removed = tuple(item.name for item in seen)
    return DownOutcome(removed=removed, absent=(), removals=removals, receipts=tuple(result.receipts))


def _is_ordinary(context: Context, item: Seen) -> bool:
    records = item.recorded.resources if item.recorded else ()
    kinds = {(one.place, one.kind) for one in records} | {(one.place, one.kind) for one in item.found}
    ordinary = all(kind in context.target_at(place).facts.removed_together for place, kind in kinds)
    ids = {found.tags.get(TAG_ID) for found in item.found} | ({item.recorded.id} if item.recorded else set())
    settled = all(record.state != "intent" for record in records)
    if not (ordinary and len(ids) == 1 and settled) or item.untagged:
        return False
    return item.recorded is None or not not_shown_yet(context, item.recorded, item.everything)


def _try(result: _Result, remove: Callable[[], Receipt]) -> None:
    try:
        result.receipts.append(remove())
    except DeployError as error:
        result.failures.append(error)


def _untouched(item: Seen, error: DeployError) -> DeployError:
    """Return the error with exit code 1: the command was valid, and the deployment may still be running."""
    there = ", ".join(f"{found.kind} {found.id} in {found.place}" for found in item.everything) or "nothing by its tags"
    return DeployError(error.code, f"'{item.name}' was not removed ({there}): {error.message}", hint=error.hint)


def _try_together(context: Context, many: Sequence[Seen], result: _Result) -> None:
    try:
        with removing(context, *(item.name for item in many)):
            _remove_together(context, many, result)
    except DeployError as error:
        result.failures.append(error)


def _remove_together(context: Context, many: Sequence[Seen], result: _Result) -> None:
    with ExitStack() as locks:
        endings = []
        for item in many:
            try:
                locks.enter_context(context.store.lock(item.name, command=context.command))
                endings.append(_begin(context, item))
            except DeployError as error:
                result.failures.append(error)
        _remove_locked(context, endings, result)


def _begin(context: Context, item: Seen) -> _Ending:
    """Record that a deployment is being removed, and its resources, which may have changed since the search."""
    recorded = context.store.load(item.name)
    deployment = recorded or placeholder_record(context, item.name, item.found[0].tags[TAG_ID], item.found[0].place)
    places = places_of(context, deployment)
    deployment = context.executor().save(replaced(deployment, status="deleting", given_up=False))
    ending = _Ending(deployment=deployment, places=places, known={})
    _note(context, ending, item.found)
    return ending


def _note(context: Context, ending: _Ending, found: Iterable[Found]) -> None:
    """Record which resources appeared or disappeared since the last poll."""
    now, there = context.clock.now(), {item.id: item for item in found}
    for resource_id in there.keys() - ending.known.keys():
        event = sighting(there[resource_id], ending.deployment, now, name=ending.name)
        context.store.append_event(event)
    for resource_id in ending.known.keys() - there.keys():
        event = sighting(ending.known[resource_id], ending.deployment, now, name=ending.name, code="deleted")
        context.store.append_event(event)
    ending.known = there


def _remove_locked(context: Context, endings: list[_Ending], result: _Result) -> None:
    """Delete until everything is gone, or until there is no progress for the time limit of a single removal."""
    places = tuple(dict.fromkeys(place for ending in endings for place in ending.places))
    first, total = True, len(endings)
    watch = _Watch(least=_resources_left(endings), since=context.clock.monotonic())
    for _ in polls(context.clock, replace(context.pace.deletion, deadline_s=math.inf)):
        if not first:
            _look_again(context, endings, places)
            before, endings = len(endings), _finish_gone(context, endings, result)
            if len(endings) < before:
                context.reporter.note(f"removed {total - len(endings)} of {total}")
            if watch.still_s(_resources_left(endings), context.clock.monotonic()) >= context.pace.deletion.deadline_s:
                break
        first = False
        if not endings:
            return
        _delete_what_can_go(context, endings)
    for ending in endings:
        result.failures.append(ending.error or _left(context, ending))


@dataclass(slots=True)
class _Watch:
    """Measures progress: the smallest number of resources so far, and since when.

    A fixed deadline would not do, because hundreds of deletions take longer than one.
    """

    least: int
    since: float

    def still_s(self, left: int, now: float) -> float:
        """Return for how many seconds no resource has disappeared."""
        if left < self.least:
            self.least, self.since = left, now
        return now - self.since


def _resources_left(endings: Sequence[_Ending]) -> int:
    return sum(len(ending.known) for ending in endings)


def _look_again(context: Context, endings: Sequence[_Ending], places: Sequence[str]) -> None:
    seen = by_name(search(context, places, whole=False))
    for ending in endings:
        _note(context, ending, seen.get(ending.name, ()))


def _finish_gone(context: Context, endings: Sequence[_Ending], result: _Result) -> list[_Ending]:
    """Write receipts for removed deployments; return the rest, without those whose deletion the cloud rejected."""
    rest = []
    for ending in endings:
        if ending.known and ending.error is None:
            rest.append(ending)
        elif ending.known:
            result.failures.append(ending.error or _left(context, ending))
        else:
            result.receipts.append(receipt_of(context, ending.deployment, ending.places))
            context.store.remove(ending.name)
    return rest


def _left(context: Context, ending: _Ending) -> LeftBehindError:
    error = left_behind(list(ending.known.values()), "it still exists")
    return still_there(context, ending.deployment, ending.places, error)


def _delete_what_can_go(context: Context, endings: Sequence[_Ending]) -> None:
    """Delete machines first, and the resources that they use once the machines are gone."""
    machines = [(ending, found) for ending in endings for found in ending.machines if _can_end(found)]
    held = [
        (ending, found)
        for ending in endings
        if not ending.machines
        for found in reversed(ending.known.values())
        if found.alive
    ]
    each(context, [*_not_batched(context, machines), *held], lambda item: _delete(context, *item))


def _can_end(found: Found) -> bool:
    return found.alive or found.state not in _ENDING


def _not_batched(context: Context, machines: Sequence[tuple[_Ending, Found]]) -> list[tuple[_Ending, Found]]:
    """Terminate machines in batches; return those whose termination was not accepted."""
    groups: dict[tuple[str, str], list[tuple[_Ending, Found]]] = {}
    for ending, found in machines:
        groups.setdefault((found.place, found.kind), []).append((ending, found))
    singly: list[tuple[_Ending, Found]] = []
    for (place, kind), items in groups.items():
        handler = context.cloud(place).handler(kind)
        ended: frozenset[str] = frozenset()
        if isinstance(handler, BatchHandler):
            ended = handler.delete_many([found.attributes for _, found in items])
        singly.extend(item for item in items if item[1].id not in ended)
    return singly


def _delete(context: Context, ending: _Ending, found: Found) -> None:
    try:
        context.cloud(found.place).handler(found.kind).delete(found.attributes)
    except InUseError:
        return
    except DeployError as error:
        ending.error = error
