"""The use case `costs`: shows the cost of deployments so far and per hour, by deployment and by owner.

Costs of deployments recorded on this computer come from the ledger, those of others from their tags. Read-only.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from tgi_deploy.operations.watching.fleet import is_late, look_at_all, unsearched_warnings
from tgi_deploy.operations.watching.ledger import costs_by_id, receipt_costs
from tgi_deploy.operations.watching.lookup import is_stopped, machine_of, price_of, standing_price, tagged_deployment
from tgi_deploy.reconcile.ends import moment_of
from tgi_deploy.values.base import as_dict, replaced
from tgi_deploy.values.results import AmountsData, CostsData, DeploymentCostData, OwnerCostData, RemovedData
from tgi_deploy.values.supply import usd_per_month

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.errors import DeployError, Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.watching.fleet import Seen


def costs(context: Context) -> tuple[CostsData, tuple[Problem, ...]]:
    """Return the cost of everything recorded here or found by its tags, with warnings.

    A location that can't be searched, or an unreadable record, is a warning.
    """
    not_searched: dict[str, DeployError] = {}
    rows: list[DeploymentCostData] = []
    counted: dict[str, Decimal] = {}
    unreadable: list[Problem] = []
    for item in look_at_all(context, whole=False, not_searched=not_searched):
        if item.unreadable is not None:
            unreadable.append(item.unreadable.problem)
        by_id = costs_by_id(context, item.name, item.recorded, item.everything)
        counted |= by_id
        rows.append(_row(context, item, by_id, not_searched))
    removed = _removed(context, counted)
    everything = _sum(rows)
    data = CostsData(
        deployments=tuple(rows),
        owners=_owners(rows),
        removed=removed,
        total=replaced(everything, accrued_usd=(everything.accrued_usd or Decimal(0)) + removed.accrued_usd),
        regions=context.regions,
    )
    return data, (*unreadable, *unsearched_warnings(not_searched))


def _row(
    context: Context, item: Seen, by_id: Mapping[str, Decimal], not_searched: Mapping[str, DeployError]
) -> DeploymentCostData:
    recorded, seen = item.recorded, item.everything
    deployment = recorded or (tagged_deployment(context, item.name, seen) if seen else None)
    machines = sum(found.is_machine and found.alive for found in seen)
    place = deployment.region if deployment else ""
    unknown = place in not_searched or is_late(context, recorded, seen)
    at_rest = is_stopped(recorded, machine_of(recorded, seen))
    rate = price_of(recorded, seen) if machines or at_rest or unknown else standing_price(recorded, seen)
    return DeploymentCostData(
        name=item.name,
        owner=deployment.owner if deployment else "",
        location=place,
        machines=machines,
        recorded=recorded is not None,
        accrued_usd=sum(by_id.values(), Decimal(0)) if by_id or not machines else None,
        usd_per_hour=rate,
        usd_per_month=_month(rate),
        estimated=deployment is not None and deployment.estimated,
        price_dated=deployment.price_dated if deployment else "",
    )


def _owners(rows: Sequence[DeploymentCostData]) -> tuple[OwnerCostData, ...]:
    by_owner: dict[str, list[DeploymentCostData]] = {}
    for row in rows:
        by_owner.setdefault(row.owner, []).append(row)
    return tuple(
        OwnerCostData(owner=owner, deployments=len(items), **as_dict(_sum(items)))
        for owner, items in sorted(by_owner.items())
    )


def _sum(rows: Sequence[AmountsData]) -> AmountsData:
    rate = _known([row.usd_per_hour for row in rows])
    return AmountsData(
        accrued_usd=_known([row.accrued_usd for row in rows]),
        usd_per_hour=rate,
        usd_per_month=_month(rate),
        estimated=any(row.estimated for row in rows),
    )


def _month(usd_per_hour: Decimal | None) -> Decimal | None:
    return None if usd_per_hour is None else usd_per_month(usd_per_hour)


def _known(amounts: Sequence[Decimal | None]) -> Decimal | None:
    """Return the sum of the known amounts; None if there are none."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if known or not amounts else None


def _removed(context: Context, counted: Mapping[str, Decimal]) -> RemovedData:
    """Return the costs on receipts, without ids that are already `counted`. An id on two receipts counts once."""
    costs_of: dict[str, Decimal] = {}
    names: set[str] = set()
    moments: list[datetime] = []
    for document in context.store.receipts():
        new = {resource_id: cost for resource_id, cost in receipt_costs(document).items() if resource_id not in counted}
        for resource_id, cost in new.items():
            costs_of[resource_id] = max(cost, costs_of.get(resource_id, cost))
        at = moment_of(document.get("at"))
        if new and at is not None:
            names.add(f"{document.get('deployment')} {document.get('id')}")
            moments.append(at)
    return RemovedData(
        accrued_usd=sum(costs_of.values(), Decimal(0)), deployments=len(names), since=min(moments, default=None)
    )
