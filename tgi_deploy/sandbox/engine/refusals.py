"""Why a shard can't load this checkpoint on this GPU, with the shard's error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.engine import cpu
from tgi_deploy.sandbox.engine.weights import UNQUANTIZED, indivisible

if TYPE_CHECKING:
    from tgi_deploy.sandbox.engine.situation import Situation

_EXPECTED: Final = "{'paged', 'flashdecoding', 'flashinfer'}"
_ATTENTION_KERNELS: Final = frozenset({"flashinfer", "flashdecoding", "paged", "flashdecoding-ipex"})

# Methods that the transformers backend accepts and then ignores.
_SILENTLY_IGNORED: Final = frozenset({"fp8", "marlin"})
_TURING_REFUSAL: Final = "arch_flash_attention"


def load_refusal(situation: Situation) -> str | None:
    """Return the last line of the shard's stderr; None if it loads, regardless of memory."""
    if situation.checkpoint.broken is not None:
        return situation.checkpoint.broken
    checks = _CPU_CHECKS if situation.host.on_cpu else _LOAD_CHECKS
    refusals = (check(situation) for check in checks)
    return next((text for text in refusals if text is not None), None)


def warmup_refusal(situation: Situation) -> str | None:
    """Return the kernels' error on a GPU, or for weights, that the release was not built for."""
    if situation.host.on_cpu:
        return None
    stored, release = situation.checkpoint.model.quantization, situation.release
    if stored is not None and stored.block_scaled and release.block_scaled_fp8 != release.version:
        return "TypeError: 'NoneType' object is not callable"  # `w8a8_block_fp8_matmul` could not be imported
    rule = release.architecture_rule(situation.host.accelerator.compute_capability)
    if rule is None or rule.verdict == "ok":
        return None
    overridden = rule.env.items() <= situation.environ.items()
    if rule.verdict == "override" and overridden:
        return None
    if rule.code == _TURING_REFUSAL:
        return "RuntimeError: FlashAttention only supports Ampere GPUs or newer."
    return "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def _too_many_shards(situation: Situation) -> str | None:
    if situation.num_shard <= situation.host.gpus:
        return None
    return "AssertionError: Each process is one gpu"


def _dtype_with_quantize(situation: Situation) -> str | None:
    weights = situation.weights
    if situation.arguments.text("dtype") is None or weights.name == UNQUANTIZED:
        return None
    if weights.rule is not None and weights.rule.takes_dtype:
        return None
    return (
        "RuntimeError: Only 1 can be set between `dtype` and `quantize`, as they both decide how goes the final model."
    )


def _attention(situation: Situation) -> str | None:
    kernels = situation.attention
    if kernels not in _ATTENTION_KERNELS:
        return f"AssertionError: Attention is not valid {kernels}, expected {_EXPECTED}"
    if situation.arguments.text("kv-cache-dtype") is not None and kernels == "flashdecoding":
        return "ValueError: FP8 KV cache is currently only supported for flashinfer"
    if kernels == "paged" and situation.environ.get("PREFIX_CACHING") in {"1", "true"}:
        return "RuntimeError: Prefix caching is only supported with flashinfer"
    return None


def _model_type(situation: Situation) -> str | None:
    if situation.model_class.backend != "refused":
        return None
    return f"ValueError: Unsupported model type {situation.checkpoint.model.model_type}"


def _quantization_on_transformers(situation: Situation) -> str | None:
    native, weights = situation.model_class, situation.weights
    if native.backend == "native" or weights.rule is None:
        return None
    if weights.rule.transformers_backend or weights.name in _SILENTLY_IGNORED:
        return None
    return f"NotImplementedError: {weights.name} quantization is not supported for AutoModel"


def _quantization_of_checkpoint(situation: Situation) -> str | None:
    weights = situation.weights
    if weights.known:
        return None
    return f"RuntimeError: Cannot load `{weights.name}` weight, make sure the model is already quantized"


def _quantization_on_card(situation: Situation) -> str | None:
    rule = situation.weights.rule
    capability = situation.host.accelerator.compute_capability
    if rule is None or capability is None or capability >= rule.min_compute_capability:
        return None
    needed = ".".join(map(str, rule.min_compute_capability))
    return f"RuntimeError: Using {rule.method} requires a GPU with CUDA capability {needed} or later"


def _quantized_experts(situation: Situation) -> str | None:
    rule = situation.weights.rule
    if rule is None or rule.fused_moe or situation.model_class.dense_fallback or not situation.checkpoint.model.experts:
        return None
    return "AssertionError: scoring func is not handled"


def _shardable(situation: Situation) -> str | None:
    native, rule = situation.model_class, situation.weights.rule
    if situation.num_shard == 1:
        return None
    if not native.shardable:
        return "NotImplementedError: sharded is not supported for AutoModel"
    if rule is not None and not rule.shardable:
        return f"RuntimeError: Sharding is currently not supported with {rule.method} weights"
    return None


def _divisible(situation: Situation) -> str | None:
    count = situation.num_shard
    if count == 1:
        return None
    dimension = indivisible(situation.checkpoint.model, situation.weights, count)
    if dimension is None:
        return None
    name, size = dimension
    if name == "attention heads":
        return f"ValueError: `num_heads` must be divisible by `num_shards` (got `num_heads`: {size})"
    if name == "KV heads":
        return f"ValueError: `num_key_value_heads` must be divisible by `num_shards` (got {size} and {count})"
    return f"AssertionError: The choosen size {size} is not compatible with sharding on {count} shards"


_CPU_CHECKS: Final = (_dtype_with_quantize, _model_type, cpu.refusal)
_LOAD_CHECKS: Final = (
    _too_many_shards,
    _dtype_with_quantize,
    _attention,
    _model_type,
    _quantization_on_transformers,
    _quantization_of_checkpoint,
    _quantization_on_card,
    _quantized_experts,
    _shardable,
    _divisible,
)
