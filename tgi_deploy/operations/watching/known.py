"""What is known of things that were found: whose they are, since when they are there, what they cost."""

from __future__ import annotations

import shlex
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from tgi_deploy.reconcile.claim import own
from tgi_deploy.reconcile.ends import moment_of
from tgi_deploy.values.container import is_folder
from tgi_deploy.values.resource import TAG_CREATED, TAG_ID, TAG_NAME, TAG_PRICE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan_document import PlanDocument
    from tgi_deploy.values.resource import Found


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


def machine_of(recorded: Deployment | None, seen: Sequence[Found]) -> Found | None:
    """Return its machine: a living one rather than an ended one, and among those the recorded one."""
    record = recorded.machine if recorded else None
    known = record.attributes.get("id") if record else None
    machines = [found for found in seen if found.is_machine]
    return min(machines, key=lambda found: (not found.alive, found.id != known), default=None)


def second_machines(recorded: Deployment | None, seen: Sequence[Found]) -> tuple[Found, ...]:
    """Return the living machines of the same deployment beside its own."""
    first = machine_of(recorded, seen)
    if first is None:
        return ()
    deployment_id = recorded.id if recorded else first.tags.get(TAG_ID, "")
    return tuple(found for found in own(seen, deployment_id) if found.is_machine and found.alive and found is not first)


def price_of(recorded: Deployment | None, seen: Sequence[Found]) -> Decimal | None:
    """Return what a deployment costs an hour while it runs, by its record or else by its tags; every machine counts."""
    machine = machine_of(recorded, seen)
    tagged = money(machine.tags.get(TAG_PRICE)) if machine is not None else None
    first = tagged if recorded is None else recorded.usd_per_hour
    others = price_of_all(recorded, second_machines(recorded, seen))
    return None if first is None or others is None else first + others


def price_of_all(recorded: Deployment | None, machines: Sequence[Found]) -> Decimal | None:
    """Return what they cost an hour together, by their tags or else by the record; None where one is unknown."""
    tagged = (money(machine.tags.get(TAG_PRICE)) for machine in machines)
    prices = [recorded.usd_per_hour if price is None and recorded else price for price in tagged]
    known = [price for price in prices if price is not None]
    return sum(known, Decimal(0)) if len(known) == len(prices) else None


def money(text: object) -> Decimal | None:
    try:
        amount = Decimal(str(text))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def typed_model(plan: PlanDocument | None) -> str:
    """Return the MODEL of a command line, from a plan: a folder goes by its path."""
    if plan is None:
        return "MODEL"
    return shlex.quote(plan.model.served_id if is_folder(plan.model.served_id) else plan.model.id)


def target_option(context: Context, place: str) -> str:
    """Return what an `up` command line needs to stay at this place; empty for the target that is meant without it."""
    target = context.target_at(place)
    return "" if target is context.targets[0] else f" --target {target.name}"
