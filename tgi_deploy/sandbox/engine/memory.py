"""Whether the model loads and fits, and how many tokens of KV cache remain, following TGI's allocations step by step.

It loads the weights, prefills the largest batch with its whole KV cache, reads the free memory from the driver, and
gives the cache a share of it (TGI `flash_causal_lm.py` `warmup`, `import_utils.py` `get_cuda_free_memory`, read at
every release). The memory used before any weights and the share are the release's data; NCCL takes 450 MiB of buffers
at two ranks, and 64 MiB for each further one (engine logs: 0.4 to 0.5 GiB at two).

This arithmetic is independent of the planner, because it is used to verify the planner.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.sandbox.engine.logs import reason
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
_ATTENTION_KERNELS: Final = frozenset({"flashinfer", "flashdecoding", "paged", "flashdecoding-ipex"})
# Methods that the transformers backend accepts and then ignores.
_SILENTLY_IGNORED: Final = frozenset({"fp8", "marlin"})
_SCORES_FLAG: Final = "--enable-prefill-logprobs"


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
        _, _, linear = _parts(model)
        bits = 8 * (model.quantized_bytes + max(0, linear - model.quantized_parameters) * _BYTES_16) / linear
    known = rule is not None and rule.prequantized
    return Weights(name=name, bits=bits, stored=True, rule=rule, group_size=stored.group_size, known=known)


def loaded_weights(stored: Weights, quantize: str | None, release: TgiRelease) -> Weights:
    """Return the format in memory, after `--quantize` of 16-bit files. The shard reports problems with it."""
    if quantize is None or stored.name != UNQUANTIZED:
        return stored
    rule = release.quantizations.get(quantize)
    bits, known = (8.0 * _BYTES_16, False) if rule is None else (rule.bits, rule.on_the_fly)
    return Weights(name=quantize, bits=bits, stored=False, rule=rule, known=known)


def _parts(model: ModelSpec) -> tuple[int, int, int]:
    """Return the parameters of a token table, of what each rank holds (norms, routers), and of packed linear layers."""
    table = model.vocab_size * model.hidden_size
    whole = model.hidden_size * (2 * model.layers + 1 + model.layers * model.experts)
    tables = table * (1 if model.tied_embeddings else 2)
    return table, whole, model.parameters - tables - whole - model.vision_parameters


def checkpoint_bytes(model: ModelSpec, weights: Weights) -> int:
    """Return the size of the files, doubled if the engine converts them first."""
    if model.stored_bytes:
        return model.stored_bytes * (2 if model.needs_conversion else 1)
    plain_bytes = _BYTES_32 if model.torch_dtype == "float32" else _BYTES_16
    _, _, linear = _parts(model)
    packed_bytes = plain_bytes if weights.rule is None else weights.bits / 8
    return int(linear * packed_bytes + (model.parameters - linear) * plain_bytes)


def rank_bytes(situation: Situation) -> int:
    """Return the size on one rank after loading.

    TGI's own classes split tables and vision, and load a tied head a second time; transformers' plan omits them.
    """
    model, weights, native = situation.checkpoint.model, situation.weights, situation.model_class
    ranks, (table, whole, linear) = situation.num_shard, _parts(model)
    packed_bytes = _BYTES_16 if weights.rule is None else weights.bits / 8
    head, head_bytes, experts = table if model.vocab_size % ranks else table / ranks, float(_BYTES_16), 0
    if native.backend == "native":
        plain = ceil(model.vocab_size / ranks) * model.hidden_size + model.vision_parameters / ranks
        if weights.rule is not None and weights.rule.packs_head and not weights.stored:
            head_bytes = packed_bytes
    else:
        plain = table + model.vision_parameters
        head = 0 if model.tied_embeddings else head
        if native.whole_experts:
            each = 3 * model.hidden_size * model.expert_intermediate_size
            experts = min(linear, each * model.experts * model.layers)
    return int(((linear - experts) / ranks + experts) * packed_bytes + head * head_bytes + (plain + whole) * _BYTES_16)


def _conversion_bytes(situation: Situation) -> int:
    """Return the extra size while converting a layer: its 32-bit file, or its form before quantization."""
    model, weights = situation.checkpoint.model, situation.weights
    widest = max(model.vocab_size, model.intermediate_size) * model.hidden_size / situation.num_shard
    if model.torch_dtype == "float32":
        return int(widest * _BYTES_32)
    return 0 if weights.rule is None or weights.stored else int(widest * _BYTES_16)


class Capacity(Frozen, frozen=True, kw_only=True):
    """The cache. `tokens` is the number that every rank can hold, in whole blocks."""

    verdict: Literal["ok", "oom-load", "oom-warmup"]
    tokens: int = 0
    block_tokens: int = 1


def capacity(situation: Situation) -> Capacity:
    release, memory, model = situation.release, situation.host.memory_bytes, situation.checkpoint.model
    ranks, prefill, (prompt, total) = situation.num_shard, situation.prefill_tokens, situation.warm_up_request
    used = rank_bytes(situation) + release.context_bytes
    used += 0 if ranks == 1 else _COLLECTIVES_BYTES + (ranks - 2) * _FURTHER_RANK_BYTES
    if used + _conversion_bytes(situation) > memory:
        return Capacity(verdict="oom-load")
    # Keys and values of a block in all layers, for one rank's heads.
    block = release.block_tokens.get(situation.attention, 1)
    heads = model.kv_heads if situation.model_class.replicated_kv else max(1, model.kv_heads // ranks)
    value_bytes = 1 if situation.arguments.get("kv-cache-dtype") is not None else _BYTES_16
    block_bytes = block * 2 * model.layers * heads * model.head_dim * value_bytes
    # Prompts are added until they fill the prefill batch.
    requests = ceil(prefill / max(1, prompt))
    blocks = requests * ceil(max(total - 1, min(prompt, prefill)) / block)
    used += release.workspace_bytes + _prefill_bytes(situation, requests, min(prompt, prefill)) + blocks * block_bytes
    usable = memory * situation.arguments.get("cuda-memory-fraction", 1.0)
    if used > usable:
        return Capacity(verdict="oom-warmup")
    if release.share_of == "total":
        free = max(0.0, usable * release.memory_share - used)
    else:
        free = (usable - used) * release.memory_share
    blocks += int(free) // block_bytes
    return Capacity(verdict="ok" if blocks else "oom-warmup", tokens=blocks * block, block_tokens=block)


def _prefill_bytes(situation: Situation, requests: int, longest: int) -> int:
    """Return the peak of the warm-up prefill: one layer, an image, the attention masks, and the scores of the prompts.

    Prompts are always scored without the flag, and in classes without flash attention.
    """
    ranks, model, native = situation.num_shard, situation.checkpoint.model, situation.model_class
    prefill, vocab_bytes = situation.prefill_tokens, model.vocab_size * _BYTES_16
    layer = prefill * _BYTES_16 * (5 * model.hidden_size + _feed_forward_values(situation) // ranks)
    a_pair = native.mask_bytes + native.mask_bytes_per_head * model.attention_heads / ranks
    masks = int(requests * longest * longest * a_pair)
    # The size of a token's logits and their log-softmax; a gathered table is transposed.
    gathered = ranks > 1 and model.vocab_size % ranks == 0
    scores = 3 * vocab_bytes + vocab_bytes // ranks if gathered else vocab_bytes * situation.release.score_copies
    optional = native.flash and _SCORES_FLAG in situation.release.flags
    if optional and not situation.arguments.get(_SCORES_FLAG.removeprefix("--")):
        scores = 0
    return max(layer, native.image_bytes // ranks) + masks + prefill * scores


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


def load_error(situation: Situation) -> str | None:
    """Return the last line on stderr of a shard that can't load the model, memory aside; None if it can."""
    model, native, host = situation.checkpoint.model, situation.model_class, situation.host
    ranks, given, kernels = situation.num_shard, situation.arguments.get, situation.attention
    weights, rule, capability = situation.weights, situation.weights.rule, host.accelerator.compute_capability
    if situation.checkpoint.broken is not None:
        return situation.checkpoint.broken
    takes_dtype = weights.name == UNQUANTIZED if rule is None else rule.takes_dtype
    cached = kernels == "paged" and situation.environ.get("PREFIX_CACHING") in {"1", "true"}
    needed = (0, 0) if rule is None else rule.min_compute_capability
    ignored = rule is None or rule.transformers_backend or weights.name in _SILENTLY_IGNORED
    routed = rule is None or rule.fused_moe or native.dense_fallback
    copied = model.kv_heads == 1 and model.model_type in _COPIED_KV_HEAD
    group, experts = max(0, weights.group_size or 0), model.expert_intermediate_size if model.experts else 0
    widths = (model.attention_heads * model.head_dim, model.intermediate_size, experts)
    odd = next((width for width in widths if width % ranks or (group and width // ranks % group)), 0)
    gpu, split = not host.on_cpu, ranks > 1 and not host.on_cpu
    rules = {  # in the order of the shard
        "too_many_shards": gpu and ranks > host.gpus,
        "dtype_and_quantize": given("dtype") is not None and not takes_dtype,
        "unknown_attention": gpu and kernels not in _ATTENTION_KERNELS,
        "fp8_cache": gpu and given("kv-cache-dtype") is not None and kernels == "flashdecoding",
        "prefix_caching": gpu and cached,
        "model_type": native.backend == "refused",
        "sharded_on_cpu": not gpu and ranks > 1,
        "quantized_on_cpu": not gpu and rule is not None,
        "auto_quantization": gpu and native.backend != "native" and not ignored,
        "not_quantized": gpu and not weights.known,
        "capability": gpu and capability is not None and capability < needed,
        "quantized_experts": gpu and model.experts > 0 and not routed,
        "auto_sharded": split and not native.shardable,
        "sharded_quantization": split and rule is not None and not rule.shardable,
        "heads": split and model.attention_heads % ranks > 0,
        "kv_heads": split and model.kv_heads % ranks > 0 and not copied,
        "width": split and odd > 0,
    }
    values = {
        "attention": kernels, "model_type": model.model_type, "method": weights.name, "shards": ranks, "width": odd,
        "capability": ".".join(map(str, needed)), "heads": model.attention_heads, "kv_heads": model.kv_heads,
    }  # fmt: skip
    return next((reason(name, **values) for name, broken in rules.items() if broken), None)


def warmup_error(situation: Situation) -> str | None:
    """Return the error of kernels that the release does not have for the GPU or the weights; None if it has them."""
    if situation.host.on_cpu:
        return None
    stored, release = situation.checkpoint.model.quantization, situation.release
    if stored is not None and stored.block_scaled and release.block_scaled_fp8 != release.version:
        return reason("block_scaled")  # `w8a8_block_fp8_matmul` could not be imported
    rule = release.architecture_rule(situation.host.accelerator.compute_capability)
    overridden = rule is not None and rule.verdict == "override" and rule.env.items() <= situation.environ.items()
    if rule is None or rule.verdict == "ok" or overridden:
        return None
    return reason("turing" if rule.code == "arch_flash_attention" else "no_kernel")
