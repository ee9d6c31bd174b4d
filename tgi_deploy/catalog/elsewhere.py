"""List prices of other clouds, from `elsewhere.json`, for comparison only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import Value, Where, decode, replaced
from tgi_deploy.values.supply import Elsewhere

if TYPE_CHECKING:
    from collections.abc import Collection

    from tgi_deploy.catalog.store import Store

FILE: Final = "elsewhere.json"


class _File(Value, frozen=True, kw_only=True):
    collected_at: str
    note: str
    sources: dict[str, str]
    machines: tuple[Elsewhere, ...]


def elsewhere(store: Store, accelerators: Collection[str]) -> tuple[Elsewhere, ...]:
    """Return all machines, the cheapest first.

    Raises:
        InputError: `bad_profile`, also for an unknown accelerator or source.
    """
    found = decode(store.json(FILE), _File, Where(FILE))
    for number, item in enumerate(found.machines):
        where = Where(FILE).child("machines").child(number)
        if item.accelerator not in accelerators:
            raise where.child("accelerator").error("is not an accelerator of accelerators.json")
        if item.source not in found.sources:
            raise where.child("source").error("is not among the sources")
    named = (replaced(item, source=found.sources[item.source]) for item in found.machines)
    return tuple(sorted(named, key=lambda item: (item.usd_per_hour, item.cloud, item.machine)))
