"""Why a shard can't load this checkpoint, or its kernels can't run, on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.engine.memory import UNQUANTIZED, indivisible
from tgi_deploy.sandbox.engine.tracebacks import reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.sandbox.engine.situation import Situation

_ATTENTION_KERNELS: Final = frozenset({"flashinfer", "flashdecoding", "paged", "flashdecoding-ipex"})
# Methods that the transformers backend accepts and then ignores.
_SILENTLY_IGNORED: Final = frozenset({"fp8", "marlin"})
_TURING_REFUSAL: Final = "arch_flash_attention"
_DIMENSIONS: Final = {"attention heads": "heads", "KV heads": "kv_heads", "width": "width"}


def load_refusal(situation: Situation) -> str | None:
    """Return the last line of the shard's stderr; None if it loads, regardless of memory."""
    if situation.checkpoint.broken is not None:
        return situation.checkpoint.broken
    parts = (_by_device, _by_method, _by_sharding)
    return next((why for part in parts for why in part(situation)), None)


def _by_device(situation: Situation) -> Iterator[str]:
    """What the card, or the CPU, and the attention kernels refuse."""
    weights, kernels, on_cpu = situation.weights, situation.attention, situation.host.on_cpu
    if situation.num_shard > situation.host.gpus and not on_cpu:
        yield reason("too_many_shards")
    takes_dtype = weights.name == UNQUANTIZED or (weights.rule is not None and weights.rule.takes_dtype)
    if situation.arguments.get("dtype") is not None and not takes_dtype:
        yield reason("dtype_and_quantize")
    if not on_cpu:
        if kernels not in _ATTENTION_KERNELS:
            yield reason("unknown_attention", attention=kernels)
        if situation.arguments.get("kv-cache-dtype") is not None and kernels == "flashdecoding":
            yield reason("fp8_cache")
        if kernels == "paged" and situation.environ.get("PREFIX_CACHING") in {"1", "true"}:
            yield reason("prefix_caching")
    if situation.model_class.backend == "refused":
        yield reason("model_type", model_type=situation.checkpoint.model.model_type)
    if on_cpu and situation.num_shard > 1:
        yield reason("sharded_on_cpu", model_type=situation.checkpoint.model.model_type)
    if on_cpu and weights.rule is not None:
        yield reason("quantized_on_cpu")


def _by_method(situation: Situation) -> Iterator[str]:
    """What the quantization's kernels refuse."""
    native, weights = situation.model_class, situation.weights
    rule, capability = weights.rule, situation.host.accelerator.compute_capability
    if situation.host.on_cpu:
        return
    ignored = rule is None or rule.transformers_backend or weights.name in _SILENTLY_IGNORED
    if native.backend != "native" and not ignored:
        yield reason("auto_quantization", method=weights.name)
    if not weights.known:
        yield reason("not_quantized", method=weights.name)
    if rule is None:
        return
    if capability is not None and capability < rule.min_compute_capability:
        needed = ".".join(map(str, rule.min_compute_capability))
        yield reason("capability", method=rule.method, capability=needed)
    if situation.checkpoint.model.experts and not (rule.fused_moe or native.dense_fallback):
        yield reason("quantized_experts")


def _by_sharding(situation: Situation) -> Iterator[str]:
    weights, shards = situation.weights, situation.num_shard
    if shards == 1 or situation.host.on_cpu:
        return
    if not situation.model_class.shardable:
        yield reason("auto_sharded")
    if weights.rule is not None and not weights.rule.shardable:
        yield reason("sharded_quantization", method=weights.rule.method)
    dimension = indivisible(situation.checkpoint.model, weights, shards)
    if dimension is not None:
        yield reason(_DIMENSIONS[dimension[0]], size=dimension[1], shards=shards)


def warmup_refusal(situation: Situation) -> str | None:
    """Return the kernels' error on a GPU, or for weights, that the release was not built for."""
    if situation.host.on_cpu:
        return None
    stored, release = situation.checkpoint.model.quantization, situation.release
    if stored is not None and stored.block_scaled and release.block_scaled_fp8 != release.version:
        return reason("block_scaled")  # `w8a8_block_fp8_matmul` could not be imported
    rule = release.architecture_rule(situation.host.accelerator.compute_capability)
    overridden = rule is not None and rule.verdict == "override" and rule.env.items() <= situation.environ.items()
    if rule is None or rule.verdict == "ok" or overridden:
        return None
    return reason("turing" if rule.code == _TURING_REFUSAL else "no_kernel")
