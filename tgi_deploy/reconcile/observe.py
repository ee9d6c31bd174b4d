"""What of a deployment exists: by its tags, and by the ids in its record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tgi_deploy.reconcile.model import TAG_NAME, TAG_SPEC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tgi_deploy.reconcile.model import Deployment, Found, ResourceRecord
    from tgi_deploy.reconcile.ports import Cloud


def observe(
    name: str, deployment: Deployment | None, *, cloud: Callable[[str], Cloud], places: Iterable[str]
) -> tuple[Found, ...]:
    """Everything of deployment `name` in `places`, in the order of creation.

    What the record knows and tags don't show is read by its id.
    """
    everywhere = dict.fromkeys([*places, *(deployment.places if deployment else ())])
    seen = [found for place in everywhere for found in cloud(place).find({TAG_NAME: name})]
    ids = {(found.place, found.id) for found in seen}
    for record in deployment.resources if deployment else ():
        if "id" in record.attributes and (record.place, record.attributes["id"]) not in ids:
            seen.extend(_read(record, cloud(record.place)))
    return tuple(sorted(seen, key=lambda found: cloud(found.place).kinds.index(found.kind)))


def _read(record: ResourceRecord, cloud: Cloud) -> tuple[Found, ...]:
    found = cloud.handler(record.kind).read(record.attributes)
    if found is None:
        return ()
    return (replace(found, key=record.key, tags={TAG_SPEC: record.spec, **found.tags}),)
