"""Keeps resources that outlive their deployment: weights on the user's host stay unless their removal is requested."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.removing.receipt import KeptResource
from tgi_deploy.reconcile.ports import SizedHandler
from tgi_deploy.values.resource import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.errors import ResourceRef
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.watching.ledger import Ledger
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import Found


def kept_ids(deployment: Deployment | None, seen: Sequence[Found], *, volumes: bool) -> frozenset[str]:
    """Return the ids that a removal keeps: all such resources, or with `volumes` only those used by other machines."""
    own = {found.id for found in seen if found.is_machine}
    by_id = {found.id: found for found in seen}
    return frozenset(
        record.attributes["id"]
        for record in _keepable(deployment)
        if not volumes or _users(by_id.get(record.attributes["id"])) - own
    )


def _keepable(deployment: Deployment | None) -> Iterator[ResourceRecord]:
    records = deployment.resources if deployment else ()
    return (record for record in records if KEPT in record.notes and "id" in record.attributes)


def _users(found: Found | None) -> set[str]:
    return set(filter(None, found.attributes.get("users", "").split(","))) if found else set()


def kept_resources(
    context: Context, deployment: Deployment, ledger: Ledger, left: Sequence[ResourceRef]
) -> tuple[KeptResource, ...]:
    """Return the resources that are kept on purpose, and remove their lines from the ledger."""
    leftovers = {item.id for item in left}
    stays = [item for item in _keepable(deployment) if not _is_gone(item, ledger)]
    for record in stays:
        ledger.lines.pop(record.attributes["id"], None)
    return tuple(_kept_resource(context, record) for record in stays if record.attributes["id"] not in leftovers)


def _is_gone(record: ResourceRecord, ledger: Ledger) -> bool:
    line = ledger.lines.get(record.attributes["id"])
    return line is not None and line.removed_at is not None


def _kept_resource(context: Context, record: ResourceRecord) -> KeptResource:
    resource_id = record.attributes["id"]
    handler = context.cloud(record.place).handler(record.kind)
    size_bytes = None
    with suppress(DeployError):  # it stays either way
        size_bytes = handler.size_bytes(resource_id) if isinstance(handler, SizedHandler) else None
    return KeptResource(
        kind=record.kind, id=resource_id, region=record.place, what=record.notes[KEPT], size_bytes=size_bytes
    )
