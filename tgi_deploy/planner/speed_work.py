"""A model's work on some accelerators, in seconds: an additive roofline.

    step(b, c)  = weights touched + KV read + products + all-reduces + host        (never below the launch floor)
    prefill(n)  = (products and a weight sweep for every chunk) + attention + all-reduces + host

In a step memory and compute add up; under compiled kernels (TensorRT-LLM) they overlap a little. In a prefill they
overlap in part, as the root of the sum of their squares, which is better there than the sum and than the larger.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tgi_deploy.values import sizes
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.model import LATENT_ROPE_DIM

if TYPE_CHECKING:
    from tgi_deploy.values.hardware import Accelerator, Interconnect
    from tgi_deploy.values.model import ModelSpec
    from tgi_deploy.values.speed_constants import Constants, EngineProfile

_BYTES_16: Final = 2
_ALL_REDUCES_PER_LAYER: Final = 2
_LARGEST_PREFILL_TOKENS: Final = 16_384  # the warm-up of an engine without chunks uses less
_SMALL_CARD_BYTES: Final = 70 * 2**30


class Numerics(Frozen, frozen=True, kw_only=True):
    """Number formats. `kernel` names the matrix products; `products` is their format."""

    kernel: str
    linear_bits: float
    expert_bits: float
    kv_bits: float = 16.0
    products: str = "16-bit"


SIXTEEN_BITS: Final = Numerics(kernel="16-bit", linear_bits=16, expert_bits=16)


class Setup(Frozen, frozen=True, kw_only=True):
    """A model on `num_shard` accelerators under an engine.

    `prefill_tokens` is the engine's prefill flag, the prompt tokens per step; None: the engine's own choice.
    `layer_products` are the matrix products of a layer that the host launches.
    """

    model: ModelSpec
    numerics: Numerics
    accelerator: Accelerator
    num_shard: int
    interconnect: Interconnect
    engine: EngineProfile
    prefill_tokens: float | None = None
    layer_products: int = 4


class Work:
    """Computes the seconds of all parts of a step or a prefill."""

    def __init__(self, setup: Setup, constants: Constants) -> None:
        self.setup, self.engine, self.shards = setup, setup.engine, setup.num_shard
        self.constants = constants
        model, kernel = setup.model, constants.kernel(setup.numerics.kernel)
        card, link = (
            constants.card(setup.accelerator),
            constants.link(setup.interconnect, setup.accelerator, setup.num_shard),
        )
        tera = 1e12 * card.compute * self.engine.compute
        self._tensor_flops = peak_tflops(setup.accelerator, setup.numerics) * tera * kernel.compute * self.shards
        peak16 = setup.accelerator.fp16_tflops or 1.0
        self._flops16 = peak16 * tera * self.shards
        self._attention_flops = peak16 * 1e12 * min(card.attention, card.compute) * self.shards
        plain = setup.accelerator.bandwidth_gb_s * 1e9 * card.bandwidth * self.shards
        self._bandwidth16 = plain
        self._bandwidth = self._bandwidth16 * kernel.bandwidth
        self._cache_bandwidth = plain * self.engine.cache
        self._latency_s, self._bus = link.latency_us * 1e-6, link.bus_gb_s(self.shards) * 1e9
        self._expert_share, self._host = self.engine.experts, card.host
        self._launch_s = self.engine.floor_ms * 1e-3 + setup.layer_products * kernel.linear_us * 1e-6
        self._count(model)
        small = is_small(setup.accelerator)
        self.max_batch = (small and self.engine.small_max_batch) or self.engine.max_batch
        own_chunk = (small and self.engine.small_chunk_tokens) or self.engine.chunk_tokens
        self.chunk_tokens = setup.prefill_tokens or own_chunk
        self._window_share = constants.window_share(model.model_type) if model.sliding_window else 0.0

    def _count(self, model: ModelSpec) -> None:
        numerics = self.setup.numerics
        self._head = model.vocab_size * model.hidden_size
        tables = self._head * (1 if model.tied_embeddings else 2)
        self._expert = 3 * model.hidden_size * model.expert_intermediate_size * sizes.expert_layers(model)
        self._expert_s = self.engine.expert_us * 1e-6 * sizes.expert_layers(model)
        self._dense = model.parameters - tables - self._expert * model.experts
        if model.experts and model.active_parameters:  # excludes prediction layers
            self._dense = model.active_parameters - tables - self._expert * model.experts_per_token
        self._dense = max(0, self._dense)  # dimensions and counts can contradict each other
        self._dense_bytes = self._dense * numerics.linear_bits / 8
        if model.quantized_bytes and numerics.linear_bits < SIXTEEN_BITS.linear_bits and not model.experts:
            # A packed checkpoint leaves some layers in 16 bits: Llama-3.1-405B-FP8 all of its attention.
            self._dense_bytes = model.quantized_bytes + max(0, self._dense - model.quantized_parameters) * _BYTES_16
        self.weight_bytes = (
            self._dense_bytes + self._expert * model.experts * numerics.expert_bits / 8 + tables * _BYTES_16
        )  # fmt: skip
        self.kv_bytes = kv_bytes_per_token(model, numerics.kv_bits, self.shards)
        self._host_s = (self.engine.step_ms * 1e3 + self.engine.layer_us * model.layers) * 1e-6

    def kv_capacity_tokens(self) -> float:
        """Return the KV cache tokens on all accelerators, within the engine's share of memory; negative: no room."""
        engine, model = self.engine, self.setup.model
        layer = 6 * model.hidden_size + 3 * model.intermediate_size / self.shards
        prefill = min(self.chunk_tokens, _LARGEST_PREFILL_TOKENS) * layer * _BYTES_16
        total, taken = self.setup.accelerator.memory_bytes, engine.overhead_gb * 1e9 + prefill
        weights = self.weight_bytes / self.shards
        if engine.share_of_free:
            each = (total - weights - taken) * engine.memory_share
        else:
            each = total * engine.memory_share - weights - taken
        return each * self.shards / self.kv_bytes

    def _touched(self, tokens: float) -> float:
        """Return the number of a layer's experts that `tokens` tokens are routed to."""
        model = self.setup.model
        if not model.experts:
            return 0.0
        missed = 1 - model.experts_per_token / model.experts
        return model.experts * float(1 - missed**tokens)

    def stream_s(self, tokens: float) -> float:
        touched = self._touched(tokens)
        experts = touched * self._expert * self.setup.numerics.expert_bits / 8
        streamed = (self._dense_bytes + experts) / self._bandwidth + _BYTES_16 * self._head / self._bandwidth16
        return streamed + touched * self._expert_s

    def products_s(self, tokens: float) -> float:
        """Return the seconds of the layers' matrix products.

        Experts have many small ones: fewer bits help half as much.
        """
        dense = self._dense / self._tensor_flops
        rate = math.sqrt(self._flops16 * self._tensor_flops) * self._expert_share
        grouped = self._expert * self.setup.model.experts_per_token / rate
        return 2 * tokens * (dense + grouped)

    def head_s(self, tokens: float) -> float:
        return 2 * tokens * self._head / self._flops16

    def all_reduce_s(self, tokens: float) -> float:
        if self.shards == 1:
            return 0.0
        message = tokens * self.setup.model.hidden_size * _BYTES_16
        ring = 2 * (self.shards - 1) / self.shards * message / self._bus
        return _ALL_REDUCES_PER_LAYER * self.setup.model.layers * (self._latency_s + ring)

    def seen(self, context: float) -> float:
        """Return the average number of tokens that a layer attends to."""
        window = self.setup.model.sliding_window
        if not window or context <= window:
            return context
        return self._window_share * window + (1 - self._window_share) * context

    def cache_s(self, batch: float, context: float) -> float:
        model, engine = self.setup.model, self.engine
        group = model.attention_heads / model.kv_heads
        bits = self.setup.numerics.kv_bits
        shrunk = (16.0 - (16.0 - bits) * engine.narrow_cache) / bits
        again = 1 + engine.reread * (group - 1)
        return batch * self.seen(context) * self.kv_bytes * shrunk * again / self._cache_bandwidth

    def host_s(self, batch: float, *, served: bool = False) -> float:
        """Return the host's time for the running requests between two steps."""
        a_request = self.engine.request_us + (self.engine.served_us if served else 0.0)
        return self._host * a_request * 1e-6 * batch

    def step_s(self, batch: float, context: float, *, served: bool = False) -> float:
        """Return the seconds of a decoding step of `batch` requests with `context` tokens on average.

        Kernels run while the host launches the next ones; tokens are chosen and sent when both are done.
        """
        matrices = _overlapped(self.stream_s(batch), self.products_s(batch) + self.head_s(batch), self.engine.overlap)
        step = matrices + self.cache_s(batch, context) + self.all_reduce_s(batch) + self._host_s
        return max(step, self.floor_s(batch)) + self.host_s(batch, served=served)

    def floor_s(self, batch: float) -> float:
        """Return the minimum time to launch a step's kernels one by one; 0 with CUDA graphs."""
        if batch <= self.engine.graph_batch:
            return 0.0
        return self._launch_s * self.setup.model.layers

    def attention_s(self, prompt: float) -> float:
        model = self.setup.model
        width = model.attention_heads * model.head_dim
        pairs = prompt * min(prompt, 2 * self.seen(prompt))
        return 2 * pairs * model.layers * width / self._attention_flops

    def prompt_products_s(self, prompt: float) -> float:
        """Return a prompt's own share of a prefill on the accelerators, which can't be shared with running requests."""
        return self.products_s(prompt) + self.attention_s(prompt) + self.head_s(1) + self.all_reduce_s(prompt)

    def prompt_host_s(self) -> float:
        return self.engine.prompt_ms * 1e-3

    def prompt_s(self, prompt: float) -> float:
        return self.prompt_products_s(prompt) + self.prompt_host_s()

    def prefill_s(self, prompts: float, prompt: float) -> float:
        """Return the seconds of a prefill of `prompts` prompts that enter together while nothing else runs.

        A matrix is streamed while it is multiplied with many tokens: the shorter of the two is partly hidden.
        """
        tokens = prompts * prompt
        chunks = max(1.0, math.ceil(tokens / self.chunk_tokens))
        sweeps, products = chunks * self.stream_s(min(tokens, self.chunk_tokens)), prompts * self.products_s(prompt)
        other = prompts * self.prompt_s(prompt) - products + chunks * self._host_s
        return max(math.hypot(sweeps, products) + other, self.floor_s(math.inf))


def _overlapped(one_s: float, other_s: float, overlap: float) -> float:
    """Return the seconds for both: their sum if `overlap` is 1, closer to the longer of the two above that."""
    if overlap == 1:
        return one_s + other_s
    return float((one_s**overlap + other_s**overlap) ** (1 / overlap))


def is_small(accelerator: Accelerator) -> bool:
    """Return whether an engine uses its defaults for small GPUs: below 70 GiB, or an A100."""
    return accelerator.memory_bytes < _SMALL_CARD_BYTES or accelerator.architecture == "Ampere"


def kv_bytes_per_token(model: ModelSpec, kv_bits: float, num_shard: int) -> float:
    """Return a token's KV cache on all accelerators together; heads are copied if there are fewer than accelerators."""
    if model.kv_lora_rank:
        return model.layers * (model.kv_lora_rank + LATENT_ROPE_DIM) * kv_bits / 8 * num_shard
    heads = max(model.kv_heads, num_shard)
    return 2 * model.layers * heads * model.head_dim * kv_bits / 8


def peak_tflops(accelerator: Accelerator, numerics: Numerics) -> float:
    """Return the dense peak in the kernels' format. A GPU without published tensor figures counts as 1 TFLOPS."""
    wanted = {"fp8": accelerator.fp8_tflops, "int8": accelerator.int8_tops}.get(numerics.products)
    return wanted or accelerator.fp16_tflops or 1.0
