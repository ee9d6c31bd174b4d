"""The price of confidence: a cheaper candidate that may miss a limit, and a safer one that costs more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.frontier import point
from tgi_deploy.values.plan import Neighbor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.planner.search import Configuration
    from tgi_deploy.values.request import Request

SURE: Final = 0.9
_WORTH_A_LOOK: Final = 0.2


def cheaper(request: Request, chosen: Configuration, others: Sequence[Configuration]) -> Neighbor | None:
    """Return the cheaper candidate that is most likely to meet the limits, though not likely enough."""
    found = [
        (kept, item) for item in others
        if item.usd_per_hour < chosen.usd_per_hour
        and item.key[0].coarse <= chosen.key[0].coarse
        and _WORTH_A_LOOK <= (kept := least_chance(item)) < request.confidence
    ]  # fmt: skip
    best = max(found, key=lambda pair: (pair[0], -pair[1].usd_per_hour), default=None)
    return best and Neighbor(point=point(best[1]), chance=best[0])


def safer(request: Request, chosen: Configuration, ranked: Sequence[Configuration]) -> Neighbor | None:
    """Return the cheapest candidate that meets all limits almost certainly, if the choice does not."""
    if not request.limits or least_chance(chosen) >= SURE:
        return None
    found = [
        (item.usd_per_hour, -kept, number, item) for number, item in enumerate(ranked)
        if item.key[0].coarse <= chosen.key[0].coarse and (kept := least_chance(item)) >= SURE
    ]  # fmt: skip
    best = min(found, default=None)
    return best and Neighbor(point=point(best[3]), chance=-best[1])


def least_chance(item: Configuration) -> float:
    """Return the lowest probability over all limits."""
    return item.evaluation.chance
