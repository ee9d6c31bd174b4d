"""Predicted speed of a configuration: medians with 80 % intervals.

`speed_work` turns a model on some accelerators into seconds, `speed_load` turns those into what clients see, and
`speed_constants` holds the few numbers that are measured. How far off it is stands in docs/accuracy.md.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner import speed_numerics
from tgi_deploy.planner.speed_load import Traffic, fitting_batch, timing
from tgi_deploy.planner.speed_work import Setup, Work
from tgi_deploy.planner.types import Performance, Span, UsdSpan

if TYPE_CHECKING:
    from tgi_deploy.planner.speed_constants import Constants
    from tgi_deploy.planner.types import Requirements
    from tgi_deploy.values.engine import Load, MemoryBudget, Scheduling, Scheme
    from tgi_deploy.values.hardware import Accelerator, Interconnect
    from tgi_deploy.values.model import ModelSpec

_LOAD: Final = "closed_loop"


def predict(  # noqa: PLR0913 -- the facts of one configuration, each its own
    model: ModelSpec,
    scheme: Scheme,
    accelerator: Accelerator,
    memory: MemoryBudget,
    load: Load,
    *,
    num_shard: int,
    interconnect: Interconnect,
    constants: Constants,
    scheduling: Scheduling,
) -> Performance:
    """What `load.concurrency` clients see, each sending its next request when the last one ends."""
    setup = Setup(
        model=model,
        numerics=speed_numerics.of_scheme(scheme, accelerator, scheduling.kv_bits),
        accelerator=accelerator,
        num_shard=num_shard,
        interconnect=interconnect,
        engine=constants.planned_engine(scheduling),
    )
    work = Work(setup, constants)
    traffic = Traffic(
        input_tokens=load.input_tokens, output_tokens=load.output_tokens, clients=load.concurrency, kind=_LOAD
    )
    return client_view(work, traffic, memory.kv_capacity_tokens)


def client_view(work: Work, traffic: Traffic, kv_tokens: float) -> Performance:
    """Medians of one replica under `traffic`, with the intervals that hold 80 % of what is measured."""
    seen = timing(work, traffic, kv_tokens)
    ttft_ms, tpot_ms = seen.ttft_s * 1e3, seen.tpot_s * 1e3
    rate = seen.requests_per_s() * traffic.output_tokens

    def span(value: float, metric: str) -> Span:
        low, high = work.constants.interval(metric, traffic.kind)
        return Span(low=value * low, high=value * high)

    return Performance(
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        output_tokens_per_s=rate,
        tokens_per_s_per_user=1e3 / tpot_ms,
        saturation_concurrency=int(fitting_batch(work, traffic, kv_tokens)),
        ttft_ms_span=span(ttft_ms, "ttft_ms"),
        tpot_ms_span=span(tpot_ms, "tpot_ms"),
        output_tokens_per_s_span=span(rate, "decode_tok_s_total"),
    )


def usd_per_million(usd_per_hour: Decimal, tokens_per_s: float, utilisation: float = 1.0) -> Decimal:
    """US dollars per million tokens of a machine that makes `tokens_per_s` for a share `utilisation` of the time."""
    tokens_per_hour = Decimal(repr(tokens_per_s)) * Decimal(repr(utilisation)) * 3600
    return (usd_per_hour / tokens_per_hour * 1_000_000).quantize(Decimal("0.0001"))


def with_prices(speed: Performance, usd_per_hour: Decimal, wish: Requirements) -> Performance:
    """With what tokens cost; the fastest of the interval is the cheapest. No price an hour: none of tokens."""
    speed = replace(speed, utilisation=wish.utilisation)
    if not usd_per_hour:
        return speed

    def million(tokens_per_s: float) -> Decimal:
        return usd_per_million(usd_per_hour, tokens_per_s, wish.utilisation)

    rate, rates = speed.output_tokens_per_s, speed.output_tokens_per_s_span
    return replace(
        speed,
        usd_per_million_output_tokens=million(rate),
        usd_per_million_output_tokens_span=UsdSpan(low=million(rates.high), high=million(rates.low)) if rates else None,
        usd_per_million_blended_tokens=million(rate * (wish.input_tokens + wish.output_tokens) / wish.output_tokens),
    )
