"""The order of candidates, total as ties end in names; and of rejections, the nearest to a plan first.

What nobody asked for only ranks: a candidate that misses the default service level, or whose weights are below
near-lossless, comes after all that do not. More than twice a default limit counts as unusable: then 4-bit weights come
before it. Of those that miss it the nearest comes first, at any price: who has more load than anything bears gets what
comes closest. Where no machine answers even a request alone in time, all that is within reach is equally near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from decimal import Decimal

    from tgi_deploy.values.plan import Rejection
    from tgi_deploy.values.request import Preference

# What no change of the request helps, the more surprising first.
_UNALTERABLE: Final = ("arch_flash_attention", "arch_", "vendor_", "host_", "accelerator_")


class Merit(Frozen, frozen=True, kw_only=True):
    """All that ranks a candidate. `loss` is the place of its weights in the order of quality, 0 for exact ones.

    `tight` says that it may not start: less memory is left than its arithmetic is sure of.
    `coarse` says that the weights are below what an unspoken request takes; `missed`, `unusable` and `times`, how far
    the default service level is missed. Speeds are those that are shown: sums in another order are the same figure.
    `names` make the order total.
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


class Unspoken(NamedTuple):
    """What ranks before the preference: everything that the request did not mention and a candidate falls short of."""

    unusable: bool
    coarse: bool
    missed: bool
    times: float


def sort_key(prefer: Preference, merit: Merit) -> tuple[Any, ...]:
    """Smaller is better: what was left unspoken, then the preference, then names."""
    return (Unspoken(merit.unusable, merit.coarse, merit.missed, merit.times), *_preferred(prefer, merit))


def _preferred(prefer: Preference, merit: Merit) -> tuple[Any, ...]:
    price, speed, latency = merit.usd_per_hour, -merit.output_tokens_per_s, (merit.ttft_ms, merit.tpot_ms)
    if prefer == "cost":
        return (price, merit.tight, merit.loss, speed, latency, merit.names)
    if prefer == "quality":
        return (merit.loss, price, merit.tight, speed, latency, merit.names)
    if prefer == "speed":
        return (speed, price, merit.tight, merit.loss, latency, merit.names)
    return (float(price) / merit.output_tokens_per_s, merit.tight, merit.loss, price, latency, merit.names)


def distance(item: Rejection) -> tuple[Any, ...]:
    """How far a rejection is from a plan: what nothing changes last, then reasons against it, price, bent model."""
    price = item.usd_per_hour
    return (
        _alterability(item.code),
        len(item.codes),
        price is None,
        price or 0,
        item.quantize != "none",
        item.num_shard,
        item.code,
    )


def _alterability(code: str) -> int:
    return next((rank for rank, prefix in enumerate(_UNALTERABLE, start=1) if code.startswith(prefix)), 0)
