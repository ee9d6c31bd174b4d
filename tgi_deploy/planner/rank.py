"""The order of candidates, total as ties end in names; and of refusals, the nearest to a plan first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from decimal import Decimal

    from tgi_deploy.values.plan import Rejection
    from tgi_deploy.values.request import Preference

# What no request changes, the more surprising first.
_UNALTERABLE: Final = ("arch_flash_attention", "arch_", "vendor_", "host_", "accelerator_")


def sort_key(
    prefer: Preference,
    *,
    lost_bits: float,
    usd_per_hour: Decimal,
    output_tokens_per_s: float,
    names: tuple[str, ...],
) -> tuple[Any, ...]:
    """Smaller is better. `names`: instance type, shards, quantization, region, market."""
    speed = -output_tokens_per_s
    if prefer == "quality":
        return (lost_bits, usd_per_hour, speed, names)
    if prefer == "cost":
        return (usd_per_hour, lost_bits, speed, names)
    if prefer == "speed":
        return (speed, usd_per_hour, lost_bits, names)
    return (float(usd_per_hour) / output_tokens_per_s, lost_bits, usd_per_hour, names)


def distance(item: Rejection) -> tuple[Any, ...]:
    """How far a refusal is from a plan: what no request changes last, then reasons against it, price, bent model."""
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
