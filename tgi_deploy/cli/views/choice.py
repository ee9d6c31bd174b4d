"""Why a plan chose what it did: chances of meeting limits, other accelerators and classes, the frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.views.text import heading, table, with_dates, wrapped
from tgi_deploy.text import count, dated, plural, rate, usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.values.plan import Candidate, FrontierPoint, LimitOutcome, Neighbor, Plan, ReplicaLoad
    from tgi_deploy.values.request import Metric

_MOST_POINTS: Final = 7
_NUMBERS: Final = frozenset({3, 4, 5})
_METRICS: Final[dict[Metric, str]] = {
    "ttft_ms": "time to first token", "tpot_ms": "time per output token", "output_tokens_per_s": "output",
}  # fmt: skip
_UNITS: Final[dict[Metric, str]] = {"ttft_ms": "ms", "tpot_ms": "ms", "output_tokens_per_s": "tokens/s"}


def chance_of(candidate: Candidate, metric: Metric) -> str:
    """Return `; 2,000 ms met: 99 %`, or nothing without such a limit."""
    found = next((item for item in candidate.outcomes if item.limit.metric == metric), None)
    return "" if found is None else f"; {_limit(found)} met: {_percent(found.chance)}"


def _limit(outcome: LimitOutcome) -> str:
    return f"{outcome.limit.value:,g} {_UNITS[outcome.limit.metric]}"


def _percent(chance: float) -> str:
    """Return a percentage, never 0 % or 100 %: no prediction is that certain."""
    return f"{min(99, max(1, round(100 * chance)))} %"


def service_level(plan: Plan) -> str:
    """Yield what one replica can handle, how many there are, and what more certainty costs."""
    sentences = [*_one_replica(plan), *_neighbors(plan)]
    return wrapped(" ".join(sentences), first="") if sentences else ""


def _one_replica(plan: Plan) -> Iterator[str]:
    replica_load, chosen = plan.replica_load, plan.chosen
    if replica_load is None:
        return
    most = _most(replica_load)
    if most is None:
        yield f"Even one request misses the service level: {_beyond(plan, replica_load)}."
        return
    yield f"One replica handles {most} within the service level; beyond that {_beyond(plan, replica_load)}."
    if chosen.replicas > 1:
        yield f"There are {chosen.replicas}; if one fails, the others handle {_without_one(plan)}."


def _most(replica_load: ReplicaLoad) -> str | None:
    if replica_load.requests is not None:
        return f"{plural(replica_load.requests, 'request')} in flight"
    return None if replica_load.arrivals_per_s is None else f"{replica_load.arrivals_per_s:.3g} requests/s"


def _beyond(plan: Plan, replica_load: ReplicaLoad) -> str:
    found = next((item for item in plan.chosen.outcomes if item.limit.metric == replica_load.bound_by), None)
    if found is None:
        return "its queue keeps growing"
    return f"{_METRICS[found.limit.metric]} exceeds {_limit(found)}"


def _without_one(plan: Plan) -> str:
    """Return how much of the load one replica fewer can handle, and what a spare costs."""
    replica_load, request, spare = plan.replica_load, plan.request, plan.spare_usd_per_hour
    if replica_load is None:
        return "an unknown part of the load"
    left = plan.chosen.replicas - 1
    if request.arrivals_per_s is not None:
        share = left * (replica_load.arrivals_per_s or 0.0) / request.arrivals_per_s
    else:
        share = left * (replica_load.requests or 0) / request.concurrency
    if share >= 1:
        return "all of the load"
    met = all(outcome.met for outcome in plan.chosen.outcomes)
    return f"{share:.0%} of the load" + (
        f"; all of it with one more machine for {usd(spare)}/h" if spare and met else ""
    )


def _neighbors(plan: Plan) -> Iterator[str]:
    price = plan.chosen.cost.usd_per_hour
    if plan.cheaper is not None:
        saved = usd(price - plan.cheaper.point.total_usd_per_hour)
        yield f"{_named(plan.cheaper)} costs {saved}/h less and meets the limits with {_percent(plan.cheaper.chance)}."
    if plan.safer is not None:
        more = plan.safer.point.total_usd_per_hour - price
        cost = f"costs {usd(more)}/h more" if more else "costs as much"
        yield f"{_named(plan.safer)} {cost} and meets them with {_percent(plan.safer.chance)}."


def _named(found: Neighbor) -> str:
    several = f"{found.point.machines} x " if found.point.machines > 1 else ""
    return f"{several}{found.point.instance_type} ({_method(found.point)})"


def _method(point: FrontierPoint) -> str:
    return "16 bits" if point.quantize == "none" else point.quantize


def frontier(points: Sequence[FrontierPoint]) -> str:
    """Return the Pareto-optimal candidates, at most seven, cheapest first."""
    if len(points) < 2:  # noqa: PLR2004 -- the choice alone says nothing
        return ""
    shown = _thinned(points)
    header = ("machine", "runs", "weights", "price", "tokens/s", "first token", "quality", "", "")
    cells = [
        (
            f"{point.machines} x {point.instance_type}" if point.machines > 1 else point.instance_type,
            _runs(point), _method(point), _price(point), count(point.output_tokens_per_s),
            f"{count(point.ttft_ms)} ms", point.quality_class, _mark(point),
        )
        for point in shown
    ]  # fmt: skip
    date, rows = with_dates(cells, [dated(point.price_date, estimated=point.estimated) for point in shown])
    more = len(points) - len(shown)
    notes = ["none beats these in price, speed and quality", date, f"{more} more with --json"]
    note = "; ".join(filter(None, notes if more else notes[:2]))
    shown_table = table(header[: len(rows[0])], rows, right=_NUMBERS, indent="  ")
    return f"{heading('Frontier', note)}\n{shown_table}".rstrip("\n")


def _price(point: FrontierPoint) -> str:
    return rate(point.total_usd_per_hour, estimated=point.estimated) if point.total_usd_per_hour else ""


def _runs(point: FrontierPoint) -> str:
    cards = f"{point.num_shard} x {point.accelerator}"
    return f"{point.replicas} x ({cards})" if point.replicas > 1 else cards


def _mark(point: FrontierPoint) -> str:
    return ", ".join(word for word, is_it in (("chosen", point.chosen), ("knee", point.knee)) if is_it)


def _thinned(points: Sequence[FrontierPoint]) -> Sequence[FrontierPoint]:
    """Return both ends, the choice, the knee, and evenly spaced others, the fastest at each price."""
    if len(points) <= _MOST_POINTS:
        return points
    kept = {0, len(points) - 1, *(number for number, point in enumerate(points) if point.chosen or point.knee)}
    others = [number for number in range(len(points)) if number not in kept]
    room = _MOST_POINTS - len(kept)
    kept |= {others[len(others) * step // room] for step in range(room)}
    return [points[number] for number in sorted(kept)]
