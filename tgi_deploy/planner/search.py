"""Every offer x shards x quantization, each a candidate or a rejection.

What does not depend on region and market is worked out once per kind of hardware: the nine sizes of g6 share one
evaluation, and so do all regions. That keeps a plan over every region close to the price of a plan for one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.planner import checks, cost, engine, memory, memory_launcher, performance, quantization, rank, sharding
from tgi_deploy.planner.types import Candidate, EngineSettings, Rejection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.planner.quantization import Scheme
    from tgi_deploy.planner.supply import Supply
    from tgi_deploy.planner.types import (
        ArchitectureRule,
        Cost,
        EngineRelease,
        MemoryBudget,
        ModelClass,
        Offer,
        Performance,
        Requirements,
        Storage,
    )
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.model import ModelSpec

_UNPRICED: Final = {
    "capacity_block_only": "on-demand hours are sold only inside a Capacity Block that is paid for in advance",
    "price_unknown": "no {offer.market} price is known in {offer.region}; an unknown price is never free",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """A configuration on a kind of hardware: what speaks against it, and its figures.

    `performance` is None where memory does not fit, and where something else speaks against a wish without limits
    on speed.
    """

    num_shard: int
    scheme: Scheme
    failures: tuple[checks.Failure, ...]
    memory: MemoryBudget
    performance: Performance | None
    limits: engine.Limits
    prefill_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """An offer on which an evaluation works, within the budget; ranked by `key`."""

    offer: Offer
    evaluation: Evaluation
    cost: Cost
    storage: Storage
    key: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """`options` best first; `considered` counts offers x shards x quantizations."""

    options: tuple[Option, ...]
    rejections: tuple[Rejection, ...]
    considered: int


class Search:
    """One wish against one supply. Holds what is shared between evaluations; `run` does the work."""

    def __init__(self, wish: Requirements, supply: Supply) -> None:
        self.wish = wish
        self.supply = supply
        self.release = supply.release
        self.model = wish.model.model
        self.model_class = self.release.model_classes.get(self.model.model_type)
        self.pins = engine.checked_pins(self.release, wish.flags)
        engine.check_limits(wish, self._limits("flashinfer"), self.pins, chunked=self._chunked("flashinfer"))
        self.schemes = quantization.schemes(wish.model, self.release, wish.quantize)
        self._evaluations: dict[tuple[Any, ...], Evaluation] = {}
        self._billed: dict[tuple[str, ...], tuple[Decimal, Cost, Storage]] = {}

    def run(self) -> SearchResult:
        options: list[Option] = []
        rejections: list[Rejection] = []
        considered = 0
        for offers in self._by_type().values():
            for evaluation in self.evaluations_of(offers[0].instance_type):
                considered += len(offers)
                if evaluation.failures:
                    rejections.append(self._rejected(offers, evaluation))
                else:
                    found = [(offer, self.option(offer, evaluation)) for offer in offers]
                    options.extend(option for _, option in found if option is not None)
                    rejections.extend(self._too_dear([offer for offer, kept in found if kept is None], evaluation))
        options.sort(key=lambda option: option.key)
        return SearchResult(options=tuple(options), rejections=tuple(rejections), considered=considered)

    def _by_type(self) -> Mapping[str, list[Offer]]:
        """Offers by instance type, the cheapest first; of the wished type alone if one is wished."""
        found: dict[str, list[Offer]] = {}
        for offer in self.supply.offers:
            if self.wish.instance_type in {None, offer.instance_type.name}:
                found.setdefault(offer.instance_type.name, []).append(offer)
        for offers in found.values():
            offers.sort(key=_price_order)
        return dict(sorted(found.items()))

    def evaluations_of(self, hardware: InstanceType) -> Iterator[Evaluation]:
        for num_shard in sharding.shard_counts(hardware.accelerator_count, self.wish.num_shard):
            for scheme in self.schemes:
                yield self.evaluation(hardware, num_shard, scheme)

    def evaluation(self, hardware: InstanceType, num_shard: int, scheme: Scheme) -> Evaluation:
        """What is true of the configuration on every offer; worked out once for each kind of hardware."""
        key = (*_kind(hardware, num_shard), num_shard, scheme.name, scheme.hub_id)
        known = self._evaluations.get(key)
        if known is None:
            known = self._evaluations[key] = self._evaluate(hardware, num_shard, scheme)
        return known

    def _evaluate(self, hardware: InstanceType, num_shard: int, scheme: Scheme) -> Evaluation:
        rule = self.release.architecture_rule(hardware.accelerator.compute_capability)
        attention = self._attention(rule)
        limits, budget, prefill = self._budget(hardware, num_shard, scheme, attention)
        speed = self._speed(hardware, num_shard, scheme, budget) if self._is_timed and budget.fits else None
        facts = checks.Facts(
            hardware=hardware, model=self.model, model_class=self.model_class, release=self.release, rule=rule,
            scheme=scheme, num_shard=num_shard, memory=budget, performance=speed, attention=attention, pins=self.pins,
            prompt_batch_short=prefill < limits.max_input_tokens and not self._chunked(attention),
        )  # fmt: skip
        failures = checks.failures(facts, self.wish)
        if not failures and speed is None:
            speed = self._speed(hardware, num_shard, scheme, budget)
        return Evaluation(
            num_shard=num_shard, scheme=scheme, failures=failures, memory=budget, performance=speed, limits=limits,
            prefill_tokens=prefill,
        )  # fmt: skip

    @property
    def _is_timed(self) -> bool:
        """Whether a check looks at speed; where none does, only what works is worth a prediction."""
        wish = self.wish
        return any(limit is not None for limit in (wish.ttft_ms, wish.tpot_ms, wish.min_tokens_per_s))

    @property
    def _kv_bytes(self) -> int:
        """Of one element of the KV cache."""
        return 1 if self.pins.get("--kv-cache-dtype", "").startswith("fp8") else 2

    def _attention(self, rule: ArchitectureRule | None) -> str:
        if self.model_class is None or rule is None:
            return "paged"
        return engine.attention_for(self.model, self.model_class, self.release, rule)

    def _chunked(self, attention: str) -> bool:
        """Whether long prompts are prefilled in pieces; speculation turns that off."""
        if self.model_class is None or not self.model_class.flash or "--speculate" in self.pins:
            return False
        return engine.prefills_in_chunks(self.release, self.model_class, attention)

    def _limits(self, attention: str) -> engine.Limits:
        return engine.limits_for(self.wish.context_tokens, self.pins, chunked=self._chunked(attention))

    def _budget(
        self, hardware: InstanceType, num_shard: int, scheme: Scheme, attention: str
    ) -> tuple[engine.Limits, MemoryBudget, int]:
        """The memory budget with the largest prefill batch that leaves room for what is promised."""
        layout, limits = self._layout(num_shard, attention), self._limits(attention)
        for prefill in limits.prefill_choices:
            needed = max(self.wish.required_kv_tokens, limits.max_total_tokens, prefill)
            budget = memory.memory_budget(
                self.model, scheme, layout, total_bytes=hardware.memory_bytes_per_accelerator,
                prefill_tokens=prefill, required_tokens=needed, concurrency=self.wish.concurrency,
                request_tokens=self.wish.input_tokens + self.wish.output_tokens,
            )  # fmt: skip
            if budget.fits:
                break
        return limits, budget, prefill

    def _layout(self, num_shard: int, attention: str) -> memory.Layout:
        return memory.Layout(
            num_shard=num_shard,
            share=self.release.memory_share * float(self.pins.get("--cuda-memory-fraction", "1")),
            workspace_bytes=self.release.workspace_bytes,
            block_tokens=self.release.block_tokens.get(attention, 1),
            kv_bytes=self._kv_bytes,
            replicated_kv=self.model_class.replicated_kv if self.model_class else False,
            prompt_logprobs=memory.scores_prompts(self.release, self.pins),
        )

    def _speed(self, hardware: InstanceType, num_shard: int, scheme: Scheme, budget: MemoryBudget) -> Performance:
        load = performance.Load(
            input_tokens=self.wish.input_tokens,
            output_tokens=self.wish.output_tokens,
            concurrency=self.wish.concurrency,
        )
        return performance.predict(
            self.model, scheme, hardware.accelerator, budget, load,
            num_shard=num_shard, interconnect=hardware.interconnect, constants=self.supply.speed,
            kv_bits=8 * self._kv_bytes,
        )  # fmt: skip

    def option(self, offer: Offer, evaluation: Evaluation) -> Option | None:
        """The offer as a choice, if its price is known and within the budget."""
        price = self.price(offer, evaluation)
        if price is None:
            return None
        total, bill, storage = price
        if self.wish.budget_usd_per_hour is not None and total > self.wish.budget_usd_per_hour:
            return None
        speed = evaluation.performance
        key = rank.sort_key(
            self.wish.prefer,
            lost_bits=evaluation.scheme.lost_bits,
            usd_per_hour=total,
            output_tokens_per_s=speed.output_tokens_per_s if speed else 0.0,
            names=(
                offer.instance_type.name, f"{evaluation.num_shard:03d}", evaluation.scheme.order_name, offer.region,
                offer.market,
            ),
        )  # fmt: skip
        return Option(offer=offer, evaluation=evaluation, cost=bill, storage=storage, key=key)

    def price(self, offer: Offer, evaluation: Evaluation) -> tuple[Decimal, Cost, Storage] | None:
        """Everything billed by the hour; None where it cannot be had for a known price."""
        if _unpriced(offer) is not None:
            return None
        scheme = evaluation.scheme
        key = (offer.instance_type.name, offer.region, offer.market, scheme.name, scheme.hub_id)
        known = self._billed.get(key)
        if known is None:
            weights = memory.total_weights_bytes(self.model, scheme)
            storage = cost.storage_for(
                offer,
                weights_bytes=weights,
                image_bytes=self.release.image_bytes,
                least_gib=self.wish.disk_gib or 0,
            )
            bill = cost.hourly_cost(
                offer,
                storage,
                self.supply.extra_prices.get(offer.region),
                public_ipv4=self.wish.public_ipv4,
            )
            known = self._billed[key] = (bill.usd_per_hour, bill, storage)
        return known

    def _rejected(self, offers: list[Offer], evaluation: Evaluation) -> Rejection:
        """A configuration that cannot work, whatever the offer; the price of the cheapest is looked at as well."""
        failures = evaluation.failures + tuple(self._price_failures(offers[0], evaluation))
        return self._rejection(offers, evaluation, failures)

    def _too_dear(self, offers: list[Offer], evaluation: Evaluation) -> Iterator[Rejection]:
        """Offers of a working configuration that only their price speaks against, one rejection a code."""
        by_code: dict[str, list[Offer]] = {}
        for offer in offers:
            by_code.setdefault(_unpriced(offer) or "over_budget", []).append(offer)
        for group in by_code.values():
            yield self._rejection(group, evaluation, tuple(self._price_failures(group[0], evaluation)))

    def _price_failures(self, offer: Offer, evaluation: Evaluation) -> Iterator[checks.Failure]:
        price = self.price(offer, evaluation)
        budget = self.wish.budget_usd_per_hour
        unpriced = _unpriced(offer)
        if unpriced is not None:
            yield checks.Failure(code=unpriced, message=_UNPRICED[unpriced].format(offer=offer))
        elif price is not None and budget is not None and price[0] > budget:
            yield checks.Failure(
                code="over_budget",
                message=f"costs ${price[0]:.3f}/h in all, over the budget of ${budget}/h",
                numbers={"total_usd_per_hour": price[0], "budget_usd_per_hour": budget},
            )

    def _rejection(
        self, offers: list[Offer], evaluation: Evaluation, failures: tuple[checks.Failure, ...]
    ) -> Rejection:
        first, cheapest = failures[0], offers[0]
        return Rejection(
            instance_type=cheapest.instance_type.name, num_shard=evaluation.num_shard,
            quantize=evaluation.scheme.name, code=first.code, message=first.message, numbers=first.numbers,
            codes=tuple(failure.code for failure in failures), region=cheapest.region, market=cheapest.market,
            usd_per_hour=cheapest.usd_per_hour, offers=len(offers),
        )  # fmt: skip

    def candidate(self, option: Option) -> Candidate:
        """The option in full, with the finished command line of the engine."""
        evaluation, accelerator = option.evaluation, option.offer.instance_type.accelerator
        if evaluation.performance is None:
            raise AssertionError("an option has been evaluated")
        own = quantization.served_dtype(self.wish.model, evaluation.scheme, self.model_class, accelerator)
        dtype = self.pins.get("--dtype", own)
        rule = self.release.architecture_rule(accelerator.compute_capability)
        return Candidate(
            offer=option.offer, num_shard=evaluation.num_shard, quantize=evaluation.scheme.name, dtype=dtype,
            lost_bits=evaluation.scheme.lost_bits, cost=option.cost, memory=self._compared(option),
            performance=performance.with_prices(evaluation.performance, option.cost.usd_per_hour, self.wish),
            engine=engine.build_command(
                self.release, self._settings(evaluation, dtype), self.pins,
                env={**_engine_env(self.model, self.model_class, self.release, rule), **dict(self.wish.env)},
                port=self.wish.port, gated=self.model.gated,
            ),
            storage=option.storage,
        )  # fmt: skip

    def _compared(self, option: Option) -> MemoryBudget:
        """The budget beside what the launcher would have chosen, where the release chooses by itself."""
        budget, chip = option.evaluation.memory, option.offer.instance_type.accelerator
        if not self.release.chunked_prefill:
            return budget
        chosen = memory_launcher.default_prefill_tokens(
            self.model, chip.name, option.evaluation.num_shard, budget.total_bytes
        )
        return replace(budget, launcher_prefill_tokens=chosen)

    def _settings(self, evaluation: Evaluation, dtype: str) -> EngineSettings:
        scheme, rule = evaluation.scheme, evaluation.scheme.rule
        takes_dtype = rule is None or rule.takes_dtype
        own = scheme.hub_id == self.model.hub_id
        return EngineSettings(
            model_id=self.model.local_path or scheme.hub_id if own else scheme.hub_id,
            revision=self.model.revision if own and not self.model.local_path else None,
            num_shard=evaluation.num_shard,
            quantize=rule.method if rule else None,
            dtype=dtype if takes_dtype else None,
            max_input_tokens=evaluation.limits.max_input_tokens,
            max_total_tokens=evaluation.limits.max_total_tokens,
            max_batch_prefill_tokens=evaluation.prefill_tokens,
            max_batch_total_tokens=evaluation.memory.kv_capacity_tokens,
            max_concurrent_requests=engine.concurrent_requests(self.wish.concurrency),
            cuda_graphs=engine.graph_batches(self.wish.concurrency, supported=rule is None or rule.cuda_graphs),
        )


def _engine_env(
    model: ModelSpec, model_class: ModelClass | None, release: EngineRelease, rule: ArchitectureRule | None
) -> Mapping[str, str]:
    """The attention kernels the plan counted with, said out loud where the release can be told."""
    if model_class is None or rule is None:
        return {}
    attention = engine.attention_for(model, model_class, release, rule)
    told = {"ATTENTION": attention} if release.default_attention and attention != "padded" else {}
    return {**told, **rule.env}


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


def _price_order(offer: Offer) -> tuple[bool, Decimal, str, str]:
    price = offer.usd_per_hour
    return (price is None, price if price is not None else Decimal(0), offer.region, offer.market)
