"""Why a configuration cannot be it: small named checks, most fundamental first.

A configuration is hardware x shards x quantization. Every check runs on every configuration: knowing that *only* one
of them failed is what lets us suggest something. Adding a check is adding a function to `CHECKS` and its cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.planner.memory import GIB
from tgi_deploy.planner.sharding import indivisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tgi_deploy.planner.quantization import Scheme
    from tgi_deploy.planner.types import (
        ArchitectureRule,
        EngineRelease,
        MemoryBudget,
        ModelClass,
        Performance,
        Requirements,
    )
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.model import ModelSpec


_CUDA_VENDOR: Final = "nvidia"

# Attention kernels that can keep the KV cache in 8 bits, by the flag's value.
_FP8_CACHE_KERNELS: Final = {"fp8_e4m3fn": ("flashinfer", "paged"), "fp8_e5m2": ("flashinfer",)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    code: str
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a configuration when its checks run. `performance` is None where memory does not fit.

    `pins` are the user's own flags; `prompt_batch_short`: one of them makes the prefill batch shorter than a prompt
    on kernels that cannot prefill in chunks.
    """

    hardware: InstanceType
    model: ModelSpec
    model_class: ModelClass | None
    release: EngineRelease
    rule: ArchitectureRule | None
    scheme: Scheme
    num_shard: int
    memory: MemoryBudget
    performance: Performance | None
    attention: str = "paged"
    pins: Mapping[str, str] = field(default_factory=dict)
    prompt_batch_short: bool = False


def check_vendor(facts: Facts, _wish: Requirements) -> Failure | None:
    chip = facts.hardware.accelerator
    if chip.vendor == _CUDA_VENDOR:
        return None
    return Failure(
        code="vendor_unsupported",
        message=f"{chip.name} is no NVIDIA GPU: TGI {facts.release.version}'s CUDA image cannot use it",
        numbers={"vendor": chip.vendor},
    )


def check_host_architecture(facts: Facts, _wish: Requirements) -> Failure | None:
    arch = facts.hardware.cpu_arch
    if arch in facts.release.cpu_archs:
        return None
    return Failure(
        code="host_architecture",
        message=f"the host's processor is {arch}; TGI images exist for {', '.join(facts.release.cpu_archs)} only",
        numbers={"cpu_arch": arch},
    )


def check_whole_accelerator(facts: Facts, _wish: Requirements) -> Failure | None:
    share = facts.hardware.partition
    if share >= 1:
        return None
    return Failure(
        code="accelerator_fraction",
        message=f"only {share:g} of a {facts.hardware.accelerator.name}: fractions of a GPU are not planned for",
        numbers={"partition": share},
    )


def check_architecture(facts: Facts, wish: Requirements) -> Failure | None:
    chip, rule = facts.hardware.accelerator, facts.rule
    if chip.vendor != _CUDA_VENDOR or rule is None or rule.verdict == "ok":
        return None
    if rule.verdict == "override" and wish.allow_turing:
        return None
    major, minor = chip.compute_capability or (0, 0)
    return Failure(
        code=rule.code,
        message=f"{chip.name} is {chip.architecture} (compute capability {major}.{minor}): {rule.message}",
        numbers={"compute_capability": f"{major}.{minor}", "engine_version": facts.release.version},
    )


def check_sliding_window(facts: Facts, wish: Requirements) -> Failure | None:
    """The kernels of an overridden architecture have no sliding window (TGI `layers/attention/cuda.py`)."""
    window, longest = facts.model.sliding_window, wish.context_tokens - 1
    if facts.rule is None or facts.rule.verdict != "override" or window is None or longest <= window:
        return None
    return Failure(
        code="arch_sliding_window",
        message=f"{facts.hardware.accelerator.name} kernels have no sliding window: prompts of {longest} tokens are "
        f"longer than the model's window of {window}",
        numbers={"sliding_window": window, "max_input_tokens": longest},
    )


def check_model_class(facts: Facts, _wish: Requirements) -> Failure | None:
    model_class, model_type = facts.model_class, facts.model.model_type
    if model_class is not None and model_class.backend != "refused":
        return None
    reason = model_class.reason if model_class else f"TGI {facts.release.version} has no class for it"
    return Failure(
        code="model_type_unsupported",
        message=f"model type {model_type!r} is not served: {reason}",
        numbers={"model_type": model_type},
    )


def check_shards_available(facts: Facts, _wish: Requirements) -> Failure | None:
    have = facts.hardware.accelerator_count
    if facts.num_shard <= have:
        return None
    return Failure(
        code="shards_exceed_accelerators",
        message=f"{facts.num_shard} shards need {facts.num_shard} accelerators; the machine has {have}",
        numbers={"accelerator_count": have},
    )


def check_shardable(facts: Facts, _wish: Requirements) -> Failure | None:
    model_class = facts.model_class
    if facts.num_shard == 1 or model_class is None or model_class.shardable:
        return None
    return Failure(
        code="model_not_shardable",
        message=f"TGI {facts.release.version} cannot shard model type {facts.model.model_type!r}",
        numbers={"num_shard": facts.num_shard},
    )


def check_divisibility(facts: Facts, _wish: Requirements) -> Failure | None:
    if facts.num_shard == 1:
        return None
    wrong = tuple(indivisible(facts.model, facts.scheme, facts.num_shard))
    if not wrong:
        return None
    parts = ", ".join(f"{size} {name}" for name, size in wrong)
    return Failure(
        code="not_divisible",
        message=f"{parts} cannot be split over {facts.num_shard} shards",
        numbers={"num_shard": facts.num_shard, **{name.replace(" ", "_"): size for name, size in wrong}},
    )


def check_quantization_available(facts: Facts, _wish: Requirements) -> Failure | None:
    scheme = facts.scheme
    if scheme.known:
        return None
    if scheme.rule is None:
        text = f"TGI {facts.release.version} cannot load {scheme.name!r} weights"
    elif scheme.prequantized:
        text = (
            f"TGI {facts.release.version} quantizes with {scheme.name!r} while it loads, and cannot load weights "
            "that are already packed: take the original repository"
        )
    elif facts.model.quantization is not None:
        text = f"the checkpoint is already quantized with {facts.model.quantization.method!r}"
    else:
        text = f"{scheme.name!r} needs an already quantized checkpoint, and the profile names none"
    return Failure(code="quantization_unavailable", message=text)


def check_quantization_capability(facts: Facts, _wish: Requirements) -> Failure | None:
    rule, capability = facts.scheme.rule, facts.hardware.accelerator.compute_capability
    if rule is None or capability is None or capability >= rule.min_compute_capability:
        return None
    need = ".".join(map(str, rule.min_compute_capability))
    return Failure(
        code="quantization_capability",
        message=f"{rule.method} kernels need compute capability {need} or newer",
        numbers={"min_compute_capability": need},
    )


def check_quantization_shardable(facts: Facts, _wish: Requirements) -> Failure | None:
    rule = facts.scheme.rule
    if facts.num_shard == 1 or rule is None or rule.shardable:
        return None
    return Failure(code="quantization_not_shardable", message=f"{rule.method} weights cannot be sharded")


def check_quantization_backend(facts: Facts, _wish: Requirements) -> Failure | None:
    rule, model_class = facts.scheme.rule, facts.model_class
    if rule is None or model_class is None:
        return None
    if model_class.backend == "transformers" and not rule.transformers_backend:
        return Failure(
            code="quantization_no_effect",
            message=f"{rule.method} is refused or without effect on the transformers backend, "
            f"which serves {facts.model.model_type!r}",
        )
    if facts.model.experts and not rule.fused_moe:
        return Failure(
            code="quantization_moe", message=f"the fused mixture-of-experts kernels do not take {rule.method}"
        )
    if facts.model.quantization is not None and facts.model.quantization.block_scaled:
        return Failure(
            code="quantization_block_scaled",
            message="block-scaled fp8 weights need kernels that the CUDA images no longer carry",
        )
    return None


def check_dtype_flag(facts: Facts, _wish: Requirements) -> Failure | None:
    rule = facts.scheme.rule
    if "--dtype" not in facts.pins or rule is None or rule.takes_dtype:
        return None
    return Failure(code="dtype_with_quantization", message=f"the engine refuses --dtype together with {rule.method}")


def check_kv_cache_flag(facts: Facts, _wish: Requirements) -> Failure | None:
    """Source: TGI `layers/attention/kv_cache.py` and the transformers backend, read at 3.3.7."""
    wanted = facts.pins.get("--kv-cache-dtype")
    if wanted is None or facts.model_class is None:
        return None
    if facts.model_class.backend == "transformers":
        text = f"the transformers backend, which serves {facts.model.model_type!r}, ignores --kv-cache-dtype"
    elif facts.attention in _FP8_CACHE_KERNELS.get(wanted, ()):
        return None
    else:
        text = f"{facts.attention} attention has no KV cache of type {wanted}"
    return Failure(code="kv_cache_dtype_unsupported", message=text, numbers={"attention": facts.attention})


def check_prompt_batch(facts: Facts, _wish: Requirements) -> Failure | None:
    if not facts.prompt_batch_short:
        return None
    return Failure(
        code="prefill_too_small",
        message=f"{facts.attention} attention prefills whole prompts: --max-batch-prefill-tokens "
        f"{facts.pins['--max-batch-prefill-tokens']} is below --max-input-tokens",
    )


def check_memory(facts: Facts, _wish: Requirements) -> Failure | None:
    memory = facts.memory
    if memory.fits:
        return None
    numbers = {
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
            f"{usable / GIB:.1f} GiB that TGI uses of one {facts.hardware.accelerator.name}"
        )
        return Failure(code="memory_weights", message=message, numbers=numbers)
    message = (
        f"beside {memory.weights_bytes / GIB:.1f} GiB of weights one {facts.hardware.accelerator.name} holds "
        f"{memory.kv_capacity_tokens} tokens of KV cache; {memory.required_kv_tokens} are needed"
    )
    return Failure(code="memory_kv_cache", message=message, numbers=numbers)


def check_batch_total(facts: Facts, _wish: Requirements) -> Failure | None:
    """Without flash attention nothing is allocated beforehand: the engine takes the pinned number at its word."""
    pinned, memory = int(facts.pins.get("--max-batch-total-tokens", "0")), facts.memory
    if facts.attention != "padded" or not memory.fits or pinned <= memory.kv_capacity_tokens:
        return None
    return Failure(
        code="memory_kv_cache",
        message=f"batches of {pinned} tokens are pinned; beside its weights one {facts.hardware.accelerator.name} "
        f"holds {memory.kv_capacity_tokens} tokens of KV cache",
        numbers={"kv_capacity_tokens": memory.kv_capacity_tokens, "required_kv_tokens": pinned},
    )


def missed_limits(speed: Performance, wish: Requirements) -> Iterator[str]:
    """Which of the wish's limits on speed this misses: `ttft`, `tpot`, `throughput`."""
    if wish.ttft_ms is not None and speed.ttft_ms > wish.ttft_ms:
        yield "ttft"
    if wish.tpot_ms is not None and speed.tpot_ms > wish.tpot_ms:
        yield "tpot"
    if wish.min_tokens_per_s is not None and speed.output_tokens_per_s < wish.min_tokens_per_s:
        yield "throughput"


def check_time_to_first_token(facts: Facts, wish: Requirements) -> Failure | None:
    if facts.performance is None or wish.ttft_ms is None or "ttft" not in missed_limits(facts.performance, wish):
        return None
    seen = round(facts.performance.ttft_ms)
    return Failure(
        code="ttft_too_slow",
        message=f"time to first token would be about {seen} ms, over {wish.ttft_ms:g} ms",
        numbers={"ttft_ms": seen, "wanted_ttft_ms": wish.ttft_ms},
    )


def check_time_per_token(facts: Facts, wish: Requirements) -> Failure | None:
    if facts.performance is None or wish.tpot_ms is None or "tpot" not in missed_limits(facts.performance, wish):
        return None
    seen = round(facts.performance.tpot_ms, 1)
    return Failure(
        code="tpot_too_slow",
        message=f"an output token would take about {seen} ms, over {wish.tpot_ms:g} ms",
        numbers={"tpot_ms": seen, "wanted_tpot_ms": wish.tpot_ms},
    )


def check_throughput(facts: Facts, wish: Requirements) -> Failure | None:
    speed, wanted = facts.performance, wish.min_tokens_per_s
    if speed is None or wanted is None or "throughput" not in missed_limits(speed, wish):
        return None
    seen = round(speed.output_tokens_per_s, 1)
    short = max(0.1, round(wanted - speed.output_tokens_per_s, 1))
    return Failure(
        code="throughput_too_low",
        message=(
            f"{wish.concurrency} requests at once would get about {seen:g} output tokens/s in all, "
            f"{short:g} short of {wanted:g}"
        ),
        numbers={"output_tokens_per_s": seen, "wanted_tokens_per_s": wanted, "short_tokens_per_s": short},
    )


CHECKS: Final[tuple[Callable[[Facts, Requirements], Failure | None], ...]] = (
    check_vendor,
    check_host_architecture,
    check_architecture,
    check_sliding_window,
    check_whole_accelerator,
    check_model_class,
    check_shards_available,
    check_shardable,
    check_divisibility,
    check_quantization_available,
    check_quantization_capability,
    check_quantization_shardable,
    check_quantization_backend,
    check_dtype_flag,
    check_kv_cache_flag,
    check_prompt_batch,
    check_memory,
    check_batch_total,
    check_time_to_first_token,
    check_time_per_token,
    check_throughput,
)


def failures(facts: Facts, wish: Requirements) -> tuple[Failure, ...]:
    """Everything that speaks against the configuration, in check order; empty when it works."""
    found = (check(facts, wish) for check in CHECKS)
    return tuple(failure for failure in found if failure is not None)
