"""Checks whether a configuration can run, the most fundamental first.

All checks run on every configuration: suggestions need to know whether *only* one of them failed. To add a check, add a
function to `CHECKS` and its cases.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.engines.tgi.builds import why_not
from tgi_deploy.engines.tgi.kernels import FLASHINFER, PADDED, PAGED, indivisible
from tgi_deploy.engines.tgi.release import ModelClass, QuantizationRule, TgiRelease
from tgi_deploy.errors import Problem
from tgi_deploy.values.base import Value
from tgi_deploy.values.engine import ArchitectureRule, Case, MemoryBudget
from tgi_deploy.values.sizes import GIB

if TYPE_CHECKING:
    from collections.abc import Callable


_CUDA_VENDOR: Final = "nvidia"
_FP8_CAPABILITY: Final = (8, 9)
# transformers classes that don't generate text.
_RANKS: Final = re.compile(
    r"For(?:SequenceClassification|TokenClassification|QuestionAnswering|MultipleChoice|MaskedLM|Pretraining|PreTraining|Reward)|RewardModel"
)

# Attention kernels with an 8-bit KV cache, by the flag's value.
_FP8_CACHE_KERNELS: Final = {"fp8_e4m3fn": (FLASHINFER, PAGED), "fp8_e5m2": (FLASHINFER,)}


class Facts(Value, frozen=True, kw_only=True):
    """Facts about a configuration for its checks.

    `rule` is for the GPU's architecture, `method` for the quantization. `prompt_batch_short`: a pinned flag makes the
    prefill batch shorter than a prompt on kernels without chunked prefill.
    """

    case: Case
    release: TgiRelease
    model_class: ModelClass
    rule: ArchitectureRule | None
    method: QuantizationRule | None
    memory: MemoryBudget
    attention: str
    prompt_batch_short: bool


def check_vendor(facts: Facts) -> Problem | None:
    chip, release = facts.case.hardware.accelerator, facts.release
    if chip.vendor == _CUDA_VENDOR or release.host is not None:
        return None
    return Problem(
        code="vendor_unsupported",
        message=why_not(release, chip.name),
        data={"vendor": chip.vendor},
    )


def check_host_architecture(facts: Facts) -> Problem | None:
    arch = facts.case.hardware.cpu_arch
    if arch in facts.release.cpu_archs:
        return None
    return Problem(
        code="host_architecture",
        message=f"the host's processor is {arch}; TGI images exist only for {', '.join(facts.release.cpu_archs)}",
        data={"cpu_arch": arch},
    )


def check_architecture(facts: Facts) -> Problem | None:
    chip, rule = facts.case.hardware.accelerator, facts.rule
    if chip.vendor != _CUDA_VENDOR or rule is None or rule.verdict == "ok":
        return None
    if rule.verdict == "override" and facts.case.allow_turing:
        return None
    major, minor = chip.compute_capability or (0, 0)
    return Problem(
        code=rule.code,
        message=f"{chip.name} is {chip.architecture} (compute capability {major}.{minor}): {rule.message}",
        data={"compute_capability": f"{major}.{minor}", "engine_version": facts.release.version},
    )


def check_sliding_window(facts: Facts) -> Problem | None:
    """Overridden architectures and ROCm have no sliding window (TGI `layers/attention/cuda.py`, `rocm.py`)."""
    window, longest = facts.case.model.sliding_window, facts.case.load.context_tokens - 1
    windowed = facts.release.sliding_window and (facts.rule is None or facts.rule.verdict != "override")
    if windowed or window is None or longest <= window:
        return None
    return Problem(
        code="arch_sliding_window",
        message=f"{facts.case.hardware.accelerator.name} kernels have no sliding window: prompts of {longest} tokens "
        f"are longer than the model's window of {window}",
        data={"sliding_window": window, "max_input_tokens": longest},
    )


def check_slices(facts: Facts) -> Problem | None:
    hardware = facts.case.hardware
    if hardware.partition >= 1:
        return None
    if hardware.driver is not None:
        why = (
            f"{hardware.name} needs NVIDIA's {hardware.driver.upper()} driver, which the machine images of 'up' lack: "
            f"--driver {hardware.driver} plans for an image that has it"
        )
    elif facts.case.num_shard > 1:
        why = (
            f"slices of a {hardware.accelerator.name.partition('-MIG-')[0]} can't communicate: use one shard per slice"
        )
    else:
        return None
    return Problem(code="accelerator_fraction", message=why, data={"partition": hardware.partition})


def check_model_class(facts: Facts) -> Problem | None:
    model_class, model_type = facts.model_class, facts.case.model.model_type
    if model_class.backend != "refused":
        return None
    return Problem(
        code="model_type_unsupported",
        message=f"model type {model_type!r} is not served: {model_class.reason}",
        data={"model_type": model_type},
    )


def check_generates(facts: Facts) -> Problem | None:
    """Check the head, by the checkpoint's `architectures`: TGI only generates text."""
    architecture = facts.case.model.architecture
    if _RANKS.search(architecture):
        purpose = "ranks or classifies"
    elif architecture.endswith("Model") and not architecture.endswith("LMHeadModel"):
        purpose = "makes embeddings"
    else:
        return None
    return Problem(
        code="model_type_unsupported",
        message=f"{architecture} {purpose} and has no head to generate text with: Hugging Face's "
        "text-embeddings-inference (TEI) serves such models",
        data={"architecture": architecture},
    )


def check_shards_available(facts: Facts) -> Problem | None:
    have, wanted = facts.case.hardware.accelerator_count, facts.case.num_shard
    if wanted <= have:
        return None
    return Problem(
        code="shards_exceed_accelerators",
        message=f"{wanted} shards need {wanted} accelerators; the machine has {have}",
        data={"accelerator_count": have},
    )


def check_shardable(facts: Facts) -> Problem | None:
    if facts.case.num_shard == 1 or facts.model_class.shardable:
        return None
    return Problem(
        code="model_not_shardable",
        message=f"TGI {facts.release.version} cannot shard model type {facts.case.model.model_type!r}",
        data={"num_shard": facts.case.num_shard},
    )


def check_divisibility(facts: Facts) -> Problem | None:
    num_shard = facts.case.num_shard
    if num_shard == 1:
        return None
    wrong = tuple(indivisible(facts.case.model, facts.case.scheme, num_shard))
    if not wrong:
        return None
    parts = ", ".join(f"{size} {name}" for name, size in wrong)
    return Problem(
        code="not_divisible",
        message=f"{parts} cannot be split over {num_shard} shards",
        data={"num_shard": num_shard, **{name.replace(" ", "_"): size for name, size in wrong}},
    )


def check_quantization_available(facts: Facts) -> Problem | None:
    scheme, own = facts.case.scheme, facts.case.model.quantization
    if scheme.known and (scheme.method is None or facts.method is not None):
        return None
    if facts.method is None:
        image = f"'s {facts.release.title}" if facts.release.host else ""
        text = f"TGI {facts.release.version}{image} cannot load {scheme.name!r} weights"
    elif scheme.prequantized and facts.method.prequantized and own is not None:
        taken = ", ".join(map(str, facts.method.checkpoint_bits))
        text = f"{scheme.name} kernels support {taken} bits, not the checkpoint's {own.bits}"
    elif scheme.prequantized:
        text = (
            f"TGI {facts.release.version} quantizes with {scheme.name!r} while it loads, and cannot load weights "
            "that are already packed: use the original repository"
        )
    elif own is not None:
        text = f"the checkpoint is already quantized with {own.method!r}"
    else:
        text = f"{scheme.name!r} needs an already quantized checkpoint, and the profile names none"
    return Problem(code="quantization_unavailable", message=text)


def check_quantization_capability(facts: Facts) -> Problem | None:
    method, chip = facts.method, facts.case.hardware.accelerator
    capability = chip.compute_capability
    if method is not None and method.native_fp8_compute and facts.release.host and chip.fp8_tflops is None:
        return Problem(code="quantization_capability", message=f"{chip.name} cannot multiply in fp8")
    if method is None or capability is None or capability >= method.min_compute_capability:
        return None
    need = ".".join(map(str, method.min_compute_capability))
    return Problem(
        code="quantization_capability",
        message=f"{method.method} kernels need compute capability {need} or newer",
        data={"min_compute_capability": need},
    )


def check_quantization_shardable(facts: Facts) -> Problem | None:
    method = facts.method
    if facts.case.num_shard == 1 or method is None or method.shardable:
        return None
    return Problem(code="quantization_not_shardable", message=f"{method.method} weights cannot be sharded")


def check_quantization_backend(facts: Facts) -> Problem | None:
    method, model_class, model = facts.method, facts.model_class, facts.case.model
    if method is None:
        return None
    if model_class.backend in {"transformers", "plain"} and not method.transformers_backend:
        return Problem(
            code="quantization_no_effect",
            message=f"{method.method} is rejected or ignored by the transformers backend, "
            f"which serves {model.model_type!r}",
        )
    if model.experts and not method.fused_moe and not model_class.dense_fallback:
        return Problem(
            code="quantization_moe", message=f"the fused mixture-of-experts kernels do not support {method.method}"
        )
    return None


def check_block_scaled(facts: Facts) -> Problem | None:
    """Source: TGI `layers/fp8.py` and its Dockerfile; the Triton kernels multiply in the card's own fp8."""
    own, capability = facts.case.model.quantization, facts.case.hardware.accelerator.compute_capability
    if own is None or not own.block_scaled:
        return None
    carried, version = facts.release.block_scaled_fp8, facts.release.version
    if version != carried:
        text = f"block-scaled fp8 weights need kernels that the images of TGI {version} do not have"
        text += f"; --engine-version {carried} has them" if carried else ""
    elif capability is not None and capability < _FP8_CAPABILITY:
        text = f"block-scaled fp8 weights need compute capability {'.'.join(map(str, _FP8_CAPABILITY))} or newer"
    else:
        return None
    return Problem(code="quantization_block_scaled", message=text)


def check_dtype_flag(facts: Facts) -> Problem | None:
    method = facts.method
    if "--dtype" not in facts.case.pins.flags or method is None or method.takes_dtype:
        return None
    return Problem(code="dtype_with_quantization", message=f"the engine rejects --dtype with {method.method}")


def check_kv_cache_flag(facts: Facts) -> Problem | None:
    """Source: TGI `layers/attention/kv_cache.py` and the transformers backend, read at 3.3.7."""
    wanted = facts.case.pins.flags.get("--kv-cache-dtype")
    if wanted is None:
        return None
    if facts.model_class.backend == "transformers":
        text = f"the transformers backend, which serves {facts.case.model.model_type!r}, ignores --kv-cache-dtype"
    elif facts.attention in _FP8_CACHE_KERNELS.get(wanted, ()):
        return None
    else:
        text = f"{facts.attention} attention has no KV cache of type {wanted}"
    return Problem(code="kv_cache_dtype_unsupported", message=text, data={"attention": facts.attention})


def check_prompt_batch(facts: Facts) -> Problem | None:
    if not facts.prompt_batch_short:
        return None
    return Problem(
        code="prefill_too_small",
        message=f"{facts.attention} attention prefills whole prompts: --max-batch-prefill-tokens "
        f"{facts.case.pins.flags['--max-batch-prefill-tokens']} is below --max-input-tokens",
    )


def check_memory(facts: Facts) -> Problem | None:
    memory, card = facts.memory, facts.case.hardware.accelerator.name
    if memory.fits:
        return None
    data = {
        "total_bytes": memory.total_bytes,
        "weights_bytes": memory.weights_bytes,
        "kv_capacity_tokens": memory.kv_capacity_tokens,
        "required_kv_tokens": memory.required_kv_tokens,
        "short_bytes": memory.required_kv_tokens * memory.kv_bytes_per_token - memory.kv_cache_bytes,
    }
    usable = memory.total_bytes - memory.reserved_bytes
    if memory.kv_cache_bytes <= 0:
        message = (
            f"{memory.weights_bytes / GIB:.1f} GiB of weights and "
            f"{(memory.activation_bytes + memory.overhead_bytes) / GIB:.1f} GiB of working memory do not fit in the "
            f"{usable / GIB:.1f} GiB that TGI uses of one {card}"
        )
        return Problem(code="memory_weights", message=message, data=data)
    message = (
        f"next to {memory.weights_bytes / GIB:.1f} GiB of weights, one {card} has room for "
        f"{memory.kv_capacity_tokens} tokens of KV cache; {memory.required_kv_tokens} are needed"
    )
    return Problem(code="memory_kv_cache", message=message, data=data)


def check_batch_total(facts: Facts) -> Problem | None:
    """Check pinned batch totals: without flash attention nothing is preallocated, so the engine trusts them."""
    pinned, memory = int(facts.case.pins.flags.get("--max-batch-total-tokens", "0")), facts.memory
    if facts.attention != PADDED or not memory.fits or pinned <= memory.kv_capacity_tokens:
        return None
    return Problem(
        code="memory_kv_cache",
        message=f"prefill batches are pinned to {pinned} tokens; next to the weights, one "
        f"{facts.case.hardware.accelerator.name} has room for {memory.kv_capacity_tokens} tokens of KV cache",
        data={"kv_capacity_tokens": memory.kv_capacity_tokens, "required_kv_tokens": pinned},
    )


def check_variables(facts: Facts) -> Problem | None:
    """Check that every pinned flag has a variable if the container gets only variables."""
    flags = facts.release.flags
    name = next((name for name in facts.case.pins.flags if name in flags and flags[name].env is None), None)
    if name is None or not facts.case.variables_only:
        return None
    return Problem(code="flag_without_variable", message=f"{name} can't be set by a variable", data={"flag": name})


CHECKS: Final[tuple[Callable[[Facts], Problem | None], ...]] = (
    check_vendor,
    check_host_architecture,
    check_architecture,
    check_sliding_window,
    check_slices,
    check_model_class,
    check_generates,
    check_shards_available,
    check_shardable,
    check_divisibility,
    check_quantization_available,
    check_quantization_capability,
    check_quantization_shardable,
    check_quantization_backend,
    check_block_scaled,
    check_dtype_flag,
    check_kv_cache_flag,
    check_variables,
    check_prompt_batch,
    check_memory,
    check_batch_total,
)


def problems(facts: Facts) -> tuple[Problem, ...]:
    """Return all reasons against the configuration, in check order."""
    return tuple([problem for check in CHECKS if (problem := check(facts)) is not None])
