"""Predicted speed of a configuration: medians with 80 % intervals.

`speed_work` turns a model on some accelerators into seconds, `speed_load` turns those into what clients see, and
`speed_constants` holds the few numbers that are measured. Its accuracy is documented in docs/accuracy.md.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner import speed_numerics
from tgi_deploy.planner.speed_load import Traffic, fitting_batch, timing, unsure
from tgi_deploy.planner.speed_work import Setup, Work
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Performance, Span, UsdSpan
from tgi_deploy.values.speed_constants import KIND_OF_METRIC

if TYPE_CHECKING:
    from tgi_deploy.values.engine import Scheduling, Scheme
    from tgi_deploy.values.hardware import Accelerator, Interconnect
    from tgi_deploy.values.model import ModelSpec
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.speed_constants import Constants

# Host time per expert if the host calls a layer's experts one by one. Measured: 5.7 tokens/s for Qwen3-Omni-30B-A3B
# (48 layers of 128 experts) through transformers on an A100.
_EXPERT_CALL_US: Final = 28.0
_EXPERT_PRODUCTS: Final = 3


def predict(  # noqa: PLR0913 -- one configuration, fact by fact
    model: ModelSpec,
    scheme: Scheme,
    accelerator: Accelerator,
    kv_tokens: float,
    traffic: Traffic,
    *,
    num_shard: int,
    interconnect: Interconnect,
    constants: Constants,
    scheduling: Scheduling,
) -> Performance:
    """Return what clients of one replica see under `traffic`."""
    work = planned_work(
        model, scheme, accelerator, num_shard=num_shard, interconnect=interconnect, constants=constants,
        scheduling=scheduling,
    )  # fmt: skip
    return client_view(work, traffic, kv_tokens)


def planned_work(
    model: ModelSpec,
    scheme: Scheme,
    accelerator: Accelerator,
    *,
    num_shard: int,
    interconnect: Interconnect,
    constants: Constants,
    scheduling: Scheduling,
) -> Work:
    """Return the work of one planned configuration, for many loads."""
    engine = constants.planned_engine(scheduling)
    if scheduling.runs_all_experts:
        model = replaced(model, experts_per_token=model.experts, active_parameters=None)
    numerics = speed_numerics.of_scheme(scheme, accelerator, scheduling.kv_bits)
    if scheduling.loops_over_experts:
        call_us = _EXPERT_PRODUCTS * constants.kernel(numerics.kernel).linear_us
        layer_us = engine.layer_us + model.experts * _EXPERT_CALL_US
        engine = replaced(engine, layer_us=layer_us, expert_us=engine.expert_us + call_us)
    setup = Setup(
        model=model,
        numerics=numerics,
        accelerator=accelerator,
        num_shard=num_shard,
        interconnect=interconnect,
        engine=engine,
        prefill_tokens=scheduling.prefill_tokens,
        layer_products=scheduling.layer_products,
    )
    return Work(setup, constants)


def client_view(work: Work, traffic: Traffic, kv_tokens: float) -> Performance:
    """Return the medians of one replica under `traffic`, with intervals that contain 80 % of measurements."""
    seen = timing(work, traffic, kv_tokens)
    ttft_ms, tpot_ms = seen.ttft_s * 1e3, seen.tpot_s * 1e3
    rate = seen.requests_per_s() * traffic.output_tokens

    def span(value: float, metric: str) -> Span:
        low, high = work.constants.interval(metric, unsure(work, traffic, seen, KIND_OF_METRIC[metric]))
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
        ttft_ms_p95=seen.ttft_p95_s * 1e3,
        tpot_ms_p95=seen.tpot_p95_s * 1e3,
    )


def together(speed: Performance, replicas: int) -> Performance:
    """Return the figures of several equally loaded replicas from those of one."""
    spans = speed.output_tokens_per_s_span
    return replaced(
        speed,
        output_tokens_per_s=speed.output_tokens_per_s * replicas,
        output_tokens_per_s_span=spans and Span(low=spans.low * replicas, high=spans.high * replicas),
    )


def usd_per_million(usd_per_hour: Decimal, tokens_per_s: float, utilization: float = 1.0) -> Decimal:
    """Return US dollars per million tokens, at `tokens_per_s` for a share `utilization` of the time."""
    tokens_per_hour = Decimal(repr(tokens_per_s)) * Decimal(repr(utilization)) * 3600
    return (usd_per_hour / tokens_per_hour * 1_000_000).quantize(Decimal("0.0001"))


def with_prices(speed: Performance, usd_per_hour: Decimal, request: Request) -> Performance:
    """Return the figures with token prices, if there is an hourly price. The fastest end is the cheapest."""
    speed = replaced(speed, utilization=request.utilization)
    if not usd_per_hour:
        return speed

    def million(tokens_per_s: float) -> Decimal:
        return usd_per_million(usd_per_hour, tokens_per_s, request.utilization)

    load, rate, rates = request.load, speed.output_tokens_per_s, speed.output_tokens_per_s_span
    return replaced(
        speed,
        usd_per_million_output_tokens=million(rate),
        usd_per_million_output_tokens_span=UsdSpan(low=million(rates.high), high=million(rates.low)) if rates else None,
        usd_per_million_blended_tokens=million(rate * load.request_tokens / load.output_tokens),
    )
