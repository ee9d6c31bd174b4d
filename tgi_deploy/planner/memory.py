"""Memory of one accelerator, by parts.

The engine loads the weights, runs one warm-up prefill, and gives everything that then remains of its share to the KV
cache (TGI `flash_causal_lm.py` and `globals.py`, read at 3.3.7):

    kv_cache = share x total - weights - activation_peak - overhead

Constants and where they come from:

* activations: the largest prefill batch holds about `6 hidden + 3 intermediate / shards` 16-bit values a token, twice
  (measured: Llama-3.1-8B on one A10G leaves 19,056 tokens of KV cache after an 8,300-token warm-up, which is 265 kB a
  prefill token where the count of live tensors alone gives 135 kB);
* overhead: 1 GiB for the CUDA context, fragmentation and graphs on one accelerator, half a GiB more for NCCL buffers
  when several work together (engine logs: 0.5 GiB at two accelerators).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.types import MemoryBudget

if TYPE_CHECKING:
    from tgi_deploy.planner.quantization import Scheme
    from tgi_deploy.planner.types import ModelSpec

GIB: Final = 1024**3
_BYTES_16_BIT: Final = 2
_CONTEXT_BYTES: Final = GIB
_COLLECTIVES_BYTES: Final = GIB // 2
_LIVE_COPIES: Final = 2
_LOGIT_BYTES: Final = 8  # float32 logits and their log-softmax


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How the engine lays a model out over accelerators. `kv_bytes` is the size of one cached value."""

    num_shard: int
    share: float
    workspace_bytes: int
    block_tokens: int
    kv_bytes: int = _BYTES_16_BIT
    replicated_kv: bool = False


def memory_budget(
    model: ModelSpec,
    scheme: Scheme,
    layout: Layout,
    *,
    total_bytes: int,
    prefill_tokens: int,
    required_tokens: int,
    concurrency: int,
) -> MemoryBudget:
    """The budget of one accelerator of `total_bytes` usable memory."""
    weights = weights_bytes(model, scheme, layout.num_shard)
    activations = activation_bytes(model, layout.num_shard, prefill_tokens, concurrency)
    overhead = _CONTEXT_BYTES + layout.workspace_bytes + (_COLLECTIVES_BYTES if layout.num_shard > 1 else 0)
    reserved = total_bytes - int(total_bytes * layout.share)
    kv_cache = total_bytes - reserved - weights - activations - overhead
    per_token = kv_bytes_per_token(model, layout)
    blocks = max(0, kv_cache) // (per_token * layout.block_tokens)
    return MemoryBudget(
        total_bytes=total_bytes,
        reserved_bytes=reserved,
        weights_bytes=weights,
        activation_bytes=activations,
        overhead_bytes=overhead,
        kv_cache_bytes=kv_cache,
        kv_bytes_per_token=per_token,
        kv_capacity_tokens=blocks * layout.block_tokens,
        required_kv_tokens=required_tokens,
    )


def weights_bytes(model: ModelSpec, scheme: Scheme, num_shard: int) -> int:
    """Weights on one accelerator. Embeddings and head stay 16-bit and are both held even when tied.

    The embedding is split over the vocabulary with padding; the head is split only where the vocabulary divides,
    otherwise every rank holds all of it (TGI `layers/tensor_parallel.py`).
    """
    table = model.vocab_size * model.hidden_size
    linear = model.parameters - table * (1 if model.tied_embeddings else 2)
    split_rows = -(-model.vocab_size // num_shard)
    head_rows = split_rows if model.vocab_size % num_shard == 0 else model.vocab_size
    tables = (split_rows + head_rows) * model.hidden_size * _BYTES_16_BIT
    return int(linear * scheme.bits / 8 / num_shard) + tables


def total_weights_bytes(model: ModelSpec, scheme: Scheme) -> int:
    """What has to be downloaded and stored: the checkpoint's own size on the hub, twice where it is converted."""
    table = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)
    stored_bits = scheme.bits if scheme.prequantized else _stored_bits(model)
    if not scheme.prequantized and model.stored_bytes:
        return model.stored_bytes * (2 if model.needs_conversion else 1)
    return int((model.parameters - table) * stored_bits / 8) + table * _BYTES_16_BIT


def _stored_bits(model: ModelSpec) -> float:
    return 32.0 if model.torch_dtype == "float32" else 16.0


def activation_bytes(model: ModelSpec, num_shard: int, prefill_tokens: int, rows: int) -> int:
    """The peak of the warm-up prefill."""
    feed_forward = model.intermediate_size
    if model.experts:
        feed_forward = max(model.expert_intermediate_size * model.experts_per_token, feed_forward)
    values = 6 * model.hidden_size + 3 * feed_forward // num_shard
    return prefill_tokens * values * _BYTES_16_BIT * _LIVE_COPIES + rows * model.vocab_size * _LOGIT_BYTES


def kv_bytes_per_token(model: ModelSpec, layout: Layout) -> int:
    """KV cache of one token on one accelerator: 2 x layers x heads held x head_dim x bytes a value.

    Exact against engine logs (Qwen2.5-7B 57,344 bytes). TGI caches DeepSeek's expanded heads, not their latents.
    """
    heads = model.kv_heads if layout.replicated_kv else max(1, model.kv_heads // layout.num_shard)
    return 2 * model.layers * heads * model.head_dim * layout.kv_bytes
