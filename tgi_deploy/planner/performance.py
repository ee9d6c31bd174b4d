"""Predicted speed of a configuration: medians with 80 % intervals.

`speed_work` turns a model on some accelerators into seconds, `speed_load` turns those into what clients see, and
`speed_constants` holds the few numbers that are measured. How far off it is stands in docs/accuracy.md.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.planner import speed_numerics
from tgi_deploy.planner.speed_load import Traffic, fitting_batch, timing
from tgi_deploy.planner.speed_work import Setup, Work
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.plan import Performance, Span, UsdSpan

if TYPE_CHECKING:
    from tgi_deploy.values.engine import Scheduling, Scheme
    from tgi_deploy.values.hardware import Accelerator, Interconnect
    from tgi_deploy.values.model import ModelSpec
    from tgi_deploy.values.request import Request
    from tgi_deploy.values.speed_constants import Constants

# A host that calls the experts of a layer one by one: 5.7 tokens/s of Qwen3-Omni-30B-A3B (48 layers of 128 experts)
# through transformers on an A100.
_EXPERT_CALL_US: Final = 28.0
# One in ten of a normal distribution lies above so many standard deviations. (Importing `statistics` for it takes
# 3 ms of the 100 that a plan takes.)
_ONE_IN_TEN: Final = 1.2815515655446004


def predict(  # noqa: PLR0913 -- the facts of one configuration, each its own
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
    """What clients of one replica see under `traffic`."""
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
    """The seconds of one planned configuration, to be asked for many loads and prefill flags.

    `scheduling.prefill_tokens` is the prefill flag; `Work.with_prefill_tokens` is the same under another one.
    """
    engine = constants.planned_engine(scheduling)
    if scheduling.runs_all_experts:
        model = replaced(model, experts_per_token=model.experts, active_parameters=None)
    if scheduling.loops_over_experts:
        engine = replaced(engine, layer_us=engine.layer_us + model.experts * _EXPERT_CALL_US)
    setup = Setup(
        model=model,
        numerics=speed_numerics.of_scheme(scheme, accelerator, scheduling.kv_bits),
        accelerator=accelerator,
        num_shard=num_shard,
        interconnect=interconnect,
        engine=engine,
        prefill_tokens=scheduling.prefill_tokens,
    )
    return Work(setup, constants)


class Quantity(Frozen, frozen=True, kw_only=True):
    """What requests see, and how sure that is.

    `p50` and `p95` are over requests. The interval `low` to `high` holds the measured median 80 times in 100.
    """

    p50: float
    p95: float
    low: float
    high: float

    def chance_within(self, limit: float, *, share: Literal["p50", "p95"] = "p50") -> float:
        """The probability that the measured figure will be `limit` or less; each side of the median has its width."""
        expected = self.p50 if share == "p50" else self.p95
        if limit <= 0 or math.isinf(expected):
            return 0.0
        off = math.log(limit / expected)
        width = math.log(self.high / self.p50) if off > 0 else math.log(self.p50 / self.low)
        return (1 + math.erf(off * _ONE_IN_TEN / width / math.sqrt(2))) / 2

    def quantile(self, share: float) -> float:
        """Return what the measured median stays within with this probability."""
        if share == 0.5:  # noqa: PLR2004 -- the median
            return self.p50
        from statistics import NormalDist  # noqa: PLC0415 -- 3 ms that most plans do without

        deviations = NormalDist().inv_cdf(share) / _ONE_IN_TEN
        return self.p50 * math.pow(self.high / self.p50 if deviations > 0 else self.p50 / self.low, deviations)


class Service(Frozen, frozen=True, kw_only=True):
    """One replica under a load. `running` requests decode at once; `keeps_up` is False where the queue only grows."""

    ttft_ms: Quantity
    tpot_ms: Quantity
    output_tokens_per_s: Quantity
    running: float
    keeps_up: bool


def service(work: Work, traffic: Traffic, kv_tokens: float) -> Service:
    """The distribution of what clients see.

    `traffic` names `clients` in a closed loop, or, as kind `open`, `arrivals_per_s` of clients that do not wait for
    one another.
    """
    seen = timing(work, traffic, kv_tokens)
    ttft = (seen.ttft_s * 1e3, seen.ttft_p95_s * 1e3)
    tpot = (seen.tpot_s * 1e3, seen.tpot_p95_s * 1e3)
    rate = seen.requests_per_s() * traffic.output_tokens

    def quantity(p50: float, p95: float, metric: str) -> Quantity:
        low, high = work.constants.interval(metric, work.setup.accelerator)
        return Quantity(p50=p50, p95=p95, low=p50 * low, high=p50 * high)

    return Service(
        ttft_ms=quantity(*ttft, "ttft_ms"),
        tpot_ms=quantity(*tpot, "tpot_ms"),
        output_tokens_per_s=quantity(rate, rate, "decode_tok_s_total"),
        running=seen.batch,
        keeps_up=not math.isinf(seen.ttft_s),
    )


def client_view(work: Work, traffic: Traffic, kv_tokens: float) -> Performance:
    """Medians of one replica under `traffic`, with the intervals that hold 80 % of what is measured."""
    seen = timing(work, traffic, kv_tokens)
    ttft_ms, tpot_ms = seen.ttft_s * 1e3, seen.tpot_s * 1e3
    rate = seen.requests_per_s() * traffic.output_tokens

    def span(value: float, metric: str) -> Span:
        low, high = work.constants.interval(metric, work.setup.accelerator)
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
    """Return the figures of so many replicas that share the load alike, from those of one of them."""
    spans = speed.output_tokens_per_s_span
    return replaced(
        speed,
        output_tokens_per_s=speed.output_tokens_per_s * replicas,
        output_tokens_per_s_span=spans and Span(low=spans.low * replicas, high=spans.high * replicas),
    )


def usd_per_million(usd_per_hour: Decimal, tokens_per_s: float, utilisation: float = 1.0) -> Decimal:
    """US dollars per million tokens of a machine that makes `tokens_per_s` for a share `utilisation` of the time."""
    tokens_per_hour = Decimal(repr(tokens_per_s)) * Decimal(repr(utilisation)) * 3600
    return (usd_per_hour / tokens_per_hour * 1_000_000).quantize(Decimal("0.0001"))


def with_prices(speed: Performance, usd_per_hour: Decimal, request: Request) -> Performance:
    """With what tokens cost; the fastest of the interval is the cheapest. No price an hour: none of tokens."""
    speed = replaced(speed, utilisation=request.utilisation)
    if not usd_per_hour:
        return speed

    def million(tokens_per_s: float) -> Decimal:
        return usd_per_million(usd_per_hour, tokens_per_s, request.utilisation)

    load, rate, rates = request.load, speed.output_tokens_per_s, speed.output_tokens_per_s_span
    return replaced(
        speed,
        usd_per_million_output_tokens=million(rate),
        usd_per_million_output_tokens_span=UsdSpan(low=million(rates.high), high=million(rates.low)) if rates else None,
        usd_per_million_blended_tokens=million(rate * load.request_tokens / load.output_tokens),
    )
