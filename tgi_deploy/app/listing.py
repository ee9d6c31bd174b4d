"""The use case `list`: every deployment in a line. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.app.known import by_name, find_all
from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.model import TAG_EXPIRES

if TYPE_CHECKING:
    from decimal import Decimal

    from tgi_deploy.app.context import Context
    from tgi_deploy.reconcile.model import Deployment, Found


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """`phase` is the record's; `machine` the state seen, None where the cloud could not be asked or has none."""

    name: str
    recorded: bool
    phase: str
    region: str
    instance_type: str | None
    machine: str | None
    endpoint: str | None
    usd_per_hour: Decimal | None
    expires: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    rows: tuple[Row, ...]
    warnings: tuple[tuple[str, str], ...]


def list_deployments(context: Context) -> Listing:
    """A cloud that can't be asked, or a record that can't be read, is a warning: the rest is still worth seeing."""
    warnings: list[tuple[str, str]] = []
    records: dict[str, Deployment | None] = {}
    for name in context.store.names():
        try:
            records[name] = context.store.load(name)
        except DeployError as error:
            warnings.append((error.code, error.message))
    seen: dict[str, tuple[Found, ...]] = {}
    try:
        seen = by_name(find_all(context))
    except DeployError as error:
        warnings.append((error.code, f"showing records alone: {error.message}"))
    names = sorted({*records, *seen})
    return Listing(
        rows=tuple(_row(name, records.get(name), seen.get(name, ())) for name in names),
        warnings=tuple(warnings),
    )


def _row(name: str, recorded: Deployment | None, seen: tuple[Found, ...]) -> Row:
    machine = next((found for found in seen if found.is_machine), None)
    record = recorded.machine if recorded else None
    attributes = machine.attributes if machine else (record.attributes if record else {})
    expires = recorded.expires.isoformat(timespec="seconds") if recorded and recorded.expires else None
    return Row(
        name=name,
        recorded=recorded is not None,
        phase=recorded.phase if recorded else "unrecorded",
        region=recorded.region if recorded else seen[0].place,
        instance_type=attributes.get("instance_type"),
        machine=machine.state if machine else None,
        endpoint=recorded.endpoint if recorded else None,
        usd_per_hour=recorded.usd_per_hour if recorded else None,
        expires=expires or next((item.tags[TAG_EXPIRES] for item in seen if TAG_EXPIRES in item.tags), None),
    )
