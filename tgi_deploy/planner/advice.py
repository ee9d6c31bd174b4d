"""The nearest misses of a wish that nothing meets, as options ready to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.relax import relaxations
from tgi_deploy.planner.types import NearMiss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.planner.relax import Relaxation
    from tgi_deploy.planner.supply import Supply
    from tgi_deploy.planner.types import Candidate, Requirements

_NAMES: Final[Mapping[str, str]] = {"ttft": "ttft-ms", "tpot": "tpot-ms", "throughput": "min-tokens-per-s"}


def near_misses(wish: Requirements, wider: Supply) -> tuple[NearMiss, ...]:
    """Every minimal set of changes that would have been enough. `wider`: all regions and markets."""
    return tuple(_miss(found) for found in relaxations(wish, wider))


def _miss(found: Relaxation) -> NearMiss:
    option = " ".join(_option(axis, found.wish) for axis in found.axes)
    return NearMiss(
        code="+".join(found.axes),
        message=f"fits with {option}: {_choice(found.candidate)}",
        option=option,
        candidate=found.candidate,
    )


def _option(axis: str, wish: Requirements) -> str:
    if axis == "allow_turing":
        return "--allow-turing"
    value = {
        "budget": wish.budget_usd_per_hour,
        "quantize": wish.quantize,
        "context": wish.context_tokens,
        "concurrency": wish.concurrency,
        "region": wish.regions[:1],
        "market": wish.markets[0],
        "num_shard": wish.num_shard,
        "instance": wish.instance_type,
        "ttft": wish.ttft_ms,
        "tpot": wish.tpot_ms,
        "throughput": wish.min_tokens_per_s,
    }[axis]
    return f"--{_NAMES.get(axis, axis.replace('_', '-'))} {_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return str(value[0])
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _choice(candidate: Candidate) -> str:
    offer = candidate.offer
    quantized = "" if candidate.quantize == "none" else f", {candidate.quantize}"
    shards = f"{candidate.num_shard} shard{'s' if candidate.num_shard > 1 else ''}{quantized}"
    if offer.market == "owned":
        return f"{offer.instance_type.name}, {shards}, your machine"
    return f"{offer.instance_type.name} in {offer.region}, {shards}, ${candidate.cost.usd_per_hour:.3f}/h"
