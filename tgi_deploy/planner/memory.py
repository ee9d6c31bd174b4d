"""Memory of one accelerator, by parts.

The engine loads the weights, runs one warm-up prefill, and gives everything that then remains of its share to the KV
cache (TGI `flash_causal_lm.py` and `globals.py`, read at 3.3.7):

    kv_cache = share x total - weights - activation_peak - overhead

The share is the release's own rule (0.90 to 0.95 of the total) times `--cuda-memory-fraction`. Constants, and where
they come from:

* warm-up: a layer in flight holds about `6 hidden + 3 intermediate / shards` 16-bit values a token, and the caching
  allocator about as much again (Llama-3.1-8B on one L4, TGI 3.0: "30k tokens" in the release notes of 3.0). Before
  3.0, or with `--enable-prefill-logprobs`, the engine also wants the log-probability of every token of that batch:
  its logits exist in 16 bits and, as log-softmax, in 32 (the same model on one A10G, TGI 2.2: 19,056 tokens in its
  log).
* context: what the driver keeps of the total it prints (0.3 to 0.5 GiB: 23,034 against 22,559 MiB on an L4) and a
  CUDA context with its libraries.
* CUDA graphs: 1.2 MiB a layer and captured batch size (a 60-layer model with 35 sizes took 2,464 MiB a card). The
  engine takes them out of what it leaves alone; counting them keeps a plan from living on that reserve.
* collectives: NCCL's buffers (engine logs: 0.4 to 0.5 GiB at two cards), more with more ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.planner.engine import graph_batches
from tgi_deploy.planner.types import MemoryBudget
from tgi_deploy.values import sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.planner.quantization import Scheme
    from tgi_deploy.planner.types import EngineRelease
    from tgi_deploy.values.model import ModelSpec

MIB: Final = 1024**2
GIB: Final = 1024**3
PROMPT_LOGPROBS_FLAG: Final = "--enable-prefill-logprobs"
CONTEXT_BYTES: Final = 870 * MIB
GRAPH_BYTES_PER_LAYER: Final = 12 * MIB // 10
COLLECTIVES_BYTES: Final = GIB // 2
COLLECTIVES_BYTES_PER_FURTHER_RANK: Final = GIB // 16
_LIVE_COPIES: Final = 2
WARM_UP_LOGIT_BYTES: Final = 6  # 16-bit logits and their 32-bit log-softmax
_SAMPLED_LOGIT_BYTES: Final = 8  # 32-bit logits and their log-softmax
_BYTES_16_BIT: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How the engine lays a model out over accelerators.

    `kv_bytes` is the size of one cached value; with `prompt_logprobs` the warm-up scores every token of its batch.
    """

    num_shard: int
    share: float
    workspace_bytes: int
    block_tokens: int
    kv_bytes: int = _BYTES_16_BIT
    replicated_kv: bool = False
    prompt_logprobs: bool = False


def scores_prompts(release: EngineRelease, pins: Mapping[str, str]) -> bool:
    """Whether log-probabilities of prompts are computed: always, until a flag of the release turns them on."""
    return PROMPT_LOGPROBS_FLAG not in release.flags or pins.get(PROMPT_LOGPROBS_FLAG) == "true"


def memory_budget(  # noqa: PLR0913 -- one keyword a fact of the wish or the card
    model: ModelSpec,
    scheme: Scheme,
    layout: Layout,
    *,
    total_bytes: int,
    prefill_tokens: int,
    required_tokens: int,
    concurrency: int,
    request_tokens: int = 0,
) -> MemoryBudget:
    """The budget of one accelerator of `total_bytes` memory.

    `request_tokens` is the promised length of each of `concurrency` requests; every request takes whole blocks.
    """
    weights = weights_bytes(model, scheme, layout.num_shard)
    activations = activation_bytes(
        model, layout.num_shard, prefill_tokens, concurrency, prompt_logprobs=layout.prompt_logprobs
    )
    graphs, collectives = graph_bytes(model, scheme, concurrency), collective_bytes(layout.num_shard)
    overhead = CONTEXT_BYTES + layout.workspace_bytes + graphs + collectives
    reserved = total_bytes - int(total_bytes * layout.share)
    kv_cache = total_bytes - reserved - weights - activations - overhead
    per_token, block = kv_bytes_per_token(model, layout), layout.block_tokens
    capacity = max(0, kv_cache) // (per_token * block) * block
    request = -(-request_tokens // block) * block
    return MemoryBudget(
        total_bytes=total_bytes,
        reserved_bytes=reserved,
        weights_bytes=weights,
        activation_bytes=activations,
        overhead_bytes=overhead,
        kv_cache_bytes=kv_cache,
        kv_bytes_per_token=per_token,
        kv_capacity_tokens=capacity,
        required_kv_tokens=max(required_tokens, concurrency * request),
        context_bytes=CONTEXT_BYTES,
        workspace_bytes=layout.workspace_bytes,
        graph_bytes=graphs,
        collective_bytes=collectives,
        load_peak_bytes=weights + CONTEXT_BYTES + collectives + _loading_extra_bytes(model, scheme, layout.num_shard),
        largest_context_tokens=min(capacity, model.max_position_embeddings),
        largest_concurrency=capacity // request if request else 0,
    )


def weights_bytes(model: ModelSpec, scheme: Scheme, num_shard: int) -> int:
    """Weights on one accelerator, as TGI lays them out (`values.sizes`): tied or not, it holds embedding and head."""
    counts = sizes.count(model)
    linear = _linear_bytes(model, scheme, counts)
    return sizes.resident_bytes(model, linear, counts, num_shard, tied_once=False)


def total_weights_bytes(model: ModelSpec, scheme: Scheme) -> int:
    """What has to be downloaded and stored: the checkpoint's own size on the hub, twice where it is converted."""
    own = scheme.prequantized == (model.quantization is not None)
    if own and model.stored_bytes:
        return model.stored_bytes * (2 if model.needs_conversion else 1)
    counts = sizes.count(model)
    if scheme.prequantized:
        return sizes.stored_bytes(_linear_bytes(model, scheme, counts), counts)
    return model.parameters * (4 if model.torch_dtype == "float32" else 2)


def _linear_bytes(model: ModelSpec, scheme: Scheme, counts: sizes.Counts) -> float:
    """All linear layers together; exact where the checkpoint's own headers were read."""
    if scheme.prequantized and model.quantization is not None and model.quantized_bytes:
        return model.quantized_bytes + max(0, counts.linear - model.quantized_parameters) * _BYTES_16_BIT
    return sizes.linear_bytes(model, counts, sizes.uniform(scheme.bits))


def _loading_extra_bytes(model: ModelSpec, scheme: Scheme, num_shard: int) -> int:
    bits = sizes.SIXTEEN_BITS if scheme.rule is not None and not scheme.prequantized else scheme.bits
    return sizes.loading_extra_bytes(model, bits, num_shard, repacked=scheme.rule is not None)


def activation_bytes(
    model: ModelSpec, num_shard: int, prefill_tokens: int, rows: int, *, prompt_logprobs: bool = False
) -> int:
    """The largest peak: a layer of the warm-up prefill in flight, its logits, or sampling `rows` requests."""
    layer = prefill_tokens * layer_values(model, num_shard) * _BYTES_16_BIT * _LIVE_COPIES
    sampled = rows * model.vocab_size * _SAMPLED_LOGIT_BYTES
    if not prompt_logprobs:
        return max(layer, sampled)
    held = 2 * model.hidden_size * _BYTES_16_BIT
    return max(layer, sampled, prefill_tokens * (model.vocab_size * WARM_UP_LOGIT_BYTES + held))


def layer_values(model: ModelSpec, num_shard: int) -> int:
    """16-bit values a layer in flight holds for each token."""
    feed_forward = model.intermediate_size
    if model.experts:
        feed_forward = max(model.expert_intermediate_size * model.experts_per_token, feed_forward)
    return 6 * model.hidden_size + 3 * feed_forward // num_shard


def graph_bytes(model: ModelSpec, scheme: Scheme, concurrency: int) -> int:
    if scheme.rule is not None and not scheme.rule.cuda_graphs:
        return 0
    return len(graph_batches(concurrency, supported=True)) * model.layers * GRAPH_BYTES_PER_LAYER


def collective_bytes(num_shard: int) -> int:
    if num_shard == 1:
        return 0
    return COLLECTIVES_BYTES + (num_shard - 2) * COLLECTIVES_BYTES_PER_FURTHER_RANK


def kv_bytes_per_token(model: ModelSpec, layout: Layout) -> int:
    """KV cache of one token on one accelerator: 2 x layers x heads held x head_dim x bytes a value.

    Exact against engine logs (Qwen2.5-7B 57,344 bytes). TGI caches DeepSeek's expanded heads, not their latents.
    """
    heads = model.kv_heads if layout.replicated_kv else max(1, model.kv_heads // layout.num_shard)
    return 2 * model.layers * heads * model.head_dim * layout.kv_bytes
