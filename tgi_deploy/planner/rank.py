"""The total order of candidates, with names as tie-breakers.

Defaults only rank: a candidate that misses the default service level, or has weights below near-lossless, comes after
all that don't. More than twice a default limit counts as unusable and comes after 4-bit weights. Of the candidates that
miss the service level, the one that comes closest is first, at any price. If no machine answers even a single request
in time, all that come within reach of the fastest count as equally close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from tgi_deploy.values.request import Preference

# The parts of `sort_key` after the defaults, for explanations: `_preferred` returns their values in this order.
CRITERIA: Final[Mapping[Preference, tuple[str, ...]]] = {
    "cost": ("price an hour", "memory margin", "bits lost to quantization", "throughput", "latency", "name"),
    "quality": ("bits lost to quantization", "price an hour", "memory margin", "throughput", "latency", "name"),
    "speed": ("throughput", "price an hour", "memory margin", "bits lost to quantization", "latency", "name"),
    "value": ("price of a token", "memory margin", "bits lost to quantization", "price an hour", "latency", "name"),
}


class Criteria(Frozen, frozen=True, kw_only=True):
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


def sort_key(prefer: Preference, criteria: Criteria) -> tuple[Any, ...]:
    """Return the sort key, smaller is better: defaults, then the preference, then names."""
    return (
        MissedDefaults(criteria.unusable, criteria.coarse, criteria.missed, criteria.times),
        *_preferred(prefer, criteria),
    )


def _preferred(prefer: Preference, criteria: Criteria) -> tuple[Any, ...]:
    price, speed, latency = criteria.usd_per_hour, -criteria.output_tokens_per_s, (criteria.ttft_ms, criteria.tpot_ms)
    if prefer == "cost":
        return (price, criteria.tight, criteria.loss, speed, latency, criteria.names)
    if prefer == "quality":
        return (criteria.loss, price, criteria.tight, speed, latency, criteria.names)
    if prefer == "speed":
        return (speed, price, criteria.tight, criteria.loss, latency, criteria.names)
    return (float(price) / criteria.output_tokens_per_s, criteria.tight, criteria.loss, price, latency, criteria.names)
