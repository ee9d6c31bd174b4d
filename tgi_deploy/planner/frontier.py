"""The Pareto frontier of candidates with its knee, and diverse alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import FrontierPoint
from tgi_deploy.values.quality import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.plan import Performance

MAX_ALTERNATIVES: Final = 5
_EVEN: Final = 0.01


def frontier(configurations: Sequence[Configuration]) -> tuple[FrontierPoint, ...]:
    """Return the non-dominated ones, the cheapest first. `configurations` are ranked: the first is the choice.

    If the choice meets the default service level, only those that meet it count; if it has room, only those that have.
    """
    chosen = configurations[0]
    rivals = [
        item
        for item in _cheapest_offers(configurations)
        if item.key[0].missed <= chosen.key[0].missed and item.evaluation.memory.tight <= chosen.evaluation.memory.tight
    ]
    figures = {id(item): _figures(item) for item in rivals}
    kept: list[Configuration] = []
    for item in sorted(rivals, key=lambda item: (figures[id(item)], item.key)):
        if item is chosen or not any(_dominates(figures[id(other)], figures[id(item)]) for other in kept):
            kept.append(item)
    points = [point(item, chosen=item is chosen) for item in kept]
    knee = _knee(points)
    return tuple(replaced(one, knee=True) if number == knee else one for number, one in enumerate(points))


def _cheapest_offers(configurations: Sequence[Configuration]) -> Iterator[Configuration]:
    """Return each evaluation on its cheapest offer, and the unchanged choice."""
    chosen = configurations[0]
    best: dict[int, Configuration] = {id(chosen.evaluation): chosen}
    for item in configurations:
        known = best.setdefault(id(item.evaluation), item)
        if known is not chosen and item.usd_per_hour < known.usd_per_hour:
            best[id(item.evaluation)] = item
    yield from best.values()


def _figures(item: Configuration) -> tuple[float, ...]:
    """Return the criteria as shown by `point`, smaller is better: price, tokens/s, both latencies, quality."""
    speed = item.evaluation.performance
    if speed is None:
        raise AssertionError("a configuration has been timed")
    seen, grade = shown(speed), CLASSES.index(item.evaluation.quality.grade)
    return (float(item.usd_per_hour), -seen["output_tokens_per_s"], seen["ttft_ms"], seen["tpot_ms"], grade)


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether it is at least as good in all criteria; of equal ones the earlier stays."""
    return all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


def shown(speed: Performance) -> dict[str, float]:
    """Return the figures of a row as printed."""
    return {
        "output_tokens_per_s": round(speed.output_tokens_per_s, 1),
        "ttft_ms": round(speed.ttft_ms, 1),
        "tpot_ms": round(speed.tpot_ms, 2),
    }


def point(item: Configuration, *, chosen: bool = False) -> FrontierPoint:
    offer, evaluation, speed = item.offer, item.evaluation, item.evaluation.performance
    if speed is None:
        raise AssertionError("a configuration has been timed")
    return FrontierPoint(
        instance_type=offer.instance_type.name, region=offer.region, market=offer.market,
        accelerator=offer.instance_type.accelerator.name, num_shard=evaluation.num_shard,
        replicas=evaluation.replicas, machines=item.machines, quantize=evaluation.scheme.name,
        quality_class=evaluation.quality.grade, total_usd_per_hour=item.usd_per_hour,
        **shown(speed), chosen=chosen, knee=False, estimated=offer.estimated, price_date=offer.price_date,
    )  # fmt: skip


def _knee(points: Sequence[FrontierPoint]) -> int | None:
    """Return the knee, where throughput stops growing faster than price: the farthest point above the chord."""
    if len(points) < 3:  # noqa: PLR2004 -- two ends have nothing between them
        return None
    prices = [float(one.total_usd_per_hour) for one in points]
    rates = [one.output_tokens_per_s for one in points]
    price_span, rate_span = max(prices) - min(prices), max(rates) - min(rates)
    if not price_span or rate_span < _EVEN * max(rates):
        return None
    above = [
        (rate - min(rates)) / rate_span - (price - min(prices)) / price_span
        for price, rate in zip(prices, rates, strict=True)
    ]
    return above.index(max(above))


def alternatives(configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """Return the best candidate of each other GPU and quality class, in ranking order.

    First come those that cost less and meet the default service level as well, with weights of a lower class.
    """
    best: dict[tuple[str, str], Configuration] = {}
    for item in configurations:
        best.setdefault(_sort(item), item)
    chosen, *others = best.values()
    others.sort(key=lambda item: item.usd_per_hour >= chosen.usd_per_hour or item.key[0].missed > chosen.key[0].missed)
    return tuple(others[:MAX_ALTERNATIVES])


def _sort(item: Configuration) -> tuple[str, str]:
    return item.offer.instance_type.accelerator.name, item.evaluation.quality.grade
