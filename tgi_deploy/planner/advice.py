"""Near misses of an infeasible request, as options ready to paste."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.relax import relaxations
from tgi_deploy.values.plan import NearMiss
from tgi_deploy.values.supply import is_added

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.engines.protocol import Engine
    from tgi_deploy.planner.relax import Relaxation
    from tgi_deploy.values.plan import Candidate
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.supply import Supply

_NAMES: Final[Mapping[str, str]] = {"ttft": "ttft-ms", "tpot": "tpot-ms", "throughput": "min-tokens-per-s"}


def near_misses(request: Request, wider: Supply, engine: Engine) -> tuple[NearMiss, ...]:
    """Return the minimal sets of changes that make the request feasible. `wider`: all regions and markets."""
    return tuple(_miss(found) for found in relaxations(request, wider, engine))


def _miss(found: Relaxation) -> NearMiss:
    option = " ".join(_option(axis, found.request) for axis in found.axes)
    return NearMiss(
        code="+".join(found.axes),
        message=f"fits with {option}: {_choice(found.candidate)}",
        option=option,
        candidate=found.candidate,
    )


def _option(axis: str, request: Request) -> str:
    if axis == "allow_turing":
        return "--allow-turing"
    value = {
        "budget": request.budget_usd_per_hour,
        "quantize": request.quantize,
        "context": request.context_tokens,
        "concurrency": request.concurrency,
        "region": request.regions[:1],
        "market": request.markets[0],
        "num_shard": request.num_shard,
        "instance": request.instance_type,
        "ttft": request.ttft_ms,
        "tpot": request.tpot_ms,
        "throughput": request.min_tokens_per_s,
        "quality": request.quality,
        "min_bits": request.min_bits,
        "rps": request.arrivals_per_s,
        "replicas": request.replicas.least,
        "max_machines": request.max_machines,
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
    if candidate.replicas > 1:
        shards = f"{candidate.replicas} replicas of {shards}"
    price = f"{'about ' if offer.estimated else ''}${candidate.cost.usd_per_hour:.3f}/h"
    if offer.dated:
        price += f" ({offer.dated})"
    if offer.market == "owned":
        whose = f"a new node, {price}" if is_added(offer) else "your own machine"
        return f"{offer.instance_type.name}, {shards}, {whose}"
    several = f"{candidate.machines} x " if candidate.machines > 1 else ""
    return f"{several}{offer.instance_type.name} in {offer.region}, {shards}, {price}"
