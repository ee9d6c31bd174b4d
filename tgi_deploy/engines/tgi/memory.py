"""Memory of one accelerator by parts, as TGI's warm-up uses and measures it.

The engine loads the weights, prefills one batch of the largest prompts with their whole KV cache, and then measures the
free memory. Up to 2.4.1 the cache gets a share of *that*; since 3.0.0 a share of the *total* is reserved first
(`flash_causal_lm.py` `warmup`, `import_utils.py` `get_cuda_free_memory`, `globals.py`, read at each release). CUDA
graphs are captured afterwards, in the reserved part. Constants and their sources:

* the warm-up batch adds requests of `max_total_tokens` until their prompts fill the prefill batch
  (`grpc_client.rs` `warmup`);
* a running layer: the caching allocator keeps the blocks of one layer's tensors, which fit no other tensor;
* scores of prompts: `generate_token` computes the log-probability of every prompt token before 3.0, or with
  `--enable-prefill-logprobs`. Up to 2.3.1 they are a copy of the logits; a gathered head adds a contiguous copy;
* context: by release, from startup logs; it includes the driver's part of the reported total;
* CUDA graphs: 1.2 MiB a layer and captured batch size (a 60-layer model with 35 sizes took 2,464 MiB a card);
* collectives: NCCL's buffers (engine logs: 0.4 to 0.5 GiB at two cards), more with more ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.engines.tgi.kernels import PADDED, PAGED
from tgi_deploy.engines.tgi.prefill import default_prefill_tokens
from tgi_deploy.engines.tgi.release import ModelClass, TgiRelease
from tgi_deploy.values import sizes
from tgi_deploy.values.base import Value
from tgi_deploy.values.engine import DefaultRun, Load, MemoryBudget, Scheme
from tgi_deploy.values.sizes import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.values.model import ModelSpec

PROMPT_LOGPROBS_FLAG: Final = "--enable-prefill-logprobs"
GRAPH_BYTES_PER_LAYER: Final = 12 * MIB // 10
COLLECTIVES_BYTES: Final = GIB // 2
COLLECTIVES_BYTES_PER_FURTHER_RANK: Final = GIB // 16
_SAMPLED_LOGIT_BYTES: Final = 8  # 32-bit logits and their log-softmax
_BYTES_16_BIT: Final = 2
_GRAPH_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_LARGEST_DEFAULT_GRAPH: Final = 32
_OLD_DEFAULT_MARGIN: Final = 50  # before 3.0 the launcher adds it to the longest prompt for the prefill batch
# Differences from startup logs: a constant, and a share of the activations.
_UNCERTAIN_BYTES: Final = 256 * MIB
_UNCERTAIN_SHARE: Final = 4


class Layout(Value, frozen=True, kw_only=True):
    """How a release lays a model out over accelerators.

    `fraction` is the share of memory that the user allows, `kv_bytes` the size of one cached value; with
    `prompt_logprobs` the warm-up scores every token of its batch.
    """

    release: TgiRelease
    model_class: ModelClass
    num_shard: int
    attention: str
    fraction: float = 1.0
    kv_bytes: int = _BYTES_16_BIT
    prompt_logprobs: bool = False

    @property
    def block_tokens(self) -> int:
        return self.release.block_tokens.get(self.attention, 1)


class WarmUp(Value, frozen=True, kw_only=True):
    """The engine's warm-up batch: prompts of at most `prompt_tokens`, each with its answer."""

    prefill_tokens: int
    prompt_tokens: int
    total_tokens: int

    @property
    def requests(self) -> int:
        return -(-self.prefill_tokens // max(1, self.prompt_tokens))

    @property
    def longest(self) -> int:
        return min(self.prefill_tokens, self.prompt_tokens)

    def cached_tokens(self, block: int) -> int:
        """Return the KV cache of the batch: its prompts, and answers as long as the limit on the total allows."""
        return self.requests * (-(-max(self.total_tokens - 1, self.longest) // block) * block)


def scores_prompts(release: TgiRelease, pins: Mapping[str, str], attention: str) -> bool:
    """Return whether prompts get log-probabilities: always, unless the release has a flag to enable them.

    Padded models (`causal_lm.py`) have no such flag.
    """
    if attention == PADDED or PROMPT_LOGPROBS_FLAG not in release.flags:
        return True
    return pins.get(PROMPT_LOGPROBS_FLAG) == "true"


def memory_budget(
    model: ModelSpec, scheme: Scheme, layout: Layout, load: Load, *, total_bytes: int, warm_up: WarmUp
) -> MemoryBudget:
    """Return the budget of one accelerator with `total_bytes` memory. Requests use whole blocks."""
    weights = weights_bytes(model, scheme, layout)
    graphs = graph_bytes(model, load.concurrency, supported=has_graphs(scheme, layout.model_class))
    collectives, workspace = collective_bytes(layout.num_shard), layout.release.workspace_bytes
    context = layout.release.context_bytes
    per_token = sizes.kv_bytes_per_token(
        model, layout.num_shard, value_bytes=layout.kv_bytes, replicated=layout.model_class.replicated_kv
    )
    block = layout.block_tokens
    cached = warm_up.cached_tokens(block)
    request = -(-load.request_tokens // block) * block
    unallocated = total_bytes - weights - context - workspace - collectives
    # Queued requests are not sampled: at most as many run as the cache holds.
    running = min(load.concurrency, max(1, unallocated // (per_token * max(1, request))))
    activations = activation_bytes(model, scheme, layout, warm_up, running)
    left = unallocated - activations
    reserved = max(graphs, _reserved_bytes(layout, total_bytes, left - cached * per_token))
    kv_cache = left - reserved
    capacity = max(0, kv_cache) // (per_token * block) * block
    return MemoryBudget(
        total_bytes=total_bytes,
        reserved_bytes=reserved - graphs,
        weights_bytes=weights,
        activation_bytes=activations,
        overhead_bytes=context + workspace + graphs + collectives,
        kv_cache_bytes=kv_cache,
        kv_bytes_per_token=per_token,
        kv_capacity_tokens=capacity,
        required_kv_tokens=max(load.context_tokens, cached, request),
        context_bytes=context,
        workspace_bytes=workspace,
        graph_bytes=graphs,
        collective_bytes=collectives,
        load_peak_bytes=weights + context + collectives + _loading_extra_bytes(model, scheme, layout.num_shard),
        largest_context_tokens=min(capacity, model.max_position_embeddings),
        largest_concurrency=capacity // request if request else 0,
        uncertainty_bytes=_UNCERTAIN_BYTES + activations // _UNCERTAIN_SHARE,
    )


def _reserved_bytes(layout: Layout, total_bytes: int, free_bytes: int) -> int:
    """Return the reserved memory: a share of the total, or of what is free after the warm-up."""
    kept = int(total_bytes * (1 - layout.fraction))
    share = 1 - layout.release.memory_share
    if layout.release.share_of == "total":
        return kept + int((total_bytes - kept) * share)
    return kept + int(max(0, free_bytes - kept) * share)


def weights_bytes(model: ModelSpec, scheme: Scheme, layout: Layout) -> int:
    """Return the size of the weights on one accelerator in the class's backend."""
    counts = sizes.count(model)
    linear = sizes.scheme_linear_bytes(model, scheme, counts)
    if layout.model_class.backend == "native":
        # The class holds embedding and head even if tied; the vision tower is split like other layers.
        plain = sizes.resident_bytes(model, linear, counts, layout.num_shard, tied_once=False, split_vision=True)
        saved = sizes.head_rows(model, layout.num_shard) * model.hidden_size * (_BYTES_16_BIT - scheme.bits / 8)
        return plain - (int(saved) if scheme.packs_head else 0)
    return _transformers_weights_bytes(model, scheme, linear, layout)


def _transformers_weights_bytes(model: ModelSpec, scheme: Scheme, linear: float, layout: Layout) -> int:
    """Return the size; transformers' `base_model_tp_plan` splits only linear layers, not the embedding."""
    counts, ranks = sizes.count(model), layout.num_shard
    experts = counts.experts * scheme.bits / 8 if layout.model_class.whole_experts else 0.0
    head = 0 if model.tied_embeddings else -(-counts.table // ranks)
    whole = counts.replicated + counts.vision + counts.table + head
    return int((linear - experts) / ranks + experts) + whole * _BYTES_16_BIT


def _loading_extra_bytes(model: ModelSpec, scheme: Scheme, num_shard: int) -> int:
    bits = sizes.SIXTEEN_BITS if scheme.method is not None and not scheme.prequantized else scheme.bits
    return sizes.loading_extra_bytes(model, bits, num_shard, repacked=scheme.method is not None)


def activation_bytes(model: ModelSpec, scheme: Scheme, layout: Layout, warm_up: WarmUp, rows: int) -> int:
    """Return the larger of the warm-up prefill (a layer, with masks and scores) and sampling for `rows` requests."""
    layer = warm_up.prefill_tokens * layer_bytes(model, scheme, layout)
    image = layout.model_class.image_bytes // layout.num_shard
    prefill = max(layer, image) + _mask_bytes(model, layout, warm_up)
    if layout.prompt_logprobs:
        prefill += warm_up.prefill_tokens * _scores_bytes_per_token(model, layout)
    return max(prefill, rows * model.vocab_size * _SAMPLED_LOGIT_BYTES)


def layer_bytes(model: ModelSpec, scheme: Scheme, layout: Layout) -> int:
    """Return a running layer's bytes per token: hidden states, queries to values, the feed-forward block.

    Gate and up projection, the activation and their product are live together. Fused experts hold the intermediate
    states of the selected ones; if all experts run, one at a time, or all at once if gathered.
    """
    ranks, hidden = layout.num_shard, model.hidden_size
    attention = (model.attention_heads + 2 * model.kv_heads) * model.head_dim // ranks
    feed_forward = 4 * model.intermediate_size // ranks
    if model.experts:
        width, experts = model.expert_intermediate_size, layout.model_class.experts
        if experts == "gathered":
            feed_forward = model.experts * (3 * hidden + 4 * width // ranks)
        elif experts == "fused" and not runs_all_experts(model, scheme, layout.model_class):
            feed_forward = max(feed_forward, model.experts_per_token * (3 * width // ranks + hidden))
        else:
            feed_forward = max(feed_forward, 4 * width // (1 if layout.model_class.whole_experts else ranks))
    return (6 * hidden + attention + feed_forward) * _BYTES_16_BIT


def runs_all_experts(model: ModelSpec, scheme: Scheme, model_class: ModelClass) -> bool:
    """Return whether every token uses every expert: gathered ones, and those without a fused kernel."""
    if not model.experts or model_class.experts == "looped":
        return False
    fused = scheme.method is None or (scheme.fused_experts and model_class.fused_quantized)
    return model_class.experts == "gathered" or not fused


def _mask_bytes(model: ModelSpec, layout: Layout, warm_up: WarmUp) -> int:
    """Return the size of a vision class's explicit masks for token pairs, and of the resulting scores."""
    a_pair = layout.model_class.mask_bytes
    a_pair += layout.model_class.mask_bytes_per_head * model.attention_heads // layout.num_shard
    return a_pair * warm_up.requests * warm_up.longest**2


def _scores_bytes_per_token(model: ModelSpec, layout: Layout) -> int:
    """Return the size of 16-bit logits and their log-softmax; a gathered head is transposed and thus copied."""
    ranks, copies = layout.num_shard, layout.release.score_copies
    if ranks == 1 or model.vocab_size % ranks:
        return model.vocab_size * _BYTES_16_BIT * copies
    return model.vocab_size * _BYTES_16_BIT * 3 + model.vocab_size * _BYTES_16_BIT // ranks


def has_graphs(scheme: Scheme, model_class: ModelClass) -> bool:
    return scheme.cuda_graphs and model_class.cuda_graphs


def graph_batches(concurrency: int, *, supported: bool) -> tuple[int, ...]:
    """Return the batch sizes to capture as CUDA graphs: the default list, extended if more run at once."""
    if not supported:
        return (0,)
    largest = max(_LARGEST_DEFAULT_GRAPH, concurrency)
    return tuple(batch for batch in _GRAPH_BATCHES if batch <= largest)


def graph_bytes(model: ModelSpec, concurrency: int, *, supported: bool) -> int:
    if not supported:
        return 0
    return len(graph_batches(concurrency, supported=True)) * model.layers * GRAPH_BYTES_PER_LAYER


def collective_bytes(num_shard: int) -> int:
    if num_shard == 1:
        return 0
    return COLLECTIVES_BYTES + (num_shard - 2) * COLLECTIVES_BYTES_PER_FURTHER_RANK


def own_prefill_tokens(run: DefaultRun, release: TgiRelease) -> int:
    """Return the launcher's default, which depends on GPU and model with chunked prefill."""
    if not release.chunked_prefill:
        return run.prefill_tokens
    return default_prefill_tokens(run.model, run.accelerator, run.num_shard, run.total_bytes)


def default_memory(run: DefaultRun, release: TgiRelease) -> MemoryBudget:
    """Return the memory of a release with its default settings."""
    attention = release.default_attention or PAGED
    layout = Layout(
        release=release, model_class=release.model_class(run.model.model_type), num_shard=run.num_shard,
        attention=attention, fraction=run.share, prompt_logprobs=scores_prompts(release, {}, attention),
    )  # fmt: skip
    prefill = own_prefill_tokens(run, release)
    prompt = prefill if release.chunked_prefill else prefill - _OLD_DEFAULT_MARGIN
    warm_up = WarmUp(prefill_tokens=prefill, prompt_tokens=prompt, total_tokens=prompt + 1)
    scheme = Scheme(name="as stored", hub_id=run.model.hub_id, bits=run.bits, lost_bits=0.0, prequantized=False)
    load = Load(input_tokens=0, output_tokens=0, concurrency=1, context_tokens=0)
    return memory_budget(run.model, scheme, layout, load, total_bytes=run.total_bytes, warm_up=warm_up)
