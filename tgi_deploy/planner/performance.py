"""Predicted speed: an additive roofline with few constants, each with a meaning.

    step(b, c) = weights touched / bandwidth + b c kv / bandwidth + compute(b) + all-reduces + host
    prefill(n) = max(compute(n), one weight sweep) + all-reduces

Memory and compute add up (taking the larger of the two is worse on measured rows). The constants are medians of
published kernel and engine measurements; an analytic first model, good for ordering candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.types import Performance

if TYPE_CHECKING:
    from tgi_deploy.planner.quantization import Scheme
    from tgi_deploy.planner.types import Accelerator, Interconnect, MemoryBudget, ModelSpec

BANDWIDTH_SHARE: Final = 0.75
PREFILL_SHARE: Final = 0.60
HOST_S: Final = 0.002
FIRST_TOKEN_S: Final = 0.010

# Sustained share of the 16-bit peak in prefill where a card is known to differ: L4 is held back by its 72 W.
_PREFILL_SHARE_OF: Final = {"L4": 0.37, "A100-40GB": 0.75, "A100-80GB": 0.75}

# All-reduce in a ring: bus rate in bytes a second, latency in seconds.
_LINK: Final[dict[str, tuple[float, float]]] = {
    "nvlink": (250e9, 9e-6),
    "pcie-p2p": (12e9, 35e-6),
    "pcie": (2e9, 60e-6),
    "none": (2e9, 60e-6),
}
_NO_LINK: Final = (2e9, 60e-6)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Steady traffic: tokens in and out of a request, and requests running at once."""

    input_tokens: int
    output_tokens: int
    concurrency: int


class _Roofline:
    """The model's work on `num_shard` accelerators, in bytes, operations and seconds."""

    def __init__(
        self, model: ModelSpec, scheme: Scheme, accelerator: Accelerator, num_shard: int, link: Interconnect
    ) -> None:
        rule = scheme.rule
        self.model = model
        self.shards = num_shard
        self.bus, self.latency = _LINK.get(link, _NO_LINK)
        self.bandwidth = accelerator.bandwidth_gb_s * 1e9 * BANDWIDTH_SHARE
        self.decode_share = rule.decode_efficiency if rule else 1.0
        share = _PREFILL_SHARE_OF.get(accelerator.name, PREFILL_SHARE) * (rule.prefill_efficiency if rule else 1.0)
        self.flops = _peak_tflops(accelerator, scheme) * 1e12 * share
        self.weight_bytes = scheme.bits / 8
        self.expert = 3 * model.hidden_size * model.expert_intermediate_size * model.layers
        self.head = model.vocab_size * model.hidden_size
        tables = self.head * (1 if model.tied_embeddings else 2)
        self.dense = model.parameters - tables - self.expert * model.experts
        self.kv_per_token = 2 * model.layers * model.kv_heads * model.head_dim * 2

    def stream_s(self, tokens: float) -> float:
        touched = 0.0
        if self.model.experts:
            missed = 1 - self.model.experts_per_token / self.model.experts
            touched = self.expert * self.model.experts * (1 - missed**tokens)
        linear = (self.dense + touched) * self.weight_bytes / self.decode_share
        return (linear + 2 * self.head) / self.shards / self.bandwidth

    def compute_s(self, tokens: float) -> float:
        active = self.dense + self.expert * self.model.experts_per_token + self.head
        return 2 * tokens * active / self.shards / self.flops

    def all_reduce_s(self, tokens: float) -> float:
        if self.shards == 1:
            return 0.0
        message = tokens * self.model.hidden_size * 2
        ring = 2 * (self.shards - 1) / self.shards * message / self.bus
        return 2 * self.model.layers * (self.latency + ring)

    def step_s(self, batch: float, context: float) -> float:
        seen = min(context, self.model.sliding_window or context)
        cache = batch * seen * self.kv_per_token / self.shards / self.bandwidth
        return self.stream_s(batch) + cache + self.compute_s(batch) + self.all_reduce_s(batch) + HOST_S

    def prefill_work_s(self, tokens: int) -> float:
        width = self.model.attention_heads * self.model.head_dim
        attention = 2 * tokens * tokens * self.model.layers * width / self.shards / self.flops
        return self.compute_s(tokens) + attention

    def prefill_s(self, tokens: int) -> float:
        return max(self.prefill_work_s(tokens), self.stream_s(tokens)) + self.all_reduce_s(tokens)


def _peak_tflops(accelerator: Accelerator, scheme: Scheme) -> float:
    """Dense peak in the type the kernels compute in. A card without published tensor figures counts as 1 TFLOPS."""
    native = scheme.rule.native_fp8_compute if scheme.rule else None
    capability = accelerator.compute_capability
    if native is not None and capability is not None and capability >= native and accelerator.fp8_tflops:
        return accelerator.fp8_tflops
    return accelerator.fp16_tflops or 1.0


def predict(
    model: ModelSpec,
    scheme: Scheme,
    accelerator: Accelerator,
    memory: MemoryBudget,
    load: Load,
    *,
    num_shard: int,
    interconnect: Interconnect,
) -> Performance:
    """Time to first token, time per output token (client view, ms) and total output tokens a second under `load`."""
    roofline = _Roofline(model, scheme, accelerator, num_shard, interconnect)
    mean_context = load.input_tokens + load.output_tokens / 2
    batch = max(1.0, min(load.concurrency, memory.kv_capacity_tokens / mean_context))
    prefill_s = roofline.prefill_s(load.input_tokens)
    shared_s = roofline.prefill_work_s(load.input_tokens) + roofline.all_reduce_s(load.input_tokens)
    tpot_s = roofline.step_s(batch, mean_context) + (batch - 1) / load.output_tokens * shared_s
    queued = max(1.0, batch / 2)
    ttft_s = prefill_s * queued + FIRST_TOKEN_S
    throughput = batch * load.output_tokens / (prefill_s + load.output_tokens * tpot_s)
    return Performance(ttft_ms=ttft_s * 1e3, tpot_ms=tpot_s * 1e3, output_tokens_per_s=throughput)


def usd_per_million(usd_per_hour: Decimal, output_tokens_per_s: float) -> Decimal:
    """US dollars per million output tokens at full load."""
    tokens_per_hour = Decimal(repr(output_tokens_per_s)) * 3600
    return (usd_per_hour / tokens_per_hour * 1_000_000).quantize(Decimal("0.0001"))


def with_price(speed: Performance, usd: Decimal | None) -> Performance:
    return replace(speed, usd_per_million_output_tokens=usd)
