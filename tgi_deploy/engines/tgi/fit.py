"""A configuration as TGI would run it: settings, memory and all problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.engines.tgi import checks, memory
from tgi_deploy.engines.tgi.kernels import FLASHINFER, attention_for, prefills_in_chunks
from tgi_deploy.engines.tgi.pins import Limits, limit_problems, limits_for
from tgi_deploy.engines.tgi.prefill import default_prefill_tokens
from tgi_deploy.engines.tgi.schemes import served_dtype
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import EngineSettings, Fit, Load, Scheduling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.tgi.release import ModelClass, TgiRelease
    from tgi_deploy.errors import Problem
    from tgi_deploy.values.engine import Case, MemoryBudget, Pins
    from tgi_deploy.values.model import ModelSpec

_MIN_CONCURRENT_REQUESTS: Final = 128
# TGI's own classes fuse query, key and value, and gate and up projection; transformers has seven separate products.
_FUSED_PRODUCTS: Final = 4
_SEPARATE_PRODUCTS: Final = 7
_WAITING_STEPS: Final = 20  # default of --max-waiting-tokens, which chunked prefill ignores


def contradictions(pins: Pins, load: Load, model: ModelSpec, release: TgiRelease) -> Iterator[Problem]:
    """Yield the problems of the token limits on any hardware, assuming the most capable kernels."""
    chunked = prefills_in_chunks(release, release.model_class(model.model_type), FLASHINFER, pins.flags)
    smallest = limits_for(load, pins.flags, chunked=chunked)[-1]
    return limit_problems(smallest, pins.flags, load, model, chunked=chunked)


def fit(case: Case, release: TgiRelease) -> Fit:
    """Return the configuration as it would run, with its problems."""
    case, release = _of_the_copy(case), release.on(case.hardware.accelerator)
    model_class = release.model_class(case.model.model_type)
    rule = release.architecture_rule(case.hardware.accelerator.compute_capability)
    attention = attention_for(case.model, model_class, release, rule)
    chunked = prefills_in_chunks(release, model_class, attention, case.pins.flags)
    layout = _layout(case, release, model_class, attention)
    choices = limits_for(case.load, case.pins.flags, chunked=chunked, most_prefill=case.prefill_tokens)
    budget, limits = _budget(case, layout, choices)
    method = release.quantizations.get(case.scheme.name)
    facts = checks.Facts(
        case=case, release=release, model_class=model_class, rule=rule, method=method, memory=budget,
        attention=attention, prompt_batch_short=limits.prefill_tokens < limits.max_input_tokens and not chunked,
    )  # fmt: skip
    own_dtype = served_dtype(case.model, method, model_class, case.hardware.accelerator)
    dtype = case.pins.flags.get("--dtype", own_dtype)
    return Fit(
        case=case,
        settings=_settings(case, release, limits, budget, dtype),
        dtype=dtype,
        memory=budget,
        scheduling=Scheduling(
            profile=release.name,
            cuda_graphs=memory.has_graphs(case.scheme, model_class),
            kv_bits=8 * layout.kv_bytes,
            prefill_tokens=limits.prefill_tokens,
            waiting_steps=0 if chunked else int(case.pins.flags.get("--max-waiting-tokens", _WAITING_STEPS)),
            runs_all_experts=memory.runs_all_experts(case.model, case.scheme, model_class),
            loops_over_experts=model_class.experts == "looped" and bool(case.model.experts),
            layer_products=_FUSED_PRODUCTS if model_class.backend == "native" else _SEPARATE_PRODUCTS,
        ),
        problems=checks.problems(facts),
        smaller_prefills=tuple(_smaller(case.load, limits, choices, budget)) if chunked else (),
    )


def _smaller(load: Load, limits: Limits, choices: tuple[Limits, ...], budget: MemoryBudget) -> Iterator[int]:
    """Yield smaller prefill batches that still hold a prompt plus a token of each running request.

    The router subtracts those tokens from the batch (TGI `backends/v3/src/backend.rs`): a prompt that no longer fits
    takes two steps, and its first token is not sooner. Each running request has at least its prompt in the cache, which
    gains at most the activations of the larger batch.
    """
    cached_tokens = budget.kv_capacity_tokens + budget.activation_bytes // budget.kv_bytes_per_token
    running = min(load.concurrency, cached_tokens // max(1, load.input_tokens))
    for other in choices:
        if load.input_tokens + running <= other.prefill_tokens < limits.prefill_tokens:
            yield other.prefill_tokens


def _of_the_copy(case: Case) -> Case:
    """Return the case with the dimensions of the repository to serve: a quantized copy may be padded."""
    model, own = case.model, case.scheme.intermediate_size
    if own is None:
        return case
    added = 3 * model.hidden_size * (own - model.intermediate_size) * model.layers
    padded = replaced(model, intermediate_size=own, parameters=model.parameters + added)
    return replaced(case, model=padded)


def _layout(case: Case, release: TgiRelease, model_class: ModelClass, attention: str) -> memory.Layout:
    flags = case.pins.flags
    return memory.Layout(
        release=release,
        model_class=model_class,
        num_shard=case.num_shard,
        attention=attention,
        fraction=float(flags.get("--cuda-memory-fraction", "1")),
        kv_bytes=1 if flags.get("--kv-cache-dtype", "").startswith("fp8") else 2,
        prompt_logprobs=memory.scores_prompts(release, flags, attention),
    )


def _budget(case: Case, layout: memory.Layout, choices: tuple[Limits, ...]) -> tuple[MemoryBudget, Limits]:
    """Return the first limits that leave room for the promise, and the memory with them."""
    load = Load(
        input_tokens=case.load.input_tokens, output_tokens=case.load.output_tokens, concurrency=case.load.concurrency,
        context_tokens=max(case.load.context_tokens, choices[0].max_total_tokens),
    )  # fmt: skip
    for limits in choices:
        warm_up = memory.WarmUp(
            prefill_tokens=limits.prefill_tokens, prompt_tokens=limits.max_input_tokens,
            total_tokens=limits.max_total_tokens,
        )  # fmt: skip
        budget = memory.memory_budget(
            case.model, case.scheme, layout, load,
            total_bytes=case.hardware.memory_bytes_per_accelerator, warm_up=warm_up,
        )  # fmt: skip
        if budget.fits:
            break
    return budget, limits


def _settings(case: Case, release: TgiRelease, limits: Limits, budget: MemoryBudget, dtype: str) -> EngineSettings:
    model, scheme = case.model, case.scheme
    graphs = memory.has_graphs(scheme, release.model_class(model.model_type))
    method = release.quantizations.get(scheme.name)
    own = scheme.hub_id == model.hub_id
    return EngineSettings(
        model_id=model.local_path or scheme.hub_id if own else scheme.hub_id,
        revision=model.revision if own and not model.local_path else None,
        num_shard=case.num_shard,
        quantize=scheme.method,
        dtype=dtype if method is None or method.takes_dtype else None,
        max_input_tokens=limits.max_input_tokens,
        max_total_tokens=limits.max_total_tokens,
        max_batch_prefill_tokens=limits.prefill_tokens,
        max_batch_total_tokens=budget.kv_capacity_tokens,
        max_concurrent_requests=concurrent_requests(case.load.concurrency),
        cuda_graphs=memory.graph_batches(case.load.concurrency, supported=graphs),
        default_prefill_tokens=_default_prefill_tokens(case, release, budget),
    )


def concurrent_requests(concurrency: int) -> int:
    return max(_MIN_CONCURRENT_REQUESTS, 4 * concurrency)


def _default_prefill_tokens(case: Case, release: TgiRelease, budget: MemoryBudget) -> int | None:
    """Return the launcher's default, if the release has one."""
    if not release.chunked_prefill:
        return None
    return default_prefill_tokens(case.model, case.hardware.accelerator.name, case.num_shard, budget.total_bytes)
