"""Makes a plan, with reasons, from a request and a supply."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.certainty import cheaper, safer
from tgi_deploy.planner.frontier import alternatives, frontier
from tgi_deploy.planner.hosting import notices as hosting_notices
from tgi_deploy.planner.hosting import scales_to
from tgi_deploy.planner.remarks import assumptions, missed_limits, notices
from tgi_deploy.planner.replica_load import replica_load
from tgi_deploy.planner.replicas import MOST_REPLICAS
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import NoFeasiblePlan, Plan, Rejection
from tgi_deploy.values.request import Replicas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Offer, Supply

MAX_FALLBACKS: Final = 5
_FEW_REGIONS: Final = 3
# Several servers are more work to run than one: they must cost less than this share of its price.
_WORTH_SEVERAL: Final = Decimal("0.75")


def make_plan(request: Request, supply: Supply, engine: Engine) -> Plan | NoFeasiblePlan:
    """Return the best candidate with its fallbacks, or all reasons why there is none.

    Raises InputError for engine flags that the release does not have or that contradict each other.
    """
    search = Search(request, supply, engine, scales_to=scales_to(request, supply))
    found = search.run()
    if not found.configurations:
        return NoFeasiblePlan(
            request=request,
            rejections=found.rejections or (_nothing_on_offer(request),),
            near_misses=(),
            considered=found.considered,
            catalog_date=supply.date,
        )
    ranked = found.configurations
    chosen = search.candidate(ranked[0])
    return Plan(
        request=request,
        chosen=chosen,
        fallbacks=tuple(search.candidate(configuration) for configuration in _fallbacks(ranked)),
        rejections=found.rejections,
        considered=found.considered,
        assumptions=tuple(assumptions(request, chosen, supply)),
        notices=(
            *missed_limits(request, ranked[0]),
            *hosting_notices(supply.hosting, chosen, request),
            *notices(request, chosen, supply, _several_replicas(search, ranked[0])),
        ),
        catalog_date=supply.date,
        alternatives=tuple(search.candidate(configuration) for configuration in alternatives(ranked)),
        frontier=frontier(ranked),
        replica_load=replica_load(search.evaluator, ranked[0].evaluation),
        cheaper=cheaper(request, ranked[0], (*ranked, *found.nearly)),
        safer=safer(request, ranked[0], ranked),
        spare_usd_per_hour=_spare_usd_per_hour(search, ranked[0]),
    )


def _spare_usd_per_hour(search: Search, chosen: Configuration) -> Decimal | None:
    """Return the price of one spare machine; None for a single replica."""
    if chosen.evaluation.replicas == 1:
        return None
    price = search.price(chosen.offer, chosen.evaluation.scheme, chosen.machines + 1)
    return price and price[0] - chosen.usd_per_hour


def _several_replicas(search: Search, chosen: Configuration) -> Configuration | None:
    """Return the best plan with several replicas if it beats the choice but the target runs only one.

    It must cost a quarter less, or meet the service level that the choice misses.
    """
    request, supply = search.request, search.supply
    if request.replicas.most is not None or supply.most_replicas > 1:
        return None
    defaults, most_usd = chosen.key[0], request.budget_usd_per_hour
    if request.prefer == "cost" and not (defaults.missed or defaults.coarse):
        most_usd = chosen.served_usd_per_hour  # they could be better only in price
    several = replaced(request, replicas=Replicas(least=1, most=MOST_REPLICAS), budget_usd_per_hour=most_usd)
    cheapest = (offers[0] for offers in search.by_type.values())
    better = replaced(supply, offers=tuple(offer for offer in cheapest if _may_be_better(offer, chosen)))
    found = Search(several, better, search.engine, search.evaluator).run().configurations
    best = next((item for item in found if item.evaluation.replicas > 1), None)
    if best is None or best.key >= chosen.key:
        return None
    worth_it = defaults.missed or best.offer.market == "owned" or _is_well_below(best.usd_per_hour, chosen)
    return best if worth_it else None


def _may_be_better(offer: Offer, chosen: Configuration) -> bool:
    """Return whether several replicas on this offer could beat the choice: they cost at least one machine."""
    return chosen.key[0].missed or offer.market == "owned" or _is_well_below(offer.usd_per_hour or 0, chosen)


def _is_well_below(usd_per_hour: Decimal | int, chosen: Configuration) -> bool:
    return usd_per_hour < chosen.usd_per_hour * _WORTH_SEVERAL


def _nothing_on_offer(request: Request) -> Rejection:
    """Return the rejection for an empty search: no offer matches the request."""
    what = request.instance_type or "no accelerated instance type"
    where = ", ".join(request.regions) if len(request.regions) <= _FEW_REGIONS else f"{len(request.regions)} regions"
    verb = "is not offered" if request.instance_type else "is offered"
    return Rejection(
        instance_type=request.instance_type or "any",
        num_shard=request.num_shard or 1,
        quantize=request.quantize,
        code="not_offered",
        message=f"{what} {verb} {' or '.join(request.markets)} in {where}",
        numbers={},
        codes=("not_offered",),
        region=request.regions[0] if len(request.regions) == 1 else None,
        market=request.markets[0],
        usd_per_hour=None,
        offers=0,
    )


def _fallbacks(configurations: tuple[Configuration, ...]) -> Iterator[Configuration]:
    """Yield the next best candidates, each from a different capacity pool (type, region, market).

    Unless requested, none is less usable or has coarser weights than the choice, because fallbacks are used without
    asking again.
    """
    defaults = configurations[0].key[0]
    seen = {_pool(configurations[0])}
    for configuration in configurations:
        worse = configuration.key[0].unusable > defaults.unusable or configuration.key[0].coarse > defaults.coarse
        if len(seen) > MAX_FALLBACKS:
            return
        if _pool(configuration) not in seen and not worse:
            seen.add(_pool(configuration))
            yield configuration


def _pool(configuration: Configuration) -> tuple[str, str, str]:
    return configuration.offer.instance_type.name, configuration.offer.region, configuration.offer.market
