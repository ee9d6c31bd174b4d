"""Searches all offers x shards x quantizations x replicas; each is a candidate or a rejection."""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import Problem
from tgi_deploy.planner import cost, frontier, hosting, performance, rank, replicas, service_level
from tgi_deploy.planner.evaluation import Evaluator
from tgi_deploy.planner.replica_load import needed_kv_tokens
from tgi_deploy.planner.time_to_ready import rates, restart_s
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.engine import AUTO
from tgi_deploy.values.plan import Candidate, EngineRun, Rejection
from tgi_deploy.values.quality import is_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.planner.evaluation import Evaluation
    from tgi_deploy.planner.service_level import Shortfall
    from tgi_deploy.values.engine import MemoryBudget, Scheme
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Cost, Storage
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Offer, Supply

_UNPRICED: Final = {
    "capacity_block_only": "it is sold only as a Capacity Block, paid in advance",
    "price_unknown": "no {offer.market} price is known in {offer.region}, and an unknown price does not count as free",
}


class Configuration(Frozen, frozen=True, kw_only=True):
    """An offer on which an evaluation works within the budget, ranked by `key`.

    `served_usd_per_hour` is the price of an hour of service, which interruptions increase. `most_usd_per_hour` is the
    price at the largest size, which a budget bounds.
    """

    offer: Offer
    evaluation: Evaluation
    machines: int
    usd_per_hour: Decimal
    served_usd_per_hour: Decimal
    most_usd_per_hour: Decimal
    cost: Cost
    storage: Storage
    key: tuple[Any, ...]


class SearchResult(Frozen, frozen=True, kw_only=True):
    """`configurations`, best first; `considered` counts offers x shards x quantizations x replicas.

    `nearly` are those rejected only by speed limits, each on its cheapest offer.
    """

    configurations: tuple[Configuration, ...]
    nearly: tuple[Configuration, ...]
    rejections: tuple[Rejection, ...]
    considered: int


_SLOW: Final = frozenset(service_level.CODES.values())
_OF_LOAD: Final = _SLOW | {"load_too_high"}


class Search:
    """A search for one request, supply and engine. Holds what evaluations share; `run` does the work."""

    def __init__(
        self,
        request: Request,
        supply: Supply,
        engine: Engine,
        evaluator: Evaluator | None = None,
        *,
        scales_to: int | None = None,
    ) -> None:
        """`evaluator`: one for the same request except its number of replicas. `scales_to`: see `hosting.scales_to`."""
        self.request = request
        self.supply = supply
        self.engine = engine
        self.release = supply.release
        self.evaluator = evaluator or Evaluator(request, supply, engine)
        self._scales_to = scales_to
        self._restarts: dict[str, float] = {}
        self._billed: dict[tuple[Any, ...], tuple[Decimal, Cost]] = {}
        self._stored: dict[tuple[str, str, str], Storage] = {}

    def run(self) -> SearchResult:
        configurations: list[Configuration] = []
        nearly: list[Configuration] = []
        rejections: list[Rejection] = []
        considered = 0
        for offers in self.by_type.values():
            for evaluation in self.evaluations_of(offers[0].instance_type):
                considered += len(offers)
                problems = (*evaluation.problems, *self._machine_problems(offers[0].instance_type, evaluation))
                if problems:
                    rejections.append(self._rejection(offers, evaluation, problems))
                    nearly.extend(self._nearly(offers[0], evaluation, problems))
                else:
                    found = [(offer, self.configuration(offer, evaluation)) for offer in offers]
                    configurations.extend(configuration for _, configuration in found if configuration is not None)
                    refused = _by_price_code(offer for offer, kept in found if kept is None)
                    rejections.extend(self._rejection(group, evaluation) for group in refused)
        configurations.sort(key=lambda configuration: configuration.key)
        return SearchResult(
            configurations=tuple(configurations), nearly=tuple(nearly), rejections=tuple(rejections),
            considered=considered,
        )  # fmt: skip

    def _nearly(self, offer: Offer, evaluation: Evaluation, problems: tuple[Problem, ...]) -> Iterator[Configuration]:
        """Yield the configuration if all its problems concern speed."""
        if evaluation.performance is not None and _SLOW.issuperset(problem.code for problem in problems):
            configuration = self.configuration(offer, evaluation)
            if configuration is not None:
                yield configuration

    def _machine_problems(self, hardware: InstanceType, evaluation: Evaluation) -> Iterator[Problem]:
        needed = replicas.machines(hardware, evaluation.num_shard, evaluation.replicas)
        most = replicas.most_machines(self.request)
        if most is not None and needed > most:
            yield Problem(
                code="too_many_machines",
                message=f"{evaluation.replicas} replicas need {needed} of these machines, more than {most}",
                data={"machines": needed, "max_machines": most},
            )
        yield from self._hosting_problems(hardware, evaluation)

    def _hosting_problems(self, hardware: InstanceType, evaluation: Evaluation) -> Iterator[Problem]:
        service = self.supply.hosting
        if service is None:
            return
        storage = self._storage(hardware, evaluation.scheme)
        yield from hosting.storage_problems(service, hardware, storage)
        startup = self.engine.startup(evaluation.fit.settings, rates(hardware, storage))
        found = (
            hosting.start_problem(service, startup),
            hosting.answer_problem(service, evaluation.performance, self.request),
        )
        yield from filter(None, found)

    @cached_property
    def by_type(self) -> Mapping[str, list[Offer]]:
        """Group offers by instance type, the cheapest first; only those of the requested type if given."""
        found: dict[str, list[Offer]] = {}
        for offer in self.supply.offers:
            if self.request.instance_type in {None, offer.instance_type.name}:
                found.setdefault(offer.instance_type.name, []).append(offer)
        for offers in found.values():
            offers.sort(key=_price_order)
        return dict(sorted(found.items()))

    def evaluations_of(self, hardware: InstanceType) -> Iterator[Evaluation]:
        """Yield the evaluations on a machine, with at most as many machines as the budget allows."""
        every = replicas.every_number(self.request)
        budget = None if every else self.request.budget_usd_per_hour
        for num_shard in self.evaluator.shard_counts(hardware):
            counts = replicas.counts_of(self.request, self.supply.most_replicas, replicas.slots(hardware, num_shard))
            for scheme in self.evaluator.schemes:
                judged = partial(self.evaluator.evaluation, hardware, num_shard, scheme)
                more = self._affordable(counts[1:], hardware, num_shard, scheme, budget)
                yield from replicas.worth_judging(judged, counts[0], more, self.nearness, every=every)

    def _affordable(
        self, counts: Sequence[int], hardware: InstanceType, num_shard: int, scheme: Scheme, most_usd: Decimal | None
    ) -> Iterator[int]:
        """Yield the first numbers of replicas whose machines cost at most `most_usd` an hour on some offer."""
        for count in counts:
            machines = replicas.machines(hardware, num_shard, count)
            if most_usd is not None and not self._buyable(hardware, scheme, machines, most_usd):
                return
            yield count

    def _buyable(self, hardware: InstanceType, scheme: Scheme, machines: int, most_usd: Decimal | None) -> bool:
        """Return whether any offer has a known price of at most `most_usd` for this many machines."""
        prices = (self.price(offer, scheme, machines) for offer in self.by_type.get(hardware.name, ()))
        return any(price is not None and (most_usd is None or price[0] <= most_usd) for price in prices)

    def nearness(self, evaluation: Evaluation) -> tuple[bool, float]:
        """Return whether the evaluation is unusable, and how far it misses the reachable service level.

        What is reachable is computed only if something misses the default.
        """
        shortfall = evaluation.shortfall
        return shortfall.rank(self.reach) if shortfall.missed else (False, 1.0)

    @cached_property
    def reach(self) -> Shortfall:
        """Return the service level that a single request can reach with everything within the budget."""
        budget = self.request.budget_usd_per_hour
        return service_level.reach(
            self.evaluator.alone(evaluation.fit)
            for hardware in (offers[0].instance_type for offers in self.by_type.values())
            for evaluation in self._with_fewest(hardware)
            if self._buyable(
                hardware,
                evaluation.scheme,
                replicas.machines(hardware, evaluation.num_shard, evaluation.replicas),
                budget,
            )
        )

    def _with_fewest(self, hardware: InstanceType) -> Iterator[Evaluation]:
        """Yield what works except for its load, with the fewest allowed replicas."""
        for num_shard in self.evaluator.shard_counts(hardware):
            counts = replicas.counts_of(self.request, self.supply.most_replicas, replicas.slots(hardware, num_shard))
            for scheme in self.evaluator.schemes:
                evaluation = self.evaluator.evaluation(hardware, num_shard, scheme, counts[0])
                problems = (*evaluation.problems, *self._machine_problems(hardware, evaluation))
                if _OF_LOAD.issuperset(problem.code for problem in problems):
                    yield evaluation

    def configuration(self, offer: Offer, evaluation: Evaluation) -> Configuration | None:
        """Return the configuration on an offer if its price is known and within the budget."""
        machines = _machines(offer, evaluation)
        price = self.price(offer, evaluation.scheme, machines)
        if price is None:
            return None
        total, bill, storage = price
        most_usd = self._most_usd_per_hour(offer, evaluation, total)
        if self.request.budget_usd_per_hour is not None and most_usd > self.request.budget_usd_per_hour:
            return None
        served = self._served(offer, total)
        nearness = self.nearness(evaluation)
        return Configuration(
            offer=offer,
            evaluation=evaluation,
            machines=machines,
            usd_per_hour=total,
            cost=bill,
            storage=storage,
            served_usd_per_hour=served,
            most_usd_per_hour=most_usd,
            key=rank.sort_key(self.request.prefer, self._criteria(offer, evaluation, served, nearness)),
        )

    def _most_usd_per_hour(self, offer: Offer, evaluation: Evaluation, usd_per_hour: Decimal) -> Decimal:
        """Return the price at the largest size; `usd_per_hour` is that of the planned one."""
        if self._scales_to is None or self._scales_to <= evaluation.replicas:
            return usd_per_hour
        largest = replicas.machines(offer.instance_type, evaluation.num_shard, self._scales_to)
        price = self.price(offer, evaluation.scheme, largest)
        return usd_per_hour if price is None else price[0]

    def _criteria(
        self, offer: Offer, evaluation: Evaluation, usd_per_hour: Decimal, nearness: tuple[bool, float]
    ) -> rank.Criteria:
        request, speed = self.request, evaluation.performance
        if speed is None:
            raise AssertionError("a configuration has been timed")
        by_default = request.quality == AUTO and request.quantize == AUTO and request.min_bits is None
        unusable, times = nearness
        return rank.Criteria(
            loss=evaluation.quality.order,
            tight=evaluation.memory.tight,
            coarse=by_default and is_below(evaluation.quality.grade, AUTO),
            missed=evaluation.shortfall.missed,
            unusable=unusable,
            times=times,
            usd_per_hour=usd_per_hour,
            **frontier.shown(speed),
            names=(
                offer.instance_type.name, f"{evaluation.num_shard:03d}", f"{evaluation.replicas:05d}",
                evaluation.scheme.order_name, offer.region, offer.market,
            ),
        )  # fmt: skip

    def _served(self, offer: Offer, usd_per_hour: Decimal) -> Decimal:
        """Return the price of an hour of service, which is higher on a spot machine.

        All configurations of a machine share one startup time, because such a rough estimate must not rank them.
        """
        if offer.interruptions is None:
            return usd_per_hour
        seconds = self._restart_s(offer.instance_type)
        return cost.served_usd_per_hour(usd_per_hour, offer.interruptions.per_month, seconds)

    def _restart_s(self, hardware: InstanceType) -> float:
        known = self._restarts.get(hardware.name)
        if known is None:
            scheme = self.evaluator.schemes[0]
            storage = self._storage(hardware, scheme)
            alone = self.evaluator.fit(hardware, 1, scheme, 1)
            known = restart_s(hardware, storage, self.engine.startup(alone.settings, rates(hardware, storage)))
            self._restarts[hardware.name] = known
        return known

    def price(self, offer: Offer, scheme: Scheme, machines: int) -> tuple[Decimal, Cost, Storage] | None:
        """Return everything billed by the hour; None without a known price."""
        if _unpriced(offer) is not None:
            return None
        storage = self._storage(offer.instance_type, scheme)
        key = (offer.instance_type.name, offer.region, offer.market, storage.root_volume_gib, machines)
        known = self._billed.get(key)
        if known is None:
            extras = self.supply.extra_prices.get(offer.region)
            bill = cost.hourly_cost(offer, storage, extras, machines=machines)
            known = self._billed[key] = (bill.usd_per_hour, bill)
        return (*known, storage)

    def _storage(self, hardware: InstanceType, scheme: Scheme) -> Storage:
        key = (hardware.name, scheme.name, scheme.hub_id)
        known = self._stored.get(key)
        if known is None:
            known = self._stored[key] = cost.storage_for(
                hardware,
                weights_bytes=self.evaluator.download_bytes(scheme),
                image_bytes=self.release.image_bytes,
                least_gib=self.request.disk_gib or 0,
            )
        return known

    def _rejection(self, offers: list[Offer], evaluation: Evaluation, against: tuple[Problem, ...] = ()) -> Rejection:
        """Return the rejection of a configuration on these offers; of prices, the cheapest counts."""
        cheapest = offers[0]
        price = self.price(cheapest, evaluation.scheme, _machines(cheapest, evaluation))
        most_usd = None if price is None else self._most_usd_per_hour(cheapest, evaluation, price[0])
        over_budget = _price_problem(cheapest, most_usd, self.request.budget_usd_per_hour)
        problems = (*against, *filter(None, (over_budget,)))
        first = problems[0]
        return Rejection(
            instance_type=cheapest.instance_type.name, num_shard=evaluation.num_shard,
            quantize=evaluation.scheme.name, code=first.code, message=first.message, numbers=first.data,
            codes=tuple(problem.code for problem in problems), region=cheapest.region, market=cheapest.market,
            usd_per_hour=cheapest.usd_per_hour, offers=len(offers), replicas=evaluation.replicas,
        )  # fmt: skip

    def memory(self, evaluation: Evaluation) -> MemoryBudget:
        """Return the memory of a working configuration with the KV cache that its load needs."""
        budget, needed = evaluation.fit.memory, needed_kv_tokens(self.evaluator, evaluation)
        return replaced(budget, required_kv_tokens=needed, startup_kv_tokens=budget.required_kv_tokens)

    def candidate(self, configuration: Configuration) -> Candidate:
        """Return the full candidate, with the engine's command line."""
        offer, storage = configuration.offer, configuration.storage
        evaluation, fit = configuration.evaluation, configuration.evaluation.fit
        if evaluation.performance is None:
            raise AssertionError("a configuration has been evaluated")
        return Candidate(
            offer=offer, num_shard=evaluation.num_shard, quantize=evaluation.scheme.name, dtype=fit.dtype,
            lost_bits=evaluation.scheme.lost_bits, cost=configuration.cost,
            most_usd_per_hour=None if self._scales_to is None else configuration.most_usd_per_hour,
            memory=self.memory(evaluation),
            quality=evaluation.quality.grade, replicas=evaluation.replicas, machines=configuration.machines,
            outcomes=evaluation.outcomes,
            streaming_only=hosting.streaming_only(self.supply.hosting, evaluation.performance, self.request),
            performance=performance.with_prices(evaluation.performance, configuration.cost.usd_per_hour, self.request),
            engine=EngineRun(
                name=self.engine.name, version=self.release.version, settings=fit.settings,
                container=hosting.hosted(
                    self.engine.container(fit), self.supply.hosting, offer.region, self.engine.cache_path
                ),
                startup=self.engine.startup(fit.settings, rates(offer.instance_type, storage)),
                metrics=self.engine.metrics(self.release), access=self.engine.access(self.release),
                port=self.request.port,
            ),
            storage=storage,
        )  # fmt: skip


def _machines(offer: Offer, evaluation: Evaluation) -> int:
    return replicas.machines(offer.instance_type, evaluation.num_shard, evaluation.replicas)


def _unpriced(offer: Offer) -> str | None:
    """Return why the offer has no known hourly price; None if it has one, or is owned."""
    if offer.market == "on-demand" and offer.instance_type.capacity_block_only:
        return "capacity_block_only"
    return "price_unknown" if offer.usd_per_hour is None and offer.market != "owned" else None


def _by_price_code(offers: Iterable[Offer]) -> Iterable[list[Offer]]:
    """Group the offers rejected only by price by their code."""
    by_code: dict[str, list[Offer]] = {}
    for offer in offers:
        by_code.setdefault(_unpriced(offer) or "over_budget", []).append(offer)
    return by_code.values()


def _price_problem(offer: Offer, usd_per_hour: Decimal | None, budget_usd_per_hour: Decimal | None) -> Problem | None:
    unpriced = _unpriced(offer)
    if unpriced is not None:
        return Problem(code=unpriced, message=_UNPRICED[unpriced].format(offer=offer))
    if usd_per_hour is None or budget_usd_per_hour is None or usd_per_hour <= budget_usd_per_hour:
        return None
    date = f" ({offer.dated})" if offer.dated else ""
    return Problem(
        code="over_budget",
        message=f"costs {'about ' if offer.estimated else ''}${usd_per_hour:.3f}/h in total{date},"
        f" over the budget of ${budget_usd_per_hour}/h",
        data={"total_usd_per_hour": usd_per_hour, "budget_usd_per_hour": budget_usd_per_hour},
    )


def _price_order(offer: Offer) -> tuple[bool, Decimal, str, str]:
    price = offer.usd_per_hour
    return (price is None, price if price is not None else Decimal(0), offer.region, offer.market)
