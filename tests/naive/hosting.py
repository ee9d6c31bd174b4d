"""A second implementation of the rules of a hosting service, from its file of facts alone.

Prices, startup and limits are computed from `hosting.json`, from the provider's price lists and from the rates in
docs/waiting.md, not by the catalog or the planner.
"""

from __future__ import annotations

import json
import math
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from tgi_deploy.data_files import profiles_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.values.hardware import InstanceType

GIB = 2**30
LOG_GIB = 20  # room for logs; the operating system is on another disk, of the service
START_MARGIN = 1.5
# Decimal MB/s, as docs/waiting.md has them.
HUB, NVME, GP3 = 400.0, 1500.0, 125.0
BURST_S = 1800.0
# Seconds of the engine: a shard's start, the largest prefill, each CUDA graph, the tokenizer.
SHARD_S, PREFILL_S, GRAPH_S, TOKENIZER_S = 15.0, 20.0, 4.0, 5.0


@cache
def facts(service: str) -> dict[str, Any]:
    return _read(f"{service}/hosting.json")


def _read(name: str) -> dict[str, Any]:
    path = profiles_dir() / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def prices(service: str, region: str) -> dict[str, Decimal | None]:
    """Return the hourly price by machine: the listed one, or the provider's times a ratio; None if that is unknown."""
    ratios = facts(service)["prices"]["derived"]["ratios"]
    listed, rented = _read(f"{service}/prices/{region}.json"), _read(f"aws/prices/{region}.json")
    found: dict[str, Decimal | None] = {}
    for name in facts(service)["types"]:
        own = listed.get("prices", {}).get(name)
        beside = rented["prices"].get(name.removeprefix("ml."))
        if own is not None:
            found[name] = Decimal(own["on_demand"]["usd_per_hour"])
        elif beside is not None and beside["offered"]:
            ratio = ratios.get(name) or ratios.get(name.split(".")[1])
            price = Decimal(beside.get("on_demand", {}).get("usd_per_hour", 0)) * Decimal(ratio or 0)
            found[name] = price.quantize(Decimal("0.0001"), ROUND_HALF_UP) or None
    return found


def has_image(service: str, release: str) -> bool:
    return release in facts(service)["releases"]


def volume_gib(hardware: InstanceType, image_bytes: int, weights_bytes: int) -> int:
    """Return the size of the volume; 0 if the machine has its own drives."""
    if hardware.nvme_bytes:
        return 0
    return LOG_GIB + math.ceil((image_bytes + weights_bytes * 11 // 10) / GIB)


def codes(
    service: str, hardware: InstanceType, *, image_bytes: int, weights_bytes: int, graphs: int, answer_s: float
) -> Iterator[str]:
    """Yield the codes of the limits that a machine breaks. `answer_s`: how long its longest answer takes."""
    limits = facts(service)["limits"]
    if hardware.nvme_bytes and hardware.nvme_bytes * 10 < weights_bytes * 11:
        yield "nvme_too_small"
    if volume_gib(hardware, image_bytes, weights_bytes) > limits["volume_gib"]:
        yield "volume_too_large"
    if START_MARGIN * _start_s(hardware, image_bytes / 1e6, weights_bytes / 1e6, graphs) > limits["start_s"]:
        yield "start_too_long"
    if limits["stream_s"] < answer_s < math.inf:
        yield "answer_too_long"


def _start_s(hardware: InstanceType, image_mb: float, weights_mb: float, graphs: int) -> float:
    """Return how long the container takes to start: it downloads the weights, reads them, and warms up."""
    arriving_s = weights_mb / min(HUB, (hardware.network_gbps or 1.0) * 125 * 0.6)
    if hardware.nvme_bytes / 1e6 >= weights_mb * 1.1:
        written_s = read_s = weights_mb / NVME
    else:
        written_s = _on_volume_s(hardware, weights_mb, image_mb)
        read_s = _on_volume_s(hardware, weights_mb, image_mb + weights_mb)
    if weights_mb * 1e6 * 2 < hardware.ram_bytes:
        read_s = weights_mb / NVME
    return max(arriving_s, written_s) + SHARD_S + read_s + PREFILL_S + GRAPH_S * graphs + TOKENIZER_S


def _on_volume_s(hardware: InstanceType, megabytes: float, before_mb: float) -> float:
    """Return the seconds for so much data on a volume: at the burst rate for half an hour, then the baseline."""
    usual = hardware.ebs_baseline_mb_s or hardware.ebs_burst_mb_s or GP3
    fast = min(hardware.ebs_burst_mb_s or usual, GP3)
    slow = min(usual, GP3)
    quickly = min(megabytes, max(0.0, BURST_S * fast - before_mb))
    return quickly / fast + (megabytes - quickly) / slow
