"""What is known of things that were found: whose they are, since when they are there, what they cost."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from tgi_deploy.reconcile.ends import moment_of
from tgi_deploy.reconcile.model import TAG_CREATED, TAG_NAME, TAG_PRICE

if TYPE_CHECKING:
    from datetime import datetime

    from tgi_deploy.reconcile.model import Deployment, Found


def by_name(found: tuple[Found, ...]) -> dict[str, tuple[Found, ...]]:
    names: dict[str, list[Found]] = {}
    for item in found:
        if TAG_NAME in item.tags:
            names.setdefault(item.tags[TAG_NAME], []).append(item)
    return {name: tuple(items) for name, items in names.items()}


def born(found: Found) -> datetime | None:
    """When it was made: by the cloud's own word, else by the tag that it was made with."""
    words = (found.attributes.get("launched"), found.attributes.get("created"), found.tags.get(TAG_CREATED))
    return next((at for at in map(moment_of, words) if at is not None), None)


def price_of(recorded: Deployment | None, machine: Found | None) -> Decimal | None:
    """What a deployment costs an hour while its machine runs: by its record, else by its machine's tags."""
    if recorded is not None:
        return recorded.usd_per_hour
    return money(machine.tags.get(TAG_PRICE)) if machine is not None else None


def money(text: object) -> Decimal | None:
    try:
        amount = Decimal(str(text))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None
