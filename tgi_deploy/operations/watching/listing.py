"""The use case `list`: every deployment in a line. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError, Problem, warning
from tgi_deploy.operations.watching.fleet import is_late, load_all
from tgi_deploy.operations.watching.known import by_name, machine_of, price_of
from tgi_deploy.reconcile.ends import certain_end, ends_of, stamp
from tgi_deploy.reconcile.observe import owners_of, read_recorded
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from decimal import Decimal

    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ends import End
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """`phase` is the record's; `machine` the state seen, None where the cloud could not be asked or has none.

    `gone`: the cloud was asked, and the recorded machine is no more. `expires` is the first moment of its `ends`.
    `usd_per_hour` is the price while a machine runs, of all of them where there are more.
    """

    name: str
    recorded: bool
    phase: str
    region: str
    instance_type: str | None
    machine: str | None
    endpoint: str | None
    usd_per_hour: Decimal | None
    expires: str | None
    ends: tuple[End, ...] = ()
    owners: tuple[str, ...] = ()
    gone: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    rows: tuple[Row, ...]
    warnings: tuple[Problem, ...]


def list_deployments(context: Context) -> Listing:
    """A cloud that can't be asked, or a record that can't be read, is a warning: the rest is still worth seeing."""
    records, unreadable = load_all(context)
    warnings = [warning(error.code, error.message) for error in unreadable.values()]
    found: list[Found] = []
    unasked: set[str] = set()
    kept = [record for record in records.values() if record]
    for place in context.everywhere(kept):
        try:
            found.extend(_look(context, place, kept))
        except DeployError as error:
            unasked.add(place)
            warnings.append(warning(error.code, f"showing records alone: {error.message}"))
    seen = by_name(tuple(found))
    names = sorted({*records, *seen})
    return Listing(
        rows=tuple(_row(context, name, records.get(name), seen.get(name, ()), unasked) for name in names),
        warnings=tuple(warnings),
    )


def _look(context: Context, place: str, records: Sequence[Deployment]) -> Iterator[Found]:
    """All that is there with our tags, and the recorded machines that have lost theirs."""
    cloud = context.cloud(place)
    seen = cloud.find({})
    yield from seen
    ids = {found.id for found in seen if TAG_NAME in found.tags}
    for recorded in records:
        machine = recorded.machine
        if machine is not None and machine.place == place and machine.attributes.get("id", "") not in {"", *ids}:
            for found in read_recorded(machine, cloud):
                yield replaced(found, tags={**found.tags, TAG_NAME: recorded.name})


def _planned_type(recorded: Deployment | None) -> str | None:
    """Of a machine that has no type of its own: the hardware that was planned for."""
    return recorded.plan.chosen.instance_type if recorded and recorded.plan else None


def _gone(context: Context, recorded: Deployment | None, seen: Sequence[Found], unasked: AbstractSet[str]) -> bool:
    record = recorded.machine if recorded else None
    known = record is not None and "id" in record.attributes and record.place not in unasked
    if not known or machine_of(recorded, seen) is not None:
        return False
    try:
        return not is_late(context, recorded, seen)
    except DeployError:  # nothing is called gone that nobody could ask about
        return False


def _row(
    context: Context,
    name: str,
    recorded: Deployment | None,
    seen: tuple[Found, ...],
    unasked: AbstractSet[str],
) -> Row:
    machine = machine_of(recorded, seen)
    record = recorded.machine if recorded else None
    attributes = machine.attributes if machine else (record.attributes if record else {})
    ends = ends_of(recorded, [found.tags for found in seen])
    expires = certain_end(ends)
    return Row(
        name=name,
        recorded=recorded is not None,
        phase=recorded.status if recorded else "unrecorded",
        region=recorded.region if recorded else seen[0].place,
        instance_type=attributes.get("instance_type") or _planned_type(recorded),
        machine=machine.state if machine else None,
        endpoint=recorded.endpoint if recorded else None,
        usd_per_hour=price_of(recorded, seen),
        expires=None if expires is None else stamp(expires),
        ends=ends,
        owners=owners_of(recorded, seen),
        gone=_gone(context, recorded, seen, unasked),
    )
