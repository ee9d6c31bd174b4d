"""Hardware under a request, with the arithmetic: what speaks against each shards x quantization, or its rank.

The evaluations are the search's own, so an explanation can't differ from the plan it explains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import Frozen, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.errors import Problem
    from tgi_deploy.planner.search import Configuration, Evaluation
    from tgi_deploy.values.engine import MemoryBudget
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate, Cost, Performance
    from tgi_deploy.values.request import Preference, Request
    from tgi_deploy.values.supply import Offer, Supply

# What the parts of `rank.sort_key` compare.
CRITERIA: Final[dict[Preference, tuple[str, ...]]] = {
    "quality": ("bits lost to quantization", "price an hour", "throughput", "name"),
    "cost": ("price an hour", "bits lost to quantization", "throughput", "name"),
    "speed": ("throughput", "price an hour", "bits lost to quantization", "name"),
    "value": ("price of a token", "bits lost to quantization", "price an hour", "name"),
}


class Priced(Frozen, frozen=True, kw_only=True):
    """An offer with everything it bills; `cost` is None where the price is unknown."""

    offer: Offer
    cost: Cost | None
    within_budget: bool


class Way(Frozen, frozen=True, kw_only=True):
    """Shards x quantization on the hardware. `codes`: every reason against it, prices included; empty when it works."""

    num_shard: int
    quantize: str
    problems: tuple[Problem, ...]
    memory: MemoryBudget
    performance: Performance | None
    prices: tuple[Priced, ...]
    codes: tuple[str, ...]


class Explanation(Frozen, frozen=True, kw_only=True):
    """An instance type under the request.

    `best` is its best working configuration, `rank` its place among the `ranked` instance types that work, and
    `decided_by` the first criterion on which `chosen`, the plan's choice, is ahead.
    """

    hardware: InstanceType
    ways: tuple[Way, ...]
    best: Candidate | None
    rank: int | None
    ranked: int
    chosen: Candidate | None
    decided_by: str | None


def explain(
    request: Request, supply: Supply, engine: Engine, hardware: Sequence[InstanceType]
) -> tuple[Explanation, ...]:
    """Return each of `hardware` under the request. An instance type that the request pins counts for the choice."""
    search = Search(replaced(request, instance_type=None), supply, engine)
    configurations = search.run().configurations
    places = _first_of_each_type(configurations)
    pinned = [
        configuration
        for configuration in configurations
        if request.instance_type in {None, configuration.offer.instance_type.name}
    ]
    chosen = pinned[0] if pinned else None
    return tuple(_explanation(search, kind, places, chosen) for kind in hardware)


def _first_of_each_type(configurations: Sequence[Configuration]) -> dict[str, Configuration]:
    found: dict[str, Configuration] = {}
    for configuration in configurations:
        found.setdefault(configuration.offer.instance_type.name, configuration)
    return found


def _explanation(
    search: Search, hardware: InstanceType, places: dict[str, Configuration], chosen: Configuration | None
) -> Explanation:
    best = places.get(hardware.name)
    return Explanation(
        hardware=hardware,
        ways=tuple(_ways(search, hardware)),
        best=None if best is None else search.candidate(best),
        rank=None if best is None else list(places).index(hardware.name) + 1,
        ranked=len(places),
        chosen=None if chosen is None else search.candidate(chosen),
        decided_by=None if best is None or chosen is None else _decided_by(search.request.prefer, best, chosen),
    )


def _decided_by(prefer: Preference, configuration: Configuration, chosen: Configuration) -> str | None:
    if configuration.key <= chosen.key:
        return None
    pairs = zip(CRITERIA[prefer], configuration.key, chosen.key, strict=True)
    return next(criterion for criterion, mine, theirs in pairs if mine != theirs)


def _ways(search: Search, hardware: InstanceType) -> Iterator[Way]:
    offers = sorted(
        (offer for offer in search.supply.offers if offer.instance_type.name == hardware.name),
        key=lambda offer: (offer.usd_per_hour is None, offer.usd_per_hour, offer.region, offer.market),
    )
    for evaluation in search.evaluations_of(hardware):
        prices = tuple(_priced(search, offer, evaluation) for offer in offers)
        yield Way(
            num_shard=evaluation.num_shard,
            quantize=evaluation.scheme.name,
            problems=evaluation.problems,
            memory=evaluation.memory,
            performance=evaluation.performance,
            prices=prices,
            codes=(*(problem.code for problem in evaluation.problems), *_price_codes(prices)),
        )


def _priced(search: Search, offer: Offer, evaluation: Evaluation) -> Priced:
    price = search.price(offer, evaluation)
    budget = search.request.budget_usd_per_hour
    within = price is not None and (budget is None or price[0] <= budget)
    return Priced(offer=offer, cost=None if price is None else price[1], within_budget=within)


def _price_codes(prices: Sequence[Priced]) -> Iterator[str]:
    if not prices:
        yield "not_offered"
    elif not any(item.within_budget for item in prices):
        yield "price_unknown" if all(item.cost is None for item in prices) else "over_budget"
