"""Computes the steps from the recorded and observed resources to the desired ones. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.values.resource import ChangeSet, Found, Resource, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.values.deployment import ResourceRecord


def diff(wanted: Sequence[Resource], recorded: Sequence[ResourceRecord], seen: Sequence[Found]) -> ChangeSet:
    """Return the steps in order: deletions first, dependents before their dependencies; then keeps and creations.

    A resource whose spec or place changed is replaced, and so is everything that refers to it. Of several with the
    same key, the recorded one is kept, else the first that matches; the others are deleted. `seen` is in order of
    creation.
    """
    seen = [found for found in seen if not found.attached]
    ordered = in_order(wanted)
    records = {record.key: record for record in recorded}
    kept = _kept(ordered, records, seen)
    deletions = _deletions(ordered, seen, kept)
    return ChangeSet(steps=(*deletions, *(_forward(item, records, seen, kept) for item in ordered)))


def in_order(resources: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return the resources sorted so that each follows its dependencies; otherwise in the given order."""
    pending, done = list(resources), list[Resource]()
    while pending:
        ready = next((item for item in pending if not _missing(item, pending)), None)
        if ready is None:
            raise ValueError(f"circular resource dependencies: {', '.join(item.key for item in pending)}")
        pending.remove(ready)
        done.append(ready)
    return tuple(done)


def _missing(item: Resource, pending: Sequence[Resource]) -> bool:
    return any(other.key in item.needs for other in pending)


def _kept(
    ordered: Sequence[Resource], records: Mapping[str, ResourceRecord], seen: Sequence[Found]
) -> dict[str, Found]:
    kept: dict[str, Found] = {}
    for item in ordered:
        replaced = any(need not in kept for need in item.needs)
        record = records.get(item.key)
        fitting = [found for found in seen if _fits(item, found, record)]
        if fitting and not replaced:
            kept[item.key] = next((found for found in fitting if _is_recorded(found, record)), fitting[0])
    return kept


def _is_recorded(found: Found, record: ResourceRecord | None) -> bool:
    return record is not None and record.attributes.get("id") == found.id


def _fits(item: Resource, found: Found, record: ResourceRecord | None) -> bool:
    if (found.key, found.kind, found.place, found.alive) != (item.key, item.kind, item.place, True):
        return False
    spec = found.spec
    if spec is None and record is not None and _is_recorded(found, record):
        spec = record.spec
    return spec == item.spec


def _deletions(ordered: Sequence[Resource], seen: Sequence[Found], kept: Mapping[str, Found]) -> tuple[Step, ...]:
    wanted = {item.key for item in ordered}
    unwanted = [found for found in seen if kept.get(found.key) is not found]
    return tuple(Step.deletion(found, _why_deleted(found, wanted, kept)) for found in reversed(unwanted))


def _why_deleted(found: Found, wanted: set[str], kept: Mapping[str, Found]) -> str:
    if not found.alive:
        return f"is {found.state or 'ending'}"
    if found.key in kept:
        return f"duplicates {kept[found.key].id}"
    return "is replaced" if found.key in wanted else "will be deleted"


def _forward(
    item: Resource,
    records: Mapping[str, ResourceRecord],
    seen: Sequence[Found],
    kept: Mapping[str, Found],
) -> Step:
    found, record = kept.get(item.key), records.get(item.key)
    if found is None:
        there_was = any(other.key == item.key for other in seen)
        reason = "replaces the existing one" if there_was else _why_created(record)
        return Step(
            action="create",
            key=item.key,
            kind=item.kind,
            place=item.place,
            reason=reason,
            resource=item,
            is_machine=item.is_machine,
        )
    known = record is not None and record.state == "created" and _is_recorded(found, record)
    return Step(
        action="keep" if known else "adopt",
        key=item.key,
        kind=item.kind,
        place=item.place,
        reason="is up to date" if known else "exists but is not in the record",
        resource=item,
        attributes=found.attributes,
        is_machine=item.is_machine,
    )


def _why_created(record: ResourceRecord | None) -> str:
    if record is None:
        return "will be created"
    return "was requested but does not exist" if record.state == "intent" else "no longer exists"
