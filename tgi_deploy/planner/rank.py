"""The order of candidates. Ties end in names, so the order is total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decimal import Decimal

    from tgi_deploy.planner.types import Preference


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
