"""The smallest changes that make a request feasible: all minimal sets of relaxations, with exact amounts.

Each part of a request is an axis. All configurations that work under the most lenient request are evaluated once, at
the given and at the lowest context and concurrency; the axes on which a configuration deviates from the request form a
set. The minimal sets by inclusion are the answer: this needs no subset search and misses none.

Amounts are determined one after the other: the largest context and load, then the lowest budget, then the tightest
speed limits at the requested confidence. They are found by bisection, because less context never needs more memory, and
less load never makes a request slower. Load has steps: requests in flight, or hundredths of a request per second.

More replicas are considered if one has room but is too slow: the fewest, on fully used machines, that carry the whole
load with each set of limits dropped. With more machines, the load is never reduced.

Fewer concurrent requests are faster each but slower in total. With a throughput limit, the lowest concurrency is
therefore not enough: each configuration is also evaluated with as many requests as its memory, and each latency limit,
allows. Every set found was verified; none is missed as long as more requests never get fewer tokens in total.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.planner.hosting import scales_to
from tgi_deploy.planner.replicas import MOST_REPLICAS, counts_of, most_machines, slots
from tgi_deploy.planner.search import Search
from tgi_deploy.planner.service_level import certain, outcomes
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.engine import AUTO
from tgi_deploy.values.quality import is_below
from tgi_deploy.values.request import Replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.planner.evaluation import Evaluation
    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.engine import Scheme
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.request import Metric, Request
    from tgi_deploy.values.supply import Offer, Supply

Axes = frozenset[str]

AXES: Final = (
    "budget", "quality", "min_bits", "quantize", "context", "concurrency", "rps", "replicas", "max_machines", "region",
    "market", "num_shard", "instance", "allow_turing", "ttft", "tpot", "throughput",
)  # fmt: skip
_CENT: Final = Decimal("0.01")
_MILLISECOND: Final = Decimal(1)
_TENTH: Final = Decimal("0.1")
_NOTHING: Final[Axes] = frozenset()
_SPEED: Final[Mapping[Metric, str]] = {"ttft_ms": "ttft", "tpot_ms": "tpot", "output_tokens_per_s": "throughput"}
_STEPS_PER_S: Final = 100
_LATENCY: Final = (frozenset({"ttft", "tpot"}), frozenset({"ttft"}), frozenset({"tpot"}), _NOTHING)
_THROUGHPUT: Final[Axes] = frozenset({"throughput"})


class Relaxation(Frozen, frozen=True, kw_only=True):
    """A minimal set of changes. `request` includes them, exactly; `candidate` meets it."""

    axes: tuple[str, ...]
    request: Request
    candidate: Candidate


class _Variant(Frozen, frozen=True, kw_only=True):
    """A configuration that works under the most lenient request, with its `offers` and the axes each changes."""

    hardware: InstanceType
    num_shard: int
    scheme: Scheme
    replicas: int
    axes: Axes
    offers: tuple[tuple[Offer, Axes], ...]


def relaxations(request: Request, wider: Supply, engine: Engine) -> tuple[Relaxation, ...]:
    """Return all minimal sets, the fewest changes first, then the cheapest. `wider`: all regions and markets.

    Empty if nothing helps, or if `request` is feasible unchanged.
    """
    relaxer = _Relaxer(request, wider, engine)
    found = [relaxer.settled(axes) for axes in minimal(relaxer.needed()) if axes]
    return tuple(sorted(found, key=_order))


def minimal(sets: set[Axes]) -> tuple[Axes, ...]:
    """Return the sets that contain no other set."""
    kept: list[Axes] = []
    for axes in sorted(sets, key=lambda axes: (len(axes), in_order(axes))):
        if not any(smaller <= axes for smaller in kept):
            kept.append(axes)
    return tuple(kept)


def in_order(axes: Axes) -> tuple[str, ...]:
    return tuple(axis for axis in AXES if axis in axes)


def _order(found: Relaxation) -> tuple[int, Decimal, tuple[int, ...]]:
    return len(found.axes), found.candidate.cost.usd_per_hour, tuple(AXES.index(axis) for axis in found.axes)


class _Relaxer:
    """Searches the relaxations of one request."""

    def __init__(self, request: Request, supply: Supply, engine: Engine) -> None:
        self.request = request
        self.lenient = replaced(
            request, prefer="cost", budget_usd_per_hour=None, quantize=AUTO, num_shard=None,
            instance_type=None, allow_turing=True, ttft_ms=None, tpot_ms=None, min_tokens_per_s=None,
            quality=AUTO if request.quality == AUTO else "any", min_bits=None, max_machines=None,
        )  # fmt: skip
        self.load_axis = "concurrency" if request.arrivals_per_s is None else "rps"
        self.most_load = _steps(request)
        self.supply = supply
        self.engine = engine
        self._searches: dict[tuple[int, int], Search] = {}
        self.least_context = self._least_context()
        self.variants = tuple(self._variants())

    def _least_context(self) -> int:
        """Return the shortest context that holds a planned request and is consistent with pinned flags."""
        low, high = self.request.input_tokens + self.request.output_tokens, self.request.context_tokens
        while low < high:
            middle = (low + high) // 2
            try:
                self._search(middle, 1)
            except InputError:
                low = middle + 1
            else:
                high = middle
        return low

    def _search(self, context: int, load: int) -> Search:
        known = self._searches.get((context, load))
        if known is None:
            request = replaced(self._loaded(load), context_tokens=context)
            known = self._searches[context, load] = Search(
                request, self.supply, self.engine, scales_to=scales_to(self.request, self.supply)
            )
        return known

    def _loaded(self, load: int) -> Request:
        if load == self.most_load:
            return self.lenient
        if self.request.arrivals_per_s is None:
            return replaced(self.lenient, concurrency=load)
        return replaced(self.lenient, arrivals_per_s=load / _STEPS_PER_S)

    def _evaluation(self, variant: _Variant, context: int, load: int) -> Evaluation:
        search = self._search(context, load)
        return search.evaluator.evaluation(variant.hardware, variant.num_shard, variant.scheme, variant.replicas)

    def _variants(self) -> Iterator[_Variant]:
        evaluator = self._search(self.least_context, 1).evaluator
        for hardware, offers in self._hardware():
            for num_shard in self._shard_counts(hardware):
                for scheme in evaluator.schemes:
                    if not evaluator.evaluation(hardware, num_shard, scheme).fit.problems:
                        axes = frozenset(self._left(hardware, num_shard, scheme))
                        variant = _Variant(
                            hardware=hardware, num_shard=num_shard, scheme=scheme, replicas=1, axes=axes, offers=offers
                        )  # fmt: skip
                        yield from self._replicated(variant)

    def _replicated(self, variant: _Variant) -> Iterator[_Variant]:
        """Yield the variant with every requested number of replicas, and with the fewest for each set of limits."""
        each = slots(variant.hardware, variant.num_shard)
        asked = counts_of(self.request, self.supply.most_replicas, each)
        any_number = replaced(self.request, replicas=Replicas(least=1, most=MOST_REPLICAS), max_machines=None)
        others = [count for count in counts_of(any_number, 1, each) if count not in asked]
        contexts = dict.fromkeys((self.least_context, self.request.context_tokens))
        enough = {count for context in contexts for count in self._fewest(variant, context, asked[-1], others)}
        yield from (self._with_replicas(variant, count) for count in (*asked, *sorted(enough)))

    def _fewest(self, variant: _Variant, context: int, asked: int, others: Sequence[int]) -> Iterator[int]:
        """Yield the other numbers of replicas that meet, at this context, limits that no smaller one met."""
        least = self._missed(variant, context, asked)
        if not others or self._missed(variant, context, others[-1]) == least:  # more of them are never slower
            return
        known = [] if least is None else [least]
        for count in others:
            missed = self._missed(variant, context, count)
            if missed is not None and not any(fewer <= missed for fewer in known):
                known.append(missed)
                yield count

    def _with_replicas(self, variant: _Variant, count: int) -> _Variant:
        request = self.request
        needed = -(-count // slots(variant.hardware, variant.num_shard))
        most = request.replicas.most or max(request.replicas.least, self.supply.most_replicas)
        room = most_machines(request)
        axes = frozenset(
            axis for axis, left in (
                ("replicas", not request.replicas.least <= count <= most),
                ("max_machines", room is not None and needed > room),
            ) if left
        )  # fmt: skip
        return replaced(variant, replicas=count, axes=variant.axes | axes)

    def _missed(self, variant: _Variant, context: int, count: int) -> Axes | None:
        """Return the limits that this many replicas miss under the whole load; None if they do not work."""
        evaluation = self._evaluation(replaced(variant, replicas=count), context, self.most_load)
        return None if evaluation.problems else frozenset(self._slow(evaluation))

    def _hardware(self) -> Iterator[tuple[InstanceType, tuple[tuple[Offer, Axes], ...]]]:
        by_type: dict[str, list[Offer]] = {}
        for offer in self.supply.offers:
            by_type.setdefault(offer.instance_type.name, []).append(offer)
        for _, offers in sorted(by_type.items()):
            yield offers[0].instance_type, tuple(self._worth_a_look(offers))

    def _worth_a_look(self, offers: Sequence[Offer]) -> Iterator[tuple[Offer, Axes]]:
        """Yield the offers worth considering: of those that change the same axes, all that no other undercuts.

        Prices have parts (instance, volume, address); to undercut, an offer must cost no more in any of them.
        """
        kept: dict[Axes, list[tuple[Decimal, ...]]] = {}
        for offer in sorted(offers, key=lambda offer: (*self._prices(offer), offer.region, offer.market)):
            axes, prices = frozenset(self._elsewhere(offer)), self._prices(offer)
            cheaper = kept.setdefault(axes, [])
            if not any(all(mine >= theirs for mine, theirs in zip(prices, other, strict=True)) for other in cheaper):
                cheaper.append(prices)
                yield offer, axes

    def _prices(self, offer: Offer) -> tuple[Decimal, ...]:
        extras = self.supply.extra_prices.get(offer.region)
        extra = (extras.volume_usd_per_gib_month, extras.public_ipv4_usd_per_hour) if extras else (Decimal(0),) * 2
        return (Decimal("Infinity") if offer.usd_per_hour is None else offer.usd_per_hour, *extra)

    def _elsewhere(self, offer: Offer) -> Iterator[str]:
        if self.request.regions and offer.region not in self.request.regions:
            yield "region"
        if offer.market not in self.request.markets:
            yield "market"

    def _shard_counts(self, hardware: InstanceType) -> tuple[int, ...]:
        model, release = self.request.model.model, self.supply.release
        usual = self.engine.shard_counts(model, release, hardware.accelerator_count)
        pinned = self.request.num_shard
        return usual if pinned is None or pinned in usual else (*usual, pinned)

    def _left(self, hardware: InstanceType, num_shard: int, scheme: Scheme) -> Iterator[str]:
        """Yield the axes on which a configuration deviates from the request on any offer."""
        request, quality = self.request, self.supply.quality.of(scheme.name, scheme.lost_bits)
        if request.quality != AUTO and is_below(quality.grade, request.quality):
            yield "quality"
        if request.min_bits is not None and int(scheme.bits) < request.min_bits:
            yield "min_bits"
        if request.quantize not in {AUTO, scheme.name}:
            yield "quantize"
        if request.num_shard not in {None, num_shard}:
            yield "num_shard"
        if request.instance_type not in {None, hardware.name}:
            yield "instance"
        if not request.allow_turing and self._overridden(hardware):
            yield "allow_turing"

    def _overridden(self, hardware: InstanceType) -> bool:
        rule = self.supply.release.architecture_rule(hardware.accelerator.compute_capability)
        return rule is not None and rule.verdict == "override"

    def needed(self) -> set[Axes]:
        """Return the sets of axes of all working configurations."""
        found: set[Axes] = set()
        slow = self.load_axis == "rps" or any(not limit.default for limit in self.request.limits)
        undone = self.variants
        for level in self._levels():
            if self.load_axis in level:
                undone = tuple(variant for variant in undone if "replicas" not in variant.axes)
            undone = tuple(
                variant for variant in undone
                if not self._collect(variant, level, found) or slow or level
            )  # fmt: skip
        return found

    def _levels(self) -> Iterator[Axes]:
        """Yield what to lower: nothing, then context and load, separately and together, if there is room."""
        context = frozenset({"context"} if self.least_context < self.request.context_tokens else ())
        load = frozenset({self.load_axis} if self.most_load > 1 else ())
        yield from dict.fromkeys((_NOTHING, context, load, context | load))

    def _collect(self, variant: _Variant, level: Axes, found: set[Axes]) -> bool:
        """Add the configuration's sets at this level to `found`; return whether it works there."""
        context, lowest = self._lowest(level)
        configurations = [
            axes | level
            for concurrency in self._worth_trying(variant, context, lowest)
            for axes, _ in self._configurations(variant, context, concurrency)
        ]
        found.update(configurations)
        return bool(configurations)

    def _worth_trying(self, variant: _Variant, context: int, lowest: int) -> Iterator[int]:
        """Yield `lowest` and, if it may be too low, the most requests that memory and each latency limit allow."""
        found = [lowest]
        if self.request.min_tokens_per_s is not None and lowest < self.most_load:
            found += [self._most_requests(variant, context, axes) for axes in _LATENCY]
        yield from dict.fromkeys(found)

    def _most_requests(self, variant: _Variant, context: int, axes: Axes) -> int:
        """Return the largest concurrency below the requested one, at least 1, that works except for throughput.

        Of the axes on which the configuration may deviate, only latency counts here.
        """
        given_up = axes | _THROUGHPUT

        def works(variant: _Variant, concurrency: int) -> bool:
            evaluation = self._evaluation(variant, context, concurrency)
            return not evaluation.problems and given_up.issuperset(self._slow(evaluation))

        return _largest((variant,), 1, self.most_load, works)

    def _lowest(self, axes: Axes) -> tuple[int, int]:
        """Return context and concurrency, with those in `axes` at their minimum."""
        context = self.least_context if "context" in axes else self.request.context_tokens
        return context, 1 if self.load_axis in axes else self.most_load

    def _configurations(
        self, variant: _Variant, context: int, concurrency: int
    ) -> Iterator[tuple[Axes, Configuration]]:
        """Yield the configuration on each offer, with its deviating axes other than context and concurrency."""
        search = self._search(context, concurrency)
        for evaluation in self._evaluations(variant, context, concurrency):
            here = variant.axes | frozenset(self._slow(evaluation))
            for offer, elsewhere in variant.offers:
                configuration = search.configuration(offer, evaluation)
                if configuration is not None:
                    yield here | elsewhere | self._over_budget(configuration), configuration

    def _evaluations(self, variant: _Variant, context: int, load: int) -> Iterator[Evaluation]:
        """Yield the working evaluations; with a speed limit, one per prefill batch, since each meets other limits."""
        if all(limit.default for limit in self.request.limits):
            found = iter((self._evaluation(variant, context, load),))
        else:
            evaluator = self._search(context, load).evaluator
            found = evaluator.every_prefill(variant.hardware, variant.num_shard, variant.scheme, variant.replicas)
        yield from (evaluation for evaluation in found if not evaluation.problems)

    def _slow(self, evaluation: Evaluation) -> Iterator[str]:
        if evaluation.performance is not None:
            for item in outcomes(evaluation.performance, self.request):
                if not item.met and not item.limit.default:
                    yield _SPEED[item.limit.metric]

    def _over_budget(self, configuration: Configuration) -> Axes:
        budget = self.request.budget_usd_per_hour
        return frozenset({"budget"}) if budget is not None and configuration.most_usd_per_hour > budget else _NOTHING

    def settled(self, axes: Axes) -> Relaxation:
        """Return a sufficient set with its exact amounts."""
        context, concurrency = self._lowest(axes)
        variants = sorted((variant for variant in self.variants if variant.axes <= axes), key=self._room, reverse=True)
        if "context" in axes:
            context = _largest(variants, context, self.request.context_tokens,
                               lambda variant, value: self._works_for_some(variant, value, axes))  # fmt: skip
        if self.load_axis in axes:
            concurrency = self._settled_concurrency(variants, context, axes)
        configurations = (pair for variant in variants for pair in self._configurations(variant, context, concurrency))
        configuration = min(
            (configuration for needed, configuration in configurations if needed <= axes),
            key=lambda item: _change(item, axes, self.request.confidence),
        )
        candidate = self._search(context, concurrency).candidate(configuration)
        request = self._changed(axes, replaced(self._at(concurrency), context_tokens=context), candidate)
        return Relaxation(axes=in_order(axes), request=request, candidate=candidate)

    def _settled_concurrency(self, variants: Sequence[_Variant], context: int, axes: Axes) -> int:
        if self.request.min_tokens_per_s is None or "throughput" in axes:
            return _largest(variants, 1, self.most_load,
                            lambda variant, value: self._works(variant, context, value, axes))  # fmt: skip
        working = (variant for variant in variants if self._works_for_some(variant, context, axes))
        return max(self._most_requests(variant, context, axes) for variant in working)

    def _works_for_some(self, variant: _Variant, context: int, axes: Axes) -> bool:
        """Return whether the configuration works at this context, at any concurrency if that is relaxed."""
        if self.load_axis not in axes:
            return self._works(variant, context, self.most_load, axes)
        if self._works(variant, context, 1, axes):
            return True
        if self.request.min_tokens_per_s is None or "throughput" in axes:
            return False
        return self._works(variant, context, self._most_requests(variant, context, axes), axes)

    def _room(self, variant: _Variant) -> int:
        return self._evaluation(variant, self.least_context, 1).memory.kv_capacity_tokens

    def _at(self, load: int) -> Request:
        """Return the request with this load."""
        given = self._loaded(load)
        return replaced(self.request, concurrency=given.concurrency, arrivals_per_s=given.arrivals_per_s)

    def _works(self, variant: _Variant, context: int, concurrency: int, axes: Axes) -> bool:
        return any(needed <= axes for needed, _ in self._configurations(variant, context, concurrency))

    def _changed(self, axes: Axes, request: Request, candidate: Candidate) -> Request:
        """Return the request with each of `axes` set to what the candidate needs, rounded to readable values."""
        offer, speed, sure = candidate.offer, candidate.performance, request.confidence
        values: dict[str, dict[str, Any]] = {
            "budget": {"budget_usd_per_hour": _cents(candidate.most_usd_per_hour or candidate.cost.usd_per_hour)},
            "quantize": {"quantize": candidate.quantize},
            "region": {"regions": (offer.region,)},
            "market": {"markets": (offer.market,)},
            "num_shard": {"num_shard": candidate.num_shard},
            "instance": {"instance_type": offer.instance_type.name},
            "allow_turing": {"allow_turing": True},
            "quality": {"quality": "any" if is_below(candidate.quality, "near-lossless") else "near-lossless"},
            "min_bits": {"min_bits": 16 - int(candidate.lost_bits)},
            "replicas": {"replicas": Replicas(least=candidate.replicas, most=candidate.replicas)},
            "max_machines": {"max_machines": candidate.machines},
            "ttft": {"ttft_ms": _up(certain(speed, "ttft_ms", sure), _MILLISECOND)},
            "tpot": {"tpot_ms": _up(certain(speed, "tpot_ms", sure), _TENTH)},
            "throughput": {"min_tokens_per_s": _down(certain(speed, "output_tokens_per_s", sure), _TENTH)},
        }
        for axis, change in values.items():
            if axis in axes:
                request = replaced(request, **change)
        return request


def _steps(request: Request) -> int:
    """Return the load in bisection steps."""
    if request.arrivals_per_s is None:
        return request.concurrency
    return max(1, int(request.arrivals_per_s * _STEPS_PER_S))


def _largest(variants: Sequence[_Variant], low: int, beyond: int, works: Callable[[_Variant, int], bool]) -> int:
    """Return the largest value below `beyond` that works for any configuration; `low` works for one."""
    for variant in variants:
        if low + 1 < beyond and works(variant, low + 1):
            low = _last_true(low + 1, beyond, variant, works)
    return low


def _last_true(low: int, beyond: int, variant: _Variant, works: Callable[[_Variant, int], bool]) -> int:
    while beyond - low > 1:
        middle = (low + beyond) // 2
        low, beyond = (middle, beyond) if works(variant, middle) else (low, middle)
    return low


def _change(configuration: Configuration, axes: Axes, sure: float) -> tuple[object, ...]:
    """Return the sort key: how much a configuration changes on the relaxed axes, then price, then names."""
    speed = configuration.evaluation.performance
    return (
        _cents(configuration.most_usd_per_hour) if "budget" in axes else 0,
        _up(certain(speed, "ttft_ms", sure), _MILLISECOND) if speed and "ttft" in axes else 0,
        _up(certain(speed, "tpot_ms", sure), _TENTH) if speed and "tpot" in axes else 0,
        -_down(certain(speed, "output_tokens_per_s", sure), _TENTH) if speed and "throughput" in axes else 0,
        *configuration.key,
    )


def _cents(usd: Decimal) -> Decimal:
    return usd.quantize(_CENT, ROUND_CEILING)


def _up(milliseconds: float, step: Decimal) -> float:
    """Round up to a step, so that the rounded limit still admits the exact figure."""
    return float((Decimal(milliseconds) / step).to_integral_value(ROUND_CEILING) * step)


def _down(tokens_per_s: float, step: Decimal) -> float:
    """Round down to a step, so that the rounded limit still admits the exact figure."""
    return float((Decimal(tokens_per_s) / step).to_integral_value(ROUND_FLOOR) * step)
