"""The baseline: a roofline with three round constants and no fitted ones.

Weights and KV cache stream at 75 % of the datasheet's bandwidth, matrix products run at 60 % of its peak, every step
costs 2 ms and every first token 10 ms more. Links are a ring with round figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.speed_work import kv_bytes_per_token

if TYPE_CHECKING:
    from tgi_deploy.operations.planning.predict_speed import Case

_STREAMING, _PRODUCTS = 0.75, 0.60
_STEP_S, _FIRST_S = 0.002, 0.010
_MOST_REQUESTS: Final = 512
_MEMORY_SHARE, _OVERHEAD_BYTES = 0.95, 1e9
_NVLINK, _PCIE = (250e9, 9e-6), (10e9, 35e-6)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sizes:
    """Parameters and bytes of a case's model on one accelerator."""

    dense: float
    expert: float
    head: float
    weights_bytes: float
    kv_bytes: float


def _sizes(case: Case) -> _Sizes:
    model, numerics, shards = case.setup.model, case.setup.numerics, case.setup.num_shard
    head = model.vocab_size * model.hidden_size
    expert = 3.0 * model.layers * model.hidden_size * model.expert_intermediate_size
    dense = model.parameters - expert * model.experts - head * (1 if model.tied_embeddings else 2)
    linear = dense * numerics.linear_bits + expert * model.experts * numerics.expert_bits
    return _Sizes(
        dense=dense / shards,
        expert=expert / shards,
        head=head / shards,
        weights_bytes=(linear / 8 + 4 * head) / shards,
        kv_bytes=kv_bytes_per_token(model, numerics.kv_bits, 1) / shards,
    )


class Roofline:
    """Seconds of one case's steps and prefills."""

    def __init__(self, case: Case) -> None:
        card, numerics = case.setup.accelerator, case.setup.numerics
        self.case, self.model, self.sizes = case, case.setup.model, _sizes(case)
        eight_bit = {"fp8": card.fp8_tflops, "int8": card.int8_tops}.get(numerics.products)
        self.flops = (eight_bit or card.fp16_tflops or 1.0) * 1e12 * _PRODUCTS
        self.bandwidth = card.bandwidth_gb_s * 1e9 * _STREAMING
        self.bus, self.latency = _NVLINK if case.setup.interconnect == "nvlink" else _PCIE

    def largest_batch(self) -> float:
        room = self.case.setup.accelerator.memory_bytes * _MEMORY_SHARE - _OVERHEAD_BYTES - self.sizes.weights_bytes
        each = self.sizes.kv_bytes * (self.case.traffic.input_tokens + self.case.traffic.output_tokens / 2)
        return max(1.0, min(_MOST_REQUESTS, room // each))

    def products_s(self, tokens: float) -> float:
        active = self.sizes.dense + self.sizes.expert * self.model.experts_per_token + self.sizes.head
        return 2 * tokens * active / self.flops

    def stream_s(self, tokens: float) -> float:
        numerics, experts = self.case.setup.numerics, self.model.experts
        touched = experts * (1 - (1 - self.model.experts_per_token / experts) ** tokens) if experts else 0.0
        linear = self.sizes.dense * numerics.linear_bits + self.sizes.expert * touched * numerics.expert_bits
        return (linear / 8 + 2 * self.sizes.head) / self.bandwidth

    def all_reduce_s(self, tokens: float) -> float:
        shards = self.case.setup.num_shard
        ring = 2 * (shards - 1) / shards * tokens * self.model.hidden_size * 2 / self.bus
        return 2 * self.model.layers * (self.latency + ring) if shards > 1 else 0.0

    def prompt_s(self, prompt: float) -> float:
        width = self.model.attention_heads * self.model.head_dim / self.case.setup.num_shard
        return self.products_s(prompt) + 2 * prompt**2 * self.model.layers * width / self.flops

    def prefill_s(self, prompts: float, prompt: float) -> float:
        tokens = prompts * prompt
        return max(prompts * self.prompt_s(prompt), self.stream_s(tokens)) + self.all_reduce_s(tokens)

    def step_s(self, batch: float, context: float) -> float:
        cache = batch * context * self.sizes.kv_bytes / self.bandwidth
        return self.stream_s(batch) + cache + self.products_s(batch) + self.all_reduce_s(batch) + _STEP_S


def median(case: Case) -> float:
    """Return the predicted metric of the case, in its unit."""
    roof, traffic = Roofline(case), case.traffic
    prompt, output = traffic.input_tokens, traffic.output_tokens
    together = traffic.kind in {"static", "batch1"}
    largest = roof.largest_batch()
    clients = 1.0 if traffic.kind == "open" else traffic.clients  # as if requests never overlapped
    batch = largest if clients is None else clients if together else min(clients, largest)
    prefill = roof.prefill_s(batch, prompt)
    if case.metric == "ttft_ms":
        return 1e3 * (prefill / (1 if together or batch == 1 else 2) + _FIRST_S)
    others = 0.0 if together else (batch - 1) * (roof.prompt_s(prompt) + roof.all_reduce_s(prompt)) / output
    tpot = roof.step_s(batch, prompt + output / 2) + others
    e2e = (prefill if together else roof.prefill_s(1, prompt)) + output * tpot
    rate = case.replicas * batch / e2e
    return {
        "tpot_ms": tpot * 1e3, "e2e_ms": e2e * 1e3, "decode_tok_s_per_user": 1 / tpot, "req_s": rate,
    }.get(case.metric, rate * output)  # fmt: skip
