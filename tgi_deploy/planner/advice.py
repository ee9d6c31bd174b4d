"""The nearest misses of a wish that nothing meets: single changes that would have been enough."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.plan import cheapest
from tgi_deploy.planner.types import NearMiss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.planner.supply import Supply
    from tgi_deploy.planner.types import Candidate, Requirements

_CONTEXTS: Final = (65536, 32768, 16384, 8192, 4096, 2048, 1024)
_CENT: Final = Decimal("0.01")


def near_misses(wish: Requirements, supply: Supply, wider: Supply) -> tuple[NearMiss, ...]:
    """One relaxation at a time, each with its cheapest candidate. `wider`: all regions and markets."""
    return tuple(_misses(wish, supply, wider))


def _misses(wish: Requirements, supply: Supply, wider: Supply) -> Iterator[NearMiss]:
    yield from _budget(wish, supply)
    yield from _quantization(wish, supply)
    yield from _context(wish, supply)
    yield from _concurrency(wish, supply)
    yield from _pins(wish, supply)
    yield from _speed(wish, supply)
    yield from _elsewhere(wish, wider)


def _miss(code: str, option: str, candidate: Candidate) -> NearMiss:
    hardware = candidate.offer.instance_type
    price = f"${candidate.cost.usd_per_hour:.3f}/h" if candidate.offer.market != "owned" else "your machine"
    quantized = "" if candidate.quantize == "none" else f", {candidate.quantize}"
    where = f" in {candidate.offer.region}" if candidate.offer.market != "owned" else ""
    text = f"fits with {option}: {hardware.name}{where}, {candidate.num_shard} shard(s){quantized}, {price}"
    return NearMiss(code=code, message=text, option=option, candidate=candidate)


def _budget(wish: Requirements, supply: Supply) -> Iterator[NearMiss]:
    if wish.budget_usd_per_hour is None:
        return
    found = cheapest(replace(wish, budget_usd_per_hour=None), supply)
    if found is not None:
        dollars = found.cost.usd_per_hour.quantize(_CENT, ROUND_CEILING)
        yield _miss("budget", f"--budget {dollars}", found)


def _quantization(wish: Requirements, supply: Supply) -> Iterator[NearMiss]:
    if wish.quantize == "auto":
        return
    found = cheapest(replace(wish, quantize="auto"), supply)
    if found is not None:
        yield _miss("quantize", f"--quantize {found.quantize}", found)


def _context(wish: Requirements, supply: Supply) -> Iterator[NearMiss]:
    least = wish.input_tokens + wish.output_tokens
    for context in _CONTEXTS:
        if least <= context < wish.context_tokens:
            found = cheapest(replace(wish, context_tokens=context), supply)
            if found is not None:
                yield _miss("context", f"--context {context}", found)
                return


def _concurrency(wish: Requirements, supply: Supply) -> Iterator[NearMiss]:
    fewer = wish.concurrency // 2
    while fewer >= 1:
        found = cheapest(replace(wish, concurrency=fewer), supply)
        if found is not None:
            yield _miss("concurrency", f"--concurrency {fewer}", found)
            return
        fewer //= 2


def _pins(wish: Requirements, supply: Supply) -> Iterator[NearMiss]:
    if wish.num_shard is not None:
        found = cheapest(replace(wish, num_shard=None), supply)
        if found is not None:
            yield _miss("num_shard", f"--num-shard {found.num_shard}", found)
    if wish.instance_type is not None:
        found = cheapest(replace(wish, instance_type=None), supply)
        if found is not None:
            yield _miss("instance", f"--instance {found.offer.instance_type.name}", found)
    if not wish.allow_turing:
        found = cheapest(replace(wish, allow_turing=True), supply)
        if found is not None:
            yield _miss("allow_turing", "--allow-turing", found)


def _speed(wish: Requirements, supply: Supply) -> Iterator[NearMiss]:
    if wish.ttft_ms is not None:
        found = cheapest(replace(wish, ttft_ms=None), supply)
        if found is not None:
            yield _miss("ttft", f"--ttft-ms {round(found.performance.ttft_ms) + 1}", found)
    if wish.tpot_ms is not None:
        found = cheapest(replace(wish, tpot_ms=None), supply)
        if found is not None:
            yield _miss("tpot", f"--tpot-ms {round(found.performance.tpot_ms) + 1}", found)


def _elsewhere(wish: Requirements, wider: Supply) -> Iterator[NearMiss]:
    if wish.hardware is not None:
        return
    found = cheapest(wish, wider)
    if found is not None:
        option = f"--region {found.offer.region}"
        if found.offer.market not in wish.markets:
            option += f" --market {found.offer.market}"
        yield _miss("elsewhere", option, found)
