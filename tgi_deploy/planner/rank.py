"""The total order of candidates, with names as tie-breakers.

Defaults only rank: a candidate that misses the default service level, or has weights below near-lossless, comes after
all that don't. More than twice a default limit counts as unusable and comes after 4-bit weights. Of those that miss the
service level, the nearest comes first at any price: if nothing can carry the load, the closest is chosen. If no machine
answers even a single request in time, all within reach count as equally near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from decimal import Decimal

    from tgi_deploy.values.request import Preference


class Merit(Frozen, frozen=True, kw_only=True):
    """The ranking criteria of a candidate. `loss` is its weights' position in the order of quality, 0 for exact ones.

    `tight`: it may not start, because its margin is below the uncertainty. `coarse`: the weights are below the default
    quality; `missed`, `unusable` and `times`: how far the default service level is missed. Speeds are rounded as shown,
    so that the order of summation does not matter. `names` make the order total.
    """

    loss: int
    tight: bool
    coarse: bool
    missed: bool
    unusable: bool
    times: float
    usd_per_hour: Decimal
    output_tokens_per_s: float
    ttft_ms: float
    tpot_ms: float
    names: tuple[str, ...]


class MissedDefaults(NamedTuple):
    """Criteria that precede the preference: defaults that a candidate does not meet."""

    unusable: bool
    coarse: bool
    missed: bool
    times: float


def sort_key(prefer: Preference, merit: Merit) -> tuple[Any, ...]:
    """Return the sort key, smaller is better: defaults, then the preference, then names."""
    return (MissedDefaults(merit.unusable, merit.coarse, merit.missed, merit.times), *_preferred(prefer, merit))


def _preferred(prefer: Preference, merit: Merit) -> tuple[Any, ...]:
    price, speed, latency = merit.usd_per_hour, -merit.output_tokens_per_s, (merit.ttft_ms, merit.tpot_ms)
    if prefer == "cost":
        return (price, merit.tight, merit.loss, speed, latency, merit.names)
    if prefer == "quality":
        return (merit.loss, price, merit.tight, speed, latency, merit.names)
    if prefer == "speed":
        return (speed, price, merit.tight, merit.loss, latency, merit.names)
    return (float(price) / merit.output_tokens_per_s, merit.tight, merit.loss, price, latency, merit.names)
