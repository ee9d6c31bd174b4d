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

from typing import TYPE_CHECKING, Final

from tgi_deploy.engines.tgi.kernels import PAGED
from tgi_deploy.engines.tgi.prefill import default_prefill_tokens
from tgi_deploy.values import sizes
from tgi_deploy.values.base import Value
from tgi_deploy.values.engine import DefaultRun, Load, MemoryBudget, Scheme
from tgi_deploy.values.sizes import CONTEXT_BYTES, GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.values.model import ModelSpec

PROMPT_LOGPROBS_FLAG: Final = "--enable-prefill-logprobs"
GRAPH_BYTES_PER_LAYER: Final = 12 * MIB // 10
COLLECTIVES_BYTES: Final = GIB // 2
COLLECTIVES_BYTES_PER_FURTHER_RANK: Final = GIB // 16
WARM_UP_LOGIT_BYTES: Final = 6  # 16-bit logits and their 32-bit log-softmax
_LIVE_COPIES: Final = 2
_SAMPLED_LOGIT_BYTES: Final = 8  # 32-bit logits and their log-softmax
_BYTES_16_BIT: Final = 2
_GRAPH_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_LARGEST_DEFAULT_GRAPH: Final = 32


class Layout(Value, frozen=True, kw_only=True):
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


def scores_prompts(release: TgiRelease, pins: Mapping[str, str]) -> bool:
    """Whether log-probabilities of prompts are computed: always, until a flag of the release turns them on."""
    return PROMPT_LOGPROBS_FLAG not in release.flags or pins.get(PROMPT_LOGPROBS_FLAG) == "true"


def memory_budget(
    model: ModelSpec, scheme: Scheme, layout: Layout, load: Load, *, total_bytes: int, prefill_tokens: int
) -> MemoryBudget:
    """Return the budget of one accelerator of `total_bytes` memory. Every request takes whole blocks."""
    weights = weights_bytes(model, scheme, layout.num_shard)
    activations = activation_bytes(
        model, layout.num_shard, prefill_tokens, load.concurrency, prompt_logprobs=layout.prompt_logprobs
    )
    graphs, collectives = graph_bytes(model, scheme, load.concurrency), collective_bytes(layout.num_shard)
    overhead = CONTEXT_BYTES + layout.workspace_bytes + graphs + collectives
    reserved = total_bytes - int(total_bytes * layout.share)
    kv_cache = total_bytes - reserved - weights - activations - overhead
    per_token = sizes.kv_bytes_per_token(
        model, layout.num_shard, value_bytes=layout.kv_bytes, replicated=layout.replicated_kv
    )
    block = layout.block_tokens
    capacity = max(0, kv_cache) // (per_token * block) * block
    request = -(-load.request_tokens // block) * block
    return MemoryBudget(
        total_bytes=total_bytes,
        reserved_bytes=reserved,
        weights_bytes=weights,
        activation_bytes=activations,
        overhead_bytes=overhead,
        kv_cache_bytes=kv_cache,
        kv_bytes_per_token=per_token,
        kv_capacity_tokens=capacity,
        required_kv_tokens=max(load.required_kv_tokens, prefill_tokens, load.concurrency * request),
        context_bytes=CONTEXT_BYTES,
        workspace_bytes=layout.workspace_bytes,
        graph_bytes=graphs,
        collective_bytes=collectives,
        load_peak_bytes=weights + CONTEXT_BYTES + collectives + _loading_extra_bytes(model, scheme, layout.num_shard),
        largest_context_tokens=min(capacity, model.max_position_embeddings),
        largest_concurrency=capacity // request if request else 0,
    )


def weights_bytes(model: ModelSpec, scheme: Scheme, num_shard: int) -> int:
    """Return the weights on one accelerator, as TGI lays them out: tied or not, it holds embedding and head."""
    counts = sizes.count(model)
    linear = sizes.scheme_linear_bytes(model, scheme, counts)
    return sizes.resident_bytes(model, linear, counts, num_shard, tied_once=False)


def _loading_extra_bytes(model: ModelSpec, scheme: Scheme, num_shard: int) -> int:
    bits = sizes.SIXTEEN_BITS if scheme.method is not None and not scheme.prequantized else scheme.bits
    return sizes.loading_extra_bytes(model, bits, num_shard, repacked=scheme.method is not None)


def activation_bytes(
    model: ModelSpec, num_shard: int, prefill_tokens: int, rows: int, *, prompt_logprobs: bool = False
) -> int:
    """The largest peak: a layer of the warm-up prefill in flight, its logits, or sampling `rows` requests."""
    layer = prefill_tokens * sizes.layer_values(model, num_shard) * _BYTES_16_BIT * _LIVE_COPIES
    sampled = rows * model.vocab_size * _SAMPLED_LOGIT_BYTES
    if not prompt_logprobs:
        return max(layer, sampled)
    held = 2 * model.hidden_size * _BYTES_16_BIT
    return max(layer, sampled, prefill_tokens * (model.vocab_size * WARM_UP_LOGIT_BYTES + held))


def graph_batches(concurrency: int, *, supported: bool) -> tuple[int, ...]:
    """Return decode batches to capture as CUDA graphs: the engine's default list, longer when more run at once."""
    if not supported:
        return (0,)
    largest = max(_LARGEST_DEFAULT_GRAPH, concurrency)
    return tuple(batch for batch in _GRAPH_BATCHES if batch <= largest)


def graph_bytes(model: ModelSpec, scheme: Scheme, concurrency: int) -> int:
    if not scheme.cuda_graphs:
        return 0
    return len(graph_batches(concurrency, supported=True)) * model.layers * GRAPH_BYTES_PER_LAYER


def collective_bytes(num_shard: int) -> int:
    if num_shard == 1:
        return 0
    return COLLECTIVES_BYTES + (num_shard - 2) * COLLECTIVES_BYTES_PER_FURTHER_RANK


def default_memory(run: DefaultRun, release: TgiRelease) -> MemoryBudget:
    """Return the memory of a release that is left to its own defaults."""
    model_class = release.model_classes.get(run.model.model_type)
    layout = Layout(
        num_shard=run.num_shard, share=release.memory_share * run.share, workspace_bytes=release.workspace_bytes,
        block_tokens=release.block_tokens.get(release.default_attention or PAGED, 1),
        replicated_kv=model_class.replicated_kv if model_class else False,
        prompt_logprobs=scores_prompts(release, {}),
    )  # fmt: skip
    prefill = run.prefill_tokens
    if release.chunked_prefill:
        prefill = default_prefill_tokens(run.model, run.accelerator, run.num_shard, run.total_bytes)
    scheme = Scheme(name="as stored", hub_id=run.model.hub_id, bits=run.bits, lost_bits=0.0, prequantized=False)
    load = Load(input_tokens=0, output_tokens=0, concurrency=1, context_tokens=0)
    return memory_budget(run.model, scheme, layout, load, total_bytes=run.total_bytes, prefill_tokens=prefill)
