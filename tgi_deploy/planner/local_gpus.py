"""The GPUs of this computer, as its driver tells of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalGpu:
    """One card. `used_bytes` None: nobody said; `mig`: it is cut into instances and can't be used as a whole."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    used_bytes: int | None = None
    compute_capability: str | None = None
    mig: bool = False


def largest_group(gpus: Sequence[LocalGpu]) -> tuple[LocalGpu, ...]:
    """The most cards that are alike, since shards must be; of equally many the larger cards, in the driver's order."""
    groups: dict[tuple[str, int], list[LocalGpu]] = {}
    for gpu in gpus:
        groups.setdefault((gpu.name, gpu.memory_bytes), []).append(gpu)
    best = max(groups.values(), key=lambda group: (len(group), group[0].memory_bytes), default=[])
    return tuple(best)
