"""Finds the resources of a deployment by their tags and by the ids in its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_ID, TAG_NAME, TAG_OWNER, TAG_SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tgi_deploy.reconcile.ports import Cloud, Handler
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import Found


def owners_of(recorded: Deployment | None, seen: Iterable[Found]) -> tuple[str, ...]:
    """Return its owners by record and tags; more than one if two deployments share the name."""
    owners = [recorded.owner if recorded else "", *(found.tags.get(TAG_OWNER, "") for found in seen)]
    return tuple(dict.fromkeys(filter(None, owners)))


def observe(
    name: str,
    deployment: Deployment | None,
    *,
    cloud: Callable[[str], Cloud],
    places: Iterable[str],
    side: bool = False,
) -> tuple[Found, ...]:
    """Return all resources of deployment `name` in `places`, in order of creation.

    Recorded resources that a tag search misses are read by id. Rare kinds are searched for only with `side`, or where
    the record names one.
    """
    everywhere = dict.fromkeys([*places, *(deployment.places if deployment else ())])
    records = deployment.resources if deployment else ()
    whole = side or any(cloud(record.place).handler(record.kind).rare for record in records)
    seen = [found for place in everywhere for found in _find(cloud(place), {TAG_NAME: name}, whole=whole)]
    ids = {(found.place, found.id) for found in seen}
    for record in records:
        if "id" in record.attributes and (record.place, record.attributes["id"]) not in ids:
            seen.extend(read_recorded(record, cloud(record.place)))
    return tuple(sorted(seen, key=lambda found: cloud(found.place).kinds.index(found.kind)))


def _find(cloud: Cloud, tags: Mapping[str, str], *, whole: bool) -> tuple[Found, ...]:
    if whole:
        return cloud.find(tags)
    handlers = [handler for handler in map(cloud.handler, cloud.kinds) if not handler.rare]
    return tuple(found for handler in handlers for found in handler.find({TAG_ID: "", **tags}))


def search(
    handler: Handler,
    tags: Mapping[str, str],
    unsearched: dict[tuple[str, str], str],
    *,
    key: tuple[str, str],
    codes: frozenset[str],
) -> tuple[Found, ...]:
    """Search one kind. For a rare one, an error with one of `codes` is noted in `unsearched` under `key`, not raised.

    `key` is (place, kind).
    """
    if key in unsearched:
        return ()
    try:
        return handler.find(tags)
    except DeployError as error:
        if not handler.rare or error.code not in codes:
            raise
        unsearched[key] = error.message
    return ()


def find_common(cloud: Cloud, tags: Mapping[str, str]) -> tuple[Found, ...]:
    """Find resources of the kinds that every deployment may have."""
    return _find(cloud, tags, whole=False)


def read_recorded(record: ResourceRecord, cloud: Cloud) -> tuple[Found, ...]:
    found = cloud.handler(record.kind).read(record.attributes)
    if found is None:
        return ()
    return (replaced(found, key=record.key, tags={TAG_SPEC: record.spec, **found.tags}),)
