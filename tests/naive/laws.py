"""Laws of choosing: how the answers to two requests must relate, whatever the ranking rule. Each law yields its
violations as sentences.
"""

from __future__ import annotations

import operator
from collections import Counter
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Final

from builders.requests import drawn, shared_catalog, supply_of
from naive import hosting
from naive import search as naive

from tgi_deploy.planner.evaluation import Evaluation, Evaluator
from tgi_deploy.planner.plan import make_plan
from tgi_deploy.planner.search import Search
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Plan
from tgi_deploy.values.request import Replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.planner.speed_load import Traffic
    from tgi_deploy.values.engine import Fit, Scheme
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.plan import Candidate, NoFeasiblePlan, Performance, Rejection
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply

_BUDGETS: Final = tuple(map(Decimal, ("0.9", "2", "5", "8", "25", "70")))
_LOADS: Final = (1, 2, 4, 8)
_CONFIDENCES: Final = (0.3, 0.5, 0.8, 0.95)
# For more requests the engine reserves more memory for sampling and graphs, which leaves less for the KV cache.
_ROOM_KEPT: Final = 0.95
_TYPES: Final = 8
_PRICE_CODES: Final = frozenset({"over_budget", "price_unknown", "capacity_block_only"})
_TOO_LONG: Final = frozenset({"answer_too_long"})
# Found on the machine, whatever runs on it.
_OF_MACHINES: Final = frozenset({"too_many_machines", "nvme_too_small", "volume_too_large", "start_too_long"})
_CLASSES: Final = ("exact", "near-lossless", "4-bit")


class SharedWork:
    """Caches fits and speeds for requests that differ only in load, budget, limits and preference."""

    def __init__(self, supply: Supply) -> None:
        self.supply, self.engine = supply, shared_catalog().engine
        self.fits: dict[tuple[object, ...], Fit] = {}
        self.speeds: dict[tuple[object, ...], Performance] = {}
        self._judged: _Sharing | None = None

    def search(self, request: Request) -> Search:
        """Evaluations do not depend on the budget, so all searches share one evaluator."""
        known = self._judged
        if known is None or known.request != replaced(request, budget_usd_per_hour=None):
            known = self._judged = _Sharing(replaced(request, budget_usd_per_hour=None), self.supply, self.engine)
            known.shared = self
        return Search(request, self.supply, self.engine, known)

    def best(self, request: Request) -> Configuration | None:
        ranked = self.search(request).run().configurations
        return ranked[0] if ranked else None


class _Sharing(Evaluator):
    shared: SharedWork

    def fit(
        self, hardware: InstanceType, num_shard: int, scheme: Scheme, concurrency: int,
        prefill_tokens: int | None = None,
    ) -> Fit:  # fmt: skip
        key = (hardware.name, num_shard, scheme.name, scheme.hub_id, concurrency, prefill_tokens)
        if key not in self.shared.fits:
            self.shared.fits[key] = super().fit(hardware, num_shard, scheme, concurrency, prefill_tokens)
        return self.shared.fits[key]

    def speed(self, fit: Fit, share: Traffic, kv_tokens: int | None = None) -> Performance:
        key = (id(fit), share, kv_tokens)
        if key not in self.shared.speeds:
            self.shared.speeds[key] = super().speed(fit, share, kv_tokens)
        return self.shared.speeds[key]


def more_budget_is_never_worse(request: Request, work: SharedWork) -> Iterator[str]:
    before = None
    for budget in (*_BUDGETS, None):
        after = work.best(replaced(request, budget_usd_per_hour=budget))
        if before is not None and (after is None or after.key > before.key):
            yield f"for ${budget}/h {_text(after)} instead of {_text(before)}"
        before = after


def more_load_is_never_cheaper_or_slower(request: Request, work: SharedWork) -> Iterator[str]:
    """Except for throughput limits, which more users meet more easily. If the earlier choice now misses the goals by
    more, or an explicit limit, the new one may have fewer tokens per second; if the goals are missed anyway, it may be
    cheaper. If not even a single request is answered in time, an equally near one may be cheaper, too.
    """
    request = replaced(_of_one_class(request), min_tokens_per_s=None, prefer="cost")
    before = None
    for number, times in enumerate(_LOADS):
        loaded = _loaded(request, times)
        after = work.best(loaded)
        if number and before is None and after is not None:
            yield f"{times} times the load has a plan, {_text(after)}, and {_LOADS[number - 1]} times has none"
        if before is not None and after is not None:
            overtaken = _overtakes(after, before, loaded, work)
            if _is_cheaper(after, before) and not (overtaken and after.evaluation.shortfall.missed):
                yield f"cheaper: {times} times the load takes {_text(after)} instead of {_text(before)}"
            if _rate(after) < _ROOM_KEPT * _rate(before) and not overtaken:
                yield f"slower: {times} times the load takes {_text(after)} instead of {_text(before)}"
        before = after


def a_looser_limit_never_costs_more(request: Request, work: SharedWork) -> Iterator[str]:
    tight = work.best(request)
    if tight is None:
        return
    for name in ("ttft_ms", "tpot_ms", "min_tokens_per_s"):
        limit = getattr(request, name)
        if limit is not None:
            looser = limit / 1.5 if name == "min_tokens_per_s" else limit * 1.5
            loose = work.best(replaced(request, **{name: looser}))
            if loose is None or loose.key[:3] > tight.key[:3]:
                yield f"{name} {looser:g}: {_text(loose)} instead of {_text(tight)}"


def more_confidence_is_never_cheaper(request: Request, work: SharedWork) -> Iterator[str]:
    """If the goals are missed, the replacement for a choice farther from them may be cheaper."""
    request = replaced(_of_one_class(request), prefer="cost")
    before = None
    for number, confidence in enumerate(_CONFIDENCES):
        safer = replaced(request, confidence=confidence)
        after = work.best(safer)
        if number and before is None and after is not None:
            yield f"{confidence} has a plan, {_text(after)}, where less has none"
        excused = before and after and after.evaluation.shortfall.missed and _overtakes(after, before, safer, work)
        if before and after and _is_cheaper(after, before) and not excused:
            yield f"{confidence} takes {_text(after)} instead of {_text(before)}"
        before = after


def the_choice_is_undominated(request: Request, work: SharedWork) -> Iterator[str]:
    made = make_plan(request, work.supply, work.engine)
    if not isinstance(made, Plan):
        return
    rows = [
        (
            point.total_usd_per_hour, -point.output_tokens_per_s, point.ttft_ms, point.tpot_ms,
            _CLASSES.index(point.quality_class),
        )
        for point in made.frontier
    ]  # fmt: skip
    chosen = [row for row, point in zip(rows, made.frontier, strict=True) if point.chosen]
    if len(chosen) != 1 or sum(point.knee for point in made.frontier) > 1:
        yield f"{len(chosen)} choices in the table, or more than one knee"
    for mine in rows:
        for other in rows:
            if other != mine and all(map(operator.le, other, mine)):
                yield f"{mine} is dominated by {other}{' and chosen' if mine in chosen else ''}"


def brute_force_finds_the_same(request: Request, work: SharedWork) -> Iterator[str]:
    supply = work.supply
    judged = tuple(naive.verdicts(request, supply))
    found = tuple(naive.choices(request, supply, judged))
    within = naive.reach(request, supply, judged, request.budget_usd_per_hour)
    unspoken = request.quality == "auto" and request.min_bits is None
    expected = naive.best(found, request.prefer, request.budget_usd_per_hour, within, unspoken=unspoken)
    made = make_plan(request, supply, work.engine)
    chosen = made.chosen if isinstance(made, Plan) else None
    if _identity(chosen) != (expected.identity if expected else None):
        yield f"{chosen and _identity(chosen)} where brute force finds {expected}"
    if request.replicas.most == 1:  # of several, the planner looks at few numbers and brute force at each
        yield from _refusals_differ(made, judged, found, request.budget_usd_per_hour)


def _refusals_differ(
    made: Plan | NoFeasiblePlan,
    judged: tuple[naive.Verdict, ...],
    found: tuple[naive.Choice, ...],
    budget: Decimal | None,
) -> Iterator[str]:
    """Everything that works and is affordable is accepted, nothing else is, and the reasons are the same."""
    refused = Counter((*_place(item), codes) for item in made.rejections if (codes := _technical(item.codes)))
    expected = Counter((v.instance_type, v.num_shard, v.stored.name, _technical(v.codes)) for v in judged if v.codes)
    if refused != expected:
        yield f"refused {refused - expected}, and brute force {expected - refused}"
    dear: Counter[tuple[object, ...]] = Counter()
    for item in made.rejections:
        if _PRICE_CODES.issuperset(item.codes):
            dear[*_place(item), item.code] += item.offers
    too_dear = Counter(
        (c.instance_type, c.num_shard, c.quantize, code) for c in found if (code := _price_code(c, budget))
    )
    if dear != too_dear:
        yield f"too dear {dear - too_dear}, and by brute force {too_dear - dear}"
    affordable = sum(not _price_code(choice, budget) for choice in found)
    if made.considered != affordable + sum(item.offers for item in made.rejections):
        yield f"{made.considered} considered, {affordable} of them affordable"


def _technical(codes: Iterable[str]) -> frozenset[str]:
    """Brute force computes no speed for configurations that cannot start."""
    why, slow = frozenset(codes) - _PRICE_CODES, naive.LATE | _TOO_LONG
    return why if why <= slow | _OF_MACHINES else why - slow


def _place(item: Rejection) -> tuple[str, int, str]:
    return item.instance_type, item.num_shard, item.quantize


def _price_code(choice: naive.Choice, budget: Decimal | None) -> str | None:
    if choice.most is None:
        return "capacity_block_only" if choice.needs_block else "price_unknown"
    return "over_budget" if budget is not None and choice.most > budget else None


LAWS: Final[Mapping[str, Callable[[Request, SharedWork], Iterator[str]]]] = {
    "more budget is never worse": more_budget_is_never_worse,
    "more load is never cheaper or slower": more_load_is_never_cheaper_or_slower,
    "a looser limit never costs more": a_looser_limit_never_costs_more,
    "more confidence is never cheaper": more_confidence_is_never_cheaper,
    "the choice is undominated in its table": the_choice_is_undominated,
}


def broken(seed: int, laws: tuple[str, ...] = tuple(LAWS)) -> Iterator[tuple[str, str]]:
    """Yield violations of the laws, each with the law's name. Laws hold for any supply, so each request has a few
    instance types to choose from.
    """
    request = drawn(seed)
    work = SharedWork(_some_types(seed, supply_of(request)))
    for law in laws:
        for text in LAWS[law](request, work):
            yield law, text


def regret(seed: int, service: str = "") -> Iterator[tuple[str, str]]:
    """Yield differences from brute force, over all on-demand offers, or those of a service. The cost of spot
    interruptions is not implemented a second time. Every second request allows only one replica; then the rejection
    reasons of each configuration are compared, too.
    """
    request = drawn(seed, service)
    if seed % 2:
        request = replaced(request, replicas=Replicas(least=1, most=1))
    if "spot" in request.markets:
        request = replaced(request, markets=("on-demand",))
    supply = supply_of(request, service)
    if service:
        for text in the_machines_are_the_services(service, request, supply):
            yield "the machines are the service's", text
    for text in brute_force_finds_the_same(request, SharedWork(supply)):
        yield "brute force finds the same", text


def the_machines_are_the_services(service: str, request: Request, supply: Supply) -> Iterator[str]:
    """Its own types at its own prices, and a release that it has an image of."""
    if not hosting.has_image(service, supply.release.version):
        yield f"no image of {supply.release.version}"
    for region in request.regions:
        expected = hosting.prices(service, region)
        planned = {item.instance_type.name: item.usd_per_hour for item in supply.offers if item.region == region}
        if planned != expected:
            differs = planned.items() ^ expected.items()
            yield f"{region}: {sorted({name for name, _ in differs})} have other prices in its files"


def _some_types(seed: int, supply: Supply) -> Supply:
    names = sorted({offer.instance_type.name for offer in supply.offers})
    kept = set(Random(seed).sample(names, min(_TYPES, len(names))))  # noqa: S311 -- a seed makes a failure come again
    return replaced(supply, offers=tuple(offer for offer in supply.offers if offer.instance_type.name in kept))


def _identity(item: Candidate | None) -> tuple[object, ...] | None:
    if item is None:
        return None
    offer = item.offer
    return (
        offer.instance_type.name, offer.region, offer.market, item.num_shard, item.quantize,
        item.engine.settings.model_id, item.replicas, item.cost.usd_per_hour,
    )  # fmt: skip


def _loaded(request: Request, times: int) -> Request:
    arrivals = request.arrivals_per_s
    return replaced(
        request, concurrency=request.concurrency * times, arrivals_per_s=arrivals and arrivals * times
    )  # fmt: skip


def _of_one_class(request: Request) -> Request:
    """Exclude answers that change to 4-bit weights, which are only a last resort."""
    return replaced(request, quality="near-lossless") if request.quality == "auto" else request


def _is_cheaper(after: Configuration, before: Configuration) -> bool:
    return after.served_usd_per_hour < before.served_usd_per_hour


def _overtakes(after: Configuration, before: Configuration, request: Request, work: SharedWork) -> bool:
    """Return whether the earlier choice would miss the goals by more than the new one, or miss an explicit limit. If
    not even a single request is answered in time, everything within reach counts as equally near.
    """
    same, search = before.evaluation, work.search(request)
    if search.reach.missed and after.evaluation.shortfall.missed:
        return True
    now = search.evaluator.evaluation(before.offer.instance_type, same.num_shard, same.scheme, same.replicas)
    return bool(now.problems) or _distance(now) > _distance(after.evaluation)


def _distance(evaluation: Evaluation) -> tuple[bool, float]:
    missed = evaluation.shortfall
    return missed.unusable, missed.answer if missed.unusable else missed.times


def _rate(item: Configuration) -> float:
    return 0.0 if item.evaluation.performance is None else item.evaluation.performance.output_tokens_per_s


def _text(item: Configuration | None) -> str:
    if item is None:
        return "nothing"
    speed, evaluation = item.evaluation.performance, item.evaluation
    figures = speed and f"{speed.output_tokens_per_s:.1f} tokens/s {speed.ttft_ms:.0f} ms {speed.tpot_ms:.1f} ms"
    return (
        f"{item.machines} x {item.offer.instance_type.name} {evaluation.replicas} x {evaluation.num_shard} "
        f"{evaluation.scheme.name} ${item.usd_per_hour:.2f} {figures} {tuple(item.key[0])}"
    )
