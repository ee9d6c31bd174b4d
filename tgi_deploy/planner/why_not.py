"""Explains why hardware was not chosen: the reasons against each shards x quantization, or its rank.

Uses the search's evaluations, so that an explanation can't differ from the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.planner.hosting import scales_to
from tgi_deploy.planner.rank import CRITERIA
from tgi_deploy.planner.replicas import machines, slots
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import Frozen, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.errors import Problem
    from tgi_deploy.planner.evaluation import Evaluation
    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.engine import MemoryBudget
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate, Cost, Performance
    from tgi_deploy.values.request import Preference, Request
    from tgi_deploy.values.supply import Offer, Supply


class Priced(Frozen, frozen=True, kw_only=True):
    """An offer with its bill; `cost` is None if the price is unknown."""

    offer: Offer
    cost: Cost | None
    within_budget: bool


class Variant(Frozen, frozen=True, kw_only=True):
    """Shards x quantization x replicas on the hardware.

    `codes`: all reasons against it, including prices; empty if it works.
    """

    num_shard: int
    quantize: str
    replicas: int
    problems: tuple[Problem, ...]
    memory: MemoryBudget
    performance: Performance | None
    prices: tuple[Priced, ...]
    codes: tuple[str, ...]


class Explained(Frozen, frozen=True, kw_only=True):
    """A number of machines of an instance type under the request.

    `best` is its best working configuration, `rank` its position among the `ranked` working instance types, and
    `decided_by` the first criterion on which `chosen`, the plan's choice, is better.
    """

    hardware: InstanceType
    machines: int
    variants: tuple[Variant, ...]
    best: Candidate | None
    rank: int | None
    ranked: int
    chosen: Candidate | None
    decided_by: str | None

    @property
    def verdict(self) -> str:
        """`chosen`, `works`, or the code that is nearest to working."""
        if self.best is not None:
            same = self.chosen is not None and _place(self.chosen) == _place(self.best)
            return "chosen" if same and self.hardware.status != "owned" else "works"
        return self.nearest.codes[0] if self.variants else "not_offered"

    @property
    def nearest(self) -> Variant:
        """The configuration with the fewest reasons against it, of the best quality and fewest shards."""
        return min(self.variants, key=lambda variant: len(variant.codes))


def _place(candidate: Candidate) -> tuple[str, int]:
    return candidate.offer.instance_type.name, candidate.machines


def explain(
    request: Request, supply: Supply, engine: Engine, hardware: Sequence[InstanceType], machines: int = 1
) -> tuple[Explained, ...]:
    """Explain each of `hardware` under the request. A pinned instance type affects only the choice.

    `machines`: this many of each, filled with replicas; on one machine, as many as the request allows.
    """
    search = Search(replaced(request, instance_type=None), supply, engine, scales_to=scales_to(request, supply))
    configurations = search.run().configurations
    places = _first_of_each_type(configurations)
    pinned = [
        configuration
        for configuration in configurations
        if request.instance_type in {None, configuration.offer.instance_type.name}
    ]
    chosen = pinned[0] if pinned else None
    return tuple(_explanation(search, kind, machines, places, chosen) for kind in hardware)


def _first_of_each_type(configurations: Sequence[Configuration]) -> dict[str, Configuration]:
    found: dict[str, Configuration] = {}
    for configuration in configurations:
        found.setdefault(configuration.offer.instance_type.name, configuration)
    return found


def _explanation(
    search: Search, hardware: InstanceType, machines: int, places: dict[str, Configuration],
    chosen: Configuration | None,
) -> Explained:  # fmt: skip
    evaluations = tuple(_evaluations(search, hardware, machines))
    best = places.get(hardware.name) if machines == 1 else _best(search, hardware, evaluations)
    others = [item for name, item in places.items() if name != hardware.name]
    return Explained(
        hardware=hardware,
        machines=machines,
        variants=tuple(_variants(search, hardware, evaluations)),
        best=None if best is None else search.candidate(best),
        rank=None if best is None else 1 + sum(item.key < best.key for item in others),
        ranked=len(others) + (best is not None),
        chosen=None if chosen is None else search.candidate(chosen),
        decided_by=None if best is None or chosen is None else _decided_by(search.request.prefer, best, chosen),
    )


def _evaluations(search: Search, hardware: InstanceType, machines: int) -> Iterator[Evaluation]:
    if machines == 1:
        yield from search.evaluations_of(hardware)
        return
    for num_shard in search.evaluator.shard_counts(hardware):
        for scheme in search.evaluator.schemes:
            yield search.evaluator.evaluation(hardware, num_shard, scheme, machines * slots(hardware, num_shard))


def _best(search: Search, hardware: InstanceType, evaluations: Sequence[Evaluation]) -> Configuration | None:
    found = (
        search.configuration(offer, evaluation)
        for evaluation in evaluations if not evaluation.problems
        for offer in search.supply.offers if offer.instance_type.name == hardware.name
    )  # fmt: skip
    return min((item for item in found if item is not None), key=lambda item: item.key, default=None)


def _decided_by(prefer: Preference, configuration: Configuration, chosen: Configuration) -> str | None:
    if configuration.key <= chosen.key:
        return None
    mine, theirs = configuration.key[0], chosen.key[0]
    if mine != theirs:
        equal = mine.unusable == theirs.unusable
        return "quality class" if equal and mine.coarse != theirs.coarse else "service level"
    pairs = zip(CRITERIA[prefer], configuration.key[1:], chosen.key[1:], strict=True)
    return next(criterion for criterion, mine, theirs in pairs if mine != theirs)


def _variants(search: Search, hardware: InstanceType, evaluations: Sequence[Evaluation]) -> Iterator[Variant]:
    offers = sorted(
        (offer for offer in search.supply.offers if offer.instance_type.name == hardware.name),
        key=lambda offer: (offer.usd_per_hour is None, offer.usd_per_hour, offer.region, offer.market),
    )
    for evaluation in evaluations:
        prices = tuple(_priced(search, offer, evaluation) for offer in offers)
        yield Variant(
            num_shard=evaluation.num_shard,
            quantize=evaluation.scheme.name,
            replicas=evaluation.replicas,
            problems=evaluation.problems,
            memory=evaluation.memory if evaluation.problems else search.memory(evaluation),
            performance=evaluation.performance,
            prices=prices,
            codes=(*(problem.code for problem in evaluation.problems), *_price_codes(prices)),
        )


def _priced(search: Search, offer: Offer, evaluation: Evaluation) -> Priced:
    needed = machines(offer.instance_type, evaluation.num_shard, evaluation.replicas)
    price = search.price(offer, evaluation.scheme, needed)
    budget = search.request.budget_usd_per_hour
    within = price is not None and (budget is None or price[0] <= budget)
    return Priced(offer=offer, cost=None if price is None else price[1], within_budget=within)


def _price_codes(prices: Sequence[Priced]) -> Iterator[str]:
    if not prices:
        yield "not_offered"
    elif not any(item.within_budget for item in prices):
        yield "price_unknown" if all(item.cost is None for item in prices) else "over_budget"
