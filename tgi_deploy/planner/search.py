"""Every offer x shards x quantization, each a candidate or a rejection.

What does not depend on region and market is worked out once per kind of hardware: the nine sizes of g6 share one
evaluation, and so do all regions. That keeps a plan over every region close to the price of a plan for one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError, Problem
from tgi_deploy.planner import checks, cost, performance, rank
from tgi_deploy.planner.time_to_ready import rates
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.engine import Case, Pins
from tgi_deploy.values.plan import Candidate, EngineRun, Rejection
from tgi_deploy.values.sizes import download_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.values.engine import Fit, MemoryBudget, Scheme
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Cost, Performance, Storage
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Offer, Supply

_UNPRICED: Final = {
    "capacity_block_only": "on-demand hours are sold only inside a Capacity Block that is paid for in advance",
    "price_unknown": "no {offer.market} price is known in {offer.region}; an unknown price is never free",
}


class Evaluation(Frozen, frozen=True, kw_only=True):
    """A configuration on a kind of hardware: what speaks against it, and its figures.

    `performance` is None where memory does not fit, and where something else speaks against a request without limits
    on speed.
    """

    fit: Fit
    problems: tuple[Problem, ...]
    performance: Performance | None

    @property
    def num_shard(self) -> int:
        return self.fit.case.num_shard

    @property
    def scheme(self) -> Scheme:
        return self.fit.case.scheme

    @property
    def memory(self) -> MemoryBudget:
        return self.fit.memory


class Configuration(Frozen, frozen=True, kw_only=True):
    """An offer on which an evaluation works, within the budget; ranked by `key`."""

    offer: Offer
    evaluation: Evaluation
    cost: Cost
    storage: Storage
    key: tuple[Any, ...]


class SearchResult(Frozen, frozen=True, kw_only=True):
    """`configurations` best first; `considered` counts offers x shards x quantizations."""

    configurations: tuple[Configuration, ...]
    rejections: tuple[Rejection, ...]
    considered: int


class Search:
    """One request, one supply, one engine. Holds what is shared between evaluations; `run` does the work."""

    def __init__(self, request: Request, supply: Supply, engine: Engine) -> None:
        self.request = request
        self.supply = supply
        self.engine = engine
        self.release = supply.release
        self.model = request.model.model
        self.pins = Pins.of(request.flags, request.env)
        self.load = request.load
        for problem in self.engine.check_pins(self.pins, self.load, self.model, self.release):
            raise InputError(problem.code, problem.message, hint=problem.hint)
        self.schemes = self.engine.schemes(request.model, self.release, request.quantize)
        self._evaluations: dict[tuple[Any, ...], Evaluation] = {}
        self._billed: dict[tuple[str, ...], tuple[Decimal, Cost, Storage]] = {}

    def run(self) -> SearchResult:
        configurations: list[Configuration] = []
        rejections: list[Rejection] = []
        considered = 0
        for offers in self._by_type().values():
            for evaluation in self.evaluations_of(offers[0].instance_type):
                considered += len(offers)
                if evaluation.problems:
                    rejections.append(self._rejection(offers, evaluation))
                else:
                    found = [(offer, self.configuration(offer, evaluation)) for offer in offers]
                    configurations.extend(configuration for _, configuration in found if configuration is not None)
                    rejections.extend(self._too_dear([offer for offer, kept in found if kept is None], evaluation))
        configurations.sort(key=lambda configuration: configuration.key)
        return SearchResult(configurations=tuple(configurations), rejections=tuple(rejections), considered=considered)

    def _by_type(self) -> Mapping[str, list[Offer]]:
        """Offers by instance type, the cheapest first; of the requested type alone if there is one."""
        found: dict[str, list[Offer]] = {}
        for offer in self.supply.offers:
            if self.request.instance_type in {None, offer.instance_type.name}:
                found.setdefault(offer.instance_type.name, []).append(offer)
        for offers in found.values():
            offers.sort(key=_price_order)
        return dict(sorted(found.items()))

    def evaluations_of(self, hardware: InstanceType) -> Iterator[Evaluation]:
        for num_shard in self._shard_counts(hardware):
            for scheme in self.schemes:
                yield self.evaluation(hardware, num_shard, scheme)

    def _shard_counts(self, hardware: InstanceType) -> tuple[int, ...]:
        """A pinned count is judged whether it can work or not."""
        if self.request.num_shard is not None:
            return (self.request.num_shard,)
        return self.engine.shard_counts(self.model, self.release, hardware.accelerator_count)

    def evaluation(self, hardware: InstanceType, num_shard: int, scheme: Scheme) -> Evaluation:
        """What is true of the configuration on every offer; worked out once for each kind of hardware."""
        key = (*_kind(hardware, num_shard), num_shard, scheme.name, scheme.hub_id)
        known = self._evaluations.get(key)
        if known is None:
            known = self._evaluations[key] = self._evaluate(hardware, num_shard, scheme)
        return known

    def _evaluate(self, hardware: InstanceType, num_shard: int, scheme: Scheme) -> Evaluation:
        fit = self.engine.fit(
            Case(
                model=self.model, hardware=hardware, num_shard=num_shard, scheme=scheme, load=self.load,
                pins=self.pins, release=self.release, allow_turing=self.request.allow_turing,
            )
        )  # fmt: skip
        speed = self._speed(fit) if self._is_timed and fit.memory.fits else None
        problems = fit.problems + (checks.speed_problems(speed, self.request) if speed else ())
        if not problems and speed is None:
            speed = self._speed(fit)
        return Evaluation(fit=fit, problems=problems, performance=speed)

    @property
    def _is_timed(self) -> bool:
        """Whether a check looks at speed; where none does, only what works is worth a prediction."""
        request = self.request
        return any(limit is not None for limit in (request.ttft_ms, request.tpot_ms, request.min_tokens_per_s))

    def _speed(self, fit: Fit) -> Performance:
        hardware = fit.case.hardware
        return performance.predict(
            self.model, fit.case.scheme, hardware.accelerator, fit.memory, self.load,
            num_shard=fit.case.num_shard, interconnect=hardware.interconnect, constants=self.supply.speed,
            scheduling=fit.scheduling,
        )  # fmt: skip

    def configuration(self, offer: Offer, evaluation: Evaluation) -> Configuration | None:
        """The offer as a choice, if its price is known and within the budget."""
        price = self.price(offer, evaluation)
        if price is None:
            return None
        total, bill, storage = price
        if self.request.budget_usd_per_hour is not None and total > self.request.budget_usd_per_hour:
            return None
        speed = evaluation.performance
        key = rank.sort_key(
            self.request.prefer,
            lost_bits=evaluation.scheme.lost_bits,
            usd_per_hour=total,
            output_tokens_per_s=speed.output_tokens_per_s if speed else 0.0,
            names=(
                offer.instance_type.name, f"{evaluation.num_shard:03d}", evaluation.scheme.order_name, offer.region,
                offer.market,
            ),
        )  # fmt: skip
        return Configuration(offer=offer, evaluation=evaluation, cost=bill, storage=storage, key=key)

    def price(self, offer: Offer, evaluation: Evaluation) -> tuple[Decimal, Cost, Storage] | None:
        """Everything billed by the hour; None where it cannot be had for a known price."""
        if _unpriced(offer) is not None:
            return None
        scheme = evaluation.scheme
        key = (offer.instance_type.name, offer.region, offer.market, scheme.name, scheme.hub_id)
        known = self._billed.get(key)
        if known is None:
            weights = download_bytes(self.model, scheme)
            storage = cost.storage_for(
                offer,
                weights_bytes=weights,
                image_bytes=self.release.image_bytes,
                least_gib=self.request.disk_gib or 0,
            )
            bill = cost.hourly_cost(
                offer,
                storage,
                self.supply.extra_prices.get(offer.region),
                public_ipv4=self.request.public_ipv4,
            )
            known = self._billed[key] = (bill.usd_per_hour, bill, storage)
        return known

    def _too_dear(self, offers: list[Offer], evaluation: Evaluation) -> Iterator[Rejection]:
        """Offers of a working configuration that only their price speaks against, one rejection a code."""
        by_code: dict[str, list[Offer]] = {}
        for offer in offers:
            by_code.setdefault(_unpriced(offer) or "over_budget", []).append(offer)
        for group in by_code.values():
            yield self._rejection(group, evaluation)

    def _rejection(self, offers: list[Offer], evaluation: Evaluation) -> Rejection:
        """What speaks against a configuration on these offers; of prices, that of the cheapest is looked at."""
        cheapest, price = offers[0], self.price(offers[0], evaluation)
        dear = _price_problem(cheapest, None if price is None else price[0], self.request.budget_usd_per_hour)
        problems = (*evaluation.problems, *filter(None, (dear,)))
        first = problems[0]
        return Rejection(
            instance_type=cheapest.instance_type.name, num_shard=evaluation.num_shard,
            quantize=evaluation.scheme.name, code=first.code, message=first.message, numbers=first.data,
            codes=tuple(problem.code for problem in problems), region=cheapest.region, market=cheapest.market,
            usd_per_hour=cheapest.usd_per_hour, offers=len(offers),
        )  # fmt: skip

    def candidate(self, configuration: Configuration) -> Candidate:
        """The configuration in full, with the finished command line of the engine."""
        offer, storage = configuration.offer, configuration.storage
        evaluation, fit = configuration.evaluation, configuration.evaluation.fit
        if evaluation.performance is None:
            raise AssertionError("a configuration has been evaluated")
        return Candidate(
            offer=offer, num_shard=evaluation.num_shard, quantize=evaluation.scheme.name, dtype=fit.dtype,
            lost_bits=evaluation.scheme.lost_bits, cost=configuration.cost, memory=fit.memory,
            performance=performance.with_prices(evaluation.performance, configuration.cost.usd_per_hour, self.request),
            engine=EngineRun(
                name=self.engine.name, version=self.release.version, settings=fit.settings,
                container=self.engine.container(fit),
                startup=self.engine.startup(fit.settings, rates(offer.instance_type, storage)),
                metrics=self.engine.metrics(self.release), access=self.engine.access(self.release),
                port=self.request.port,
            ),
            storage=storage,
        )  # fmt: skip


def _kind(hardware: InstanceType, num_shard: int) -> tuple[Any, ...]:
    """Two instance types of one kind get the same verdict from every check."""
    chip = hardware.accelerator
    return (
        chip.name, hardware.memory_bytes_per_accelerator, hardware.cpu_arch, hardware.partition,
        hardware.interconnect if num_shard > 1 else "none", min(hardware.accelerator_count, num_shard),
    )  # fmt: skip


def _unpriced(offer: Offer) -> str | None:
    """Why the offer cannot be had for a known price by the hour; None where it can, or is owned."""
    if offer.market == "on-demand" and offer.instance_type.capacity_block_only:
        return "capacity_block_only"
    return "price_unknown" if offer.usd_per_hour is None and offer.market != "owned" else None


def _price_problem(offer: Offer, usd_per_hour: Decimal | None, budget_usd_per_hour: Decimal | None) -> Problem | None:
    unpriced = _unpriced(offer)
    if unpriced is not None:
        return Problem(code=unpriced, message=_UNPRICED[unpriced].format(offer=offer))
    if usd_per_hour is None or budget_usd_per_hour is None or usd_per_hour <= budget_usd_per_hour:
        return None
    return Problem(
        code="over_budget",
        message=f"costs ${usd_per_hour:.3f}/h in all, over the budget of ${budget_usd_per_hour}/h",
        data={"total_usd_per_hour": usd_per_hour, "budget_usd_per_hour": budget_usd_per_hour},
    )


def _price_order(offer: Offer) -> tuple[bool, Decimal, str, str]:
    price = offer.usd_per_hour
    return (price is None, price if price is not None else Decimal(0), offer.region, offer.market)
