"""Whether the model fits, and how many tokens of KV cache remain, following TGI's memory allocations step by step.

It loads the weights, prefills the largest batch with its whole KV cache, reads the free memory from the driver, and
gives the cache a share of it (TGI `flash_causal_lm.py` `warmup`, `import_utils.py` `get_cuda_free_memory`, read at
every release). The memory used before any weights and the share are the release's data; NCCL takes 450 MiB of buffers
at two ranks, and 64 MiB for each further one (engine logs: 0.4 to 0.5 GiB at two).

This arithmetic is independent of the planner, because it is used to verify the planner.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from tgi_deploy.engines.tgi.release import QuantizationRule, TgiRelease
    from tgi_deploy.sandbox.engine.situation import Situation
    from tgi_deploy.values.model import ModelSpec

UNQUANTIZED: Final = "none"
_MIB: Final = 1024**2
_COLLECTIVES_BYTES: Final = 450 * _MIB
_FURTHER_RANK_BYTES: Final = 64 * _MIB
_BYTES_16: Final = 2
_BYTES_32: Final = 4
# `quant_method` in config.json if the launcher has another name for it.
_LAUNCHER_NAMES: Final = {"fbgemm_fp8": "fp8"}
# Model classes that copy their single KV head to every rank.
_COPIED_KV_HEAD: Final = frozenset({"gpt_bigcode", "santacoder"})


class Weights(Frozen, frozen=True, kw_only=True):
    """The format of linear layers. `bits` per value include group scales; `rule` is None for unchanged 16 bits.

    `stored`: the checkpoint already has this format; `known`: the release can load it.
    """

    name: str
    bits: float
    stored: bool
    rule: QuantizationRule | None = None
    group_size: int | None = None
    known: bool = True


def stored_weights(model: ModelSpec, release: TgiRelease) -> Weights:
    """Return the format of the files on the hub."""
    stored = model.quantization
    if stored is None:
        return Weights(name=UNQUANTIZED, bits=8.0 * _BYTES_16, stored=True)
    name = _LAUNCHER_NAMES.get(stored.method, stored.method)
    rule = release.quantizations.get(name)
    group = stored.group_size or 0
    bits = stored.bits + (rule.group_overhead_bits / group if rule and group > 0 else 0.0)
    if model.quantized_bytes:  # the headers were read: some layers keep 16 bits
        linear = linear_values(model)
        bits = 8 * (model.quantized_bytes + max(0, linear - model.quantized_parameters) * _BYTES_16) / linear
    known = rule is not None and rule.prequantized
    return Weights(name=name, bits=bits, stored=True, rule=rule, group_size=stored.group_size, known=known)


def quantized_on_load(name: str, release: TgiRelease) -> Weights:
    """Return the format after `--quantize` of 16-bit files."""
    rule = release.quantizations.get(name)
    bits, known = (8.0 * _BYTES_16, False) if rule is None else (rule.bits, rule.on_the_fly)
    return Weights(name=name, bits=bits, stored=False, rule=rule, known=known)


def linear_values(model: ModelSpec) -> int:
    """Return the parameters of linear layers, which quantization packs: all but tables, norms, routers and vision."""
    tables = _table_values(model) * (1 if model.tied_embeddings else 2)
    return model.parameters - tables - _whole_values(model) - model.vision_parameters


def _table_values(model: ModelSpec) -> int:
    return model.vocab_size * model.hidden_size


def _whole_values(model: ModelSpec) -> int:
    """Return the parameters that every rank holds: norms and routers."""
    return model.hidden_size * (2 * model.layers + 1 + model.layers * model.experts)


def checkpoint_bytes(model: ModelSpec, weights: Weights) -> int:
    """Return the size of the files, doubled if the engine converts them first."""
    if model.stored_bytes:
        return model.stored_bytes * (2 if model.needs_conversion else 1)
    plain_bytes = _BYTES_32 if model.torch_dtype == "float32" else _BYTES_16
    linear = linear_values(model)
    packed_bytes = plain_bytes if weights.rule is None else weights.bits / 8
    return int(linear * packed_bytes + (model.parameters - linear) * plain_bytes)


def rank_bytes(situation: Situation) -> int:
    """Return the size on one rank after loading.

    TGI's own classes split tables and vision, and load a tied head a second time; transformers' plan omits them.
    """
    model, weights, native = situation.checkpoint.model, situation.weights, situation.model_class
    ranks, table = situation.num_shard, _table_values(model)
    packed_bytes = _BYTES_16 if weights.rule is None else weights.bits / 8
    linear, whole = linear_values(model), _whole_values(model)
    head = table if model.vocab_size % ranks else table / ranks
    head_bytes: float = _BYTES_16
    if native.backend == "native":
        plain = ceil(model.vocab_size / ranks) * model.hidden_size + model.vision_parameters / ranks
        packs_head = weights.rule is not None and weights.rule.packs_head and not weights.stored
        head_bytes = packed_bytes if packs_head else _BYTES_16
    else:
        plain = table + model.vision_parameters
        head = 0 if model.tied_embeddings else head
    experts = 0
    if native.whole_experts and native.backend != "native":
        experts = min(linear, 3 * model.hidden_size * model.expert_intermediate_size * model.experts * model.layers)
    return int(((linear - experts) / ranks + experts) * packed_bytes + head * head_bytes + (plain + whole) * _BYTES_16)


def _conversion_bytes(situation: Situation) -> int:
    """Return the extra size while converting a layer: its 32-bit file, or its form before quantization."""
    model, weights = situation.checkpoint.model, situation.weights
    widest = max(model.vocab_size, model.intermediate_size) * model.hidden_size / situation.num_shard
    if model.torch_dtype == "float32":
        return int(widest * _BYTES_32)
    return 0 if weights.rule is None or weights.stored else int(widest * _BYTES_16)


def indivisible(model: ModelSpec, weights: Weights, ranks: int) -> tuple[str, int] | None:
    """Return the first dimension that TGI can't split over `ranks`: (name, size)."""
    if model.attention_heads % ranks:
        return "attention heads", model.attention_heads
    if model.kv_heads % ranks and not (model.kv_heads == 1 and model.model_type in _COPIED_KV_HEAD):
        return "KV heads", model.kv_heads
    group = max(0, weights.group_size or 0)
    experts = model.expert_intermediate_size if model.experts else 0
    for width in (model.attention_heads * model.head_dim, model.intermediate_size, experts):
        if width % ranks or (group and width // ranks % group):
            return "width", width
    return None


class Capacity(Frozen, frozen=True, kw_only=True):
    """The cache. `tokens` is the number that every rank can hold, in whole blocks."""

    verdict: Literal["ok", "oom-load", "oom-warmup"]
    tokens: int = 0
    block_tokens: int = 1


def capacity(situation: Situation) -> Capacity:
    release, memory = situation.release, situation.host.memory_bytes
    block = release.block_tokens.get(situation.attention, 1)
    block_bytes = block * _kv_bytes_per_token(situation)
    ranks, (prompt, total) = situation.num_shard, situation.warm_up_request
    used = rank_bytes(situation) + release.context_bytes
    used += 0 if ranks == 1 else _COLLECTIVES_BYTES + (ranks - 2) * _FURTHER_RANK_BYTES
    if used + _conversion_bytes(situation) > memory:
        return Capacity(verdict="oom-load")
    prefill = situation.prefill_tokens
    blocks = _requests(situation) * ceil(max(total - 1, min(prompt, prefill)) / block)
    used += release.workspace_bytes + _prefill_bytes(situation) + blocks * block_bytes
    usable = memory * situation.arguments.get("cuda-memory-fraction", 1.0)
    if used > usable:
        return Capacity(verdict="oom-warmup")
    if release.share_of == "total":
        free = max(0.0, usable * release.memory_share - used)
    else:
        free = (usable - used) * release.memory_share
    blocks += int(free) // block_bytes
    return Capacity(verdict="ok" if blocks else "oom-warmup", tokens=blocks * block, block_tokens=block)


def _kv_bytes_per_token(situation: Situation) -> int:
    """Return the size of a token's keys and values in all layers, for one rank's heads."""
    model = situation.checkpoint.model
    heads = model.kv_heads
    if not situation.model_class.replicated_kv:
        heads = max(1, heads // situation.num_shard)
    value_bytes = 1 if situation.arguments.get("kv-cache-dtype") is not None else _BYTES_16
    return 2 * model.layers * heads * model.head_dim * value_bytes


def _requests(situation: Situation) -> int:
    """Return the requests of the warm-up batch: prompts are added until they fill the prefill batch."""
    return ceil(situation.prefill_tokens / max(1, situation.warm_up_request[0]))


def _prefill_bytes(situation: Situation) -> int:
    """Return the peak of the warm-up prefill: one layer, its image, its masks, and the scores of its prompts."""
    ranks, model, native = situation.num_shard, situation.checkpoint.model, situation.model_class
    prefill = situation.prefill_tokens
    layer = prefill * _BYTES_16 * (5 * model.hidden_size + _feed_forward_values(situation) // ranks)
    longest = min(situation.warm_up_request[0], prefill)
    a_pair = native.mask_bytes + native.mask_bytes_per_head * model.attention_heads / ranks
    masks = int(_requests(situation) * longest * longest * a_pair)
    scores = prefill * _score_bytes(situation) if situation.scores_prompts else 0
    return max(layer, native.image_bytes // ranks) + masks + scores


def _feed_forward_values(situation: Situation) -> int:
    """Return the size of gate and up projection, activation and product; for a mixture, of concurrent experts."""
    model, native, rule = situation.checkpoint.model, situation.model_class, situation.weights.rule
    if not model.experts:
        return 4 * model.intermediate_size
    if native.experts == "gathered":
        return model.experts * (3 * model.hidden_size * situation.num_shard + 4 * model.expert_intermediate_size)
    fused = native.experts == "fused" and (rule is None or (rule.fused_moe and native.fused_quantized))
    at_once = model.experts_per_token if fused else 1
    return max(4 * model.intermediate_size, 3 * at_once * model.expert_intermediate_size)


def _score_bytes(situation: Situation) -> int:
    """Return the size of a token's logits and their log-softmax; a gathered table is transposed."""
    vocab, ranks = situation.checkpoint.model.vocab_size, situation.num_shard
    row = vocab * _BYTES_16
    if ranks == 1 or vocab % ranks:
        return row * situation.release.score_copies
    return 3 * row + row // ranks
