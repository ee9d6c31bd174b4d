"""Memory by parts: exact and monotone where it should be."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tgi_deploy.engines.tgi.memory import (
    Layout,
    WarmUp,
    activation_bytes,
    memory_budget,
    runs_all_experts,
    scores_prompts,
    weights_bytes,
)
from tgi_deploy.engines.tgi.prefill import default_prefill_tokens
from tgi_deploy.engines.tgi.schemes import schemes
from tgi_deploy.values.base import replaced
from tgi_deploy.values.engine import Load
from tgi_deploy.values.model import CheckpointQuantization, QuantizedRepository
from tgi_deploy.values.sizes import count, download_bytes

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.engine import MemoryBudget, Scheme
    from tgi_deploy.values.model import ModelSpec, Profile

GIB = 2**30
MODELS = ("llama3.1-8b", "qwen2.5-7b", "falcon-7b", "mixtral-8x7b", "gemma2-9b", "starcoder-15b", "phi3-mini")


def as_it_is(catalog: Catalog, model: str) -> tuple[ModelSpec, Scheme]:
    profile = catalog.resolve(model)
    return profile.model, schemes(profile, catalog.release("3.3.7"), "none")[0]


def layout_of(catalog: Catalog, model: ModelSpec, *, version: str = "3.3.7", **more: Any) -> Layout:
    """Return a layout with one-token blocks and no scores by default."""
    release = catalog.release(version)
    settled = {"num_shard": 1, "attention": "flashinfer", **more}
    return Layout(release=release, model_class=release.model_class(model.model_type), **settled)


def warm_up(prefill_tokens: int, *, prompt: int | None = None, total: int | None = None) -> WarmUp:
    """One prompt that fills the batch, with an answer of one token."""
    prompt = prompt or prefill_tokens
    return WarmUp(prefill_tokens=prefill_tokens, prompt_tokens=prompt, total_tokens=total or prompt + 1)


def budget_of(
    catalog: Catalog, name: str, *, num_shard: int = 1, prefill_tokens: int = 4096, gib: float = 80
) -> MemoryBudget:
    model, scheme = as_it_is(catalog, name)
    promised = load(context_tokens=10_240, concurrency=8)
    return memory_budget(
        model, scheme, layout_of(catalog, model, num_shard=num_shard), promised,
        total_bytes=int(gib * GIB), warm_up=warm_up(prefill_tokens),
    )  # fmt: skip


def load(*, context_tokens: int, concurrency: int = 1) -> Load:
    return Load(input_tokens=0, output_tokens=0, concurrency=concurrency, context_tokens=context_tokens)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("num_shard", "gib"), [(1, 15), (1, 80), (2, 22.5), (4, 22.5)])
def test_the_parts_add_up(catalog: Catalog, model: str, num_shard: int, gib: float) -> None:
    budget = budget_of(catalog, model, num_shard=num_shard, gib=gib)
    parts = (
        budget.reserved_bytes, budget.weights_bytes, budget.activation_bytes, budget.overhead_bytes,
        budget.kv_cache_bytes,
    )  # fmt: skip
    assert sum(parts) == budget.total_bytes
    assert budget.kv_capacity_tokens * budget.kv_bytes_per_token <= max(0, budget.kv_cache_bytes)
    assert (budget.kv_capacity_tokens + 1) * budget.kv_bytes_per_token > max(0, budget.kv_cache_bytes)
    assert budget.fits is (budget.kv_capacity_tokens >= 10_240)


@pytest.mark.parametrize(
    ("model", "num_shard", "expected"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 1, 57_344),
        ("Qwen/Qwen3-0.6B", 1, 114_688),
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 131_072),
        ("meta-llama/Llama-3.1-8B-Instruct", 4, 32_768),
        ("llama3-70b", 8, 40_960),
        ("starcoder-15b", 1, 20_480),
        ("starcoder-15b", 4, 20_480),
    ],
)
def test_kv_cache_bytes_per_token_are_exact(catalog: Catalog, model: str, num_shard: int, expected: int) -> None:
    assert budget_of(catalog, model, num_shard=num_shard).kv_bytes_per_token == expected


@pytest.mark.parametrize(("model", "gigabytes"), [("llama2-7b", 3.889), ("llama2-13b", 7.248), ("llama2-70b", 36.61)])
def test_awq_copies_have_the_size_the_hub_shows(catalog: Catalog, model: str, gigabytes: float) -> None:
    profile = with_awq(catalog.resolve(model))
    (scheme,) = schemes(profile, catalog.release("3.3.7"), "awq")
    assert download_bytes(profile.model, scheme) == pytest.approx(gigabytes * 1e9, rel=0.01)


def with_awq(profile: Profile) -> Profile:
    copy = QuantizedRepository(method="awq", hub_id="example/awq", bits=4, group_size=128, source="made up")
    return replaced(profile, quantized=(copy,))


@pytest.mark.parametrize(
    ("model", "stored"),
    [("meta-llama/Llama-3.1-8B-Instruct", 16_060_522_496), ("google/gemma-2b", 5_012_344_832)],
)
def test_checkpoints_have_the_size_their_index_says(catalog: Catalog, model: str, stored: int) -> None:
    spec, scheme = as_it_is(catalog, model)
    assert download_bytes(spec, scheme) == pytest.approx(stored, rel=0.001)


# Start-up logs: (release, model, cards, GiB a card as nvidia-smi has it, prefill batch, longest prompt, total, tokens).
STARTS = [
    # An issue of September 2024: "Setting max batch total tokens to 19056" at the launcher's defaults.
    ("2.2.0", "meta-llama/Llama-3.1-8B-Instruct", 1, 22.49, 4145, 4095, 4096, 19_056),
    # A HyperPod walk-through of October 2025: TGI 2.0 of SageMaker on ml.g5 with JumpStart's 8,191 tokens of prompt.
    ("2.0.4", "mistralai/Mistral-7B-Instruct-v0.2", 1, 22.49, 8191, 8191, 8192, 43_808),
    # The release notes of 3.0: "30k tokens" on one L4, at the launcher's own prefill batch.
    ("3.0.0", "meta-llama/Llama-3.1-8B-Instruct", 1, 22.49, 8055, 8055, 8056, 30_000),
    # A log of July 2025 on two RTX A6000, with an image in the warm-up: the second rank held 52,125.
    ("3.3.4", "google/gemma-3-27b-it", 2, 47.99, 8000, 8000, 8001, 52_125),
]


@pytest.mark.parametrize("start", STARTS, ids=lambda start: f"{start[1]} on {start[0]}")
def test_the_predicted_cache_matches_engine_logs(catalog: Catalog, start: tuple[Any, ...]) -> None:
    """Never more than was there by a hundredth, nor less by a tenth."""
    version, name, cards, gib, prefill, prompt, total, tokens = start
    model, scheme = as_it_is(catalog, name)
    release = catalog.release(version)
    attention = release.default_attention or "paged"
    layout = layout_of(
        catalog, model, version=version, num_shard=cards, attention=attention,
        prompt_logprobs=scores_prompts(release, {}, attention),
    )  # fmt: skip
    budget = memory_budget(
        model, scheme, layout, load(context_tokens=1), total_bytes=int(gib * GIB),
        warm_up=warm_up(prefill, prompt=prompt, total=total),
    )  # fmt: skip
    assert 0.9 * tokens < budget.kv_capacity_tokens <= 1.01 * tokens
    assert budget.kv_capacity_tokens % release.block_tokens[attention] == 0


@pytest.mark.parametrize("model", MODELS)
def test_more_shards_never_reduce_tokens_per_gpu(catalog: Catalog, model: str) -> None:
    budgets = [budget_of(catalog, model, num_shard=num_shard) for num_shard in (1, 2, 4, 8)]
    assert all(more.kv_capacity_tokens >= less.kv_capacity_tokens for less, more in pairwise(budgets))
    assert all(more.weights_bytes < less.weights_bytes for less, more in pairwise(budgets))


@pytest.mark.parametrize("model", MODELS)
def test_a_larger_warm_up_never_leaves_more_cache(catalog: Catalog, model: str) -> None:
    budgets = [budget_of(catalog, model, prefill_tokens=tokens) for tokens in (512, 1024, 2048, 4096, 8192)]
    assert all(larger.kv_cache_bytes < smaller.kv_cache_bytes for smaller, larger in pairwise(budgets))


def test_an_indivisible_head_is_replicated_on_every_shard(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "gpt2")
    assert model.vocab_size % 2
    table = model.vocab_size * model.hidden_size * 2
    one, two = (weights_bytes(model, scheme, layout_of(catalog, model, num_shard=count)) for count in (1, 2))
    assert two == pytest.approx(one / 2 + table / 2, rel=0.001)


def test_only_some_releases_pack_heads(catalog: Catalog) -> None:
    """TGI `layers/tensor_parallel.py`: up to 2.1.1 bitsandbytes took the head as well."""
    profile = catalog.resolve("llama3-70b")
    head = profile.model.vocab_size * profile.model.hidden_size // 2
    (old,) = schemes(profile, catalog.release("2.1.1"), "bitsandbytes-nf4")
    (new,) = schemes(profile, catalog.release("2.2.0"), "bitsandbytes-nf4")
    layout = layout_of(catalog, profile.model, num_shard=2)
    saved = weights_bytes(profile.model, new, layout) - weights_bytes(profile.model, old, layout)
    assert saved == pytest.approx(head * (2 - 4.127 / 8), abs=2)


def test_concurrent_experts_count_in_the_warm_up(catalog: Catalog) -> None:
    """Fused kernels hold both experts of a token; without one for the weights, one expert after the other."""
    profile = catalog.resolve("mixtral-8x7b")
    model, layout = profile.model, layout_of(catalog, profile.model)
    other = 6 * 4096 + (32 + 16) * 128
    release = catalog.release("3.3.7")
    (plain,), (eetq,) = schemes(profile, release, "none"), schemes(profile, release, "eetq")
    assert activation_bytes(model, plain, layout, warm_up(1000), 1) == 1000 * 2 * (other + 2 * (3 * 14_336 + 4096))
    assert activation_bytes(model, eetq, layout, warm_up(1000), 1) == 1000 * 2 * (other + 4 * 14_336)


@pytest.mark.parametrize(
    ("model", "version", "method", "everyone"),
    [
        ("mixtral-8x7b", "3.3.7", "none", False),
        ("mixtral-8x7b", "3.3.7", "fp8", False),
        ("mixtral-8x7b", "3.3.7", "eetq", True),
        ("mixtral-8x7b", "2.3.1", "awq", True),
        ("mixtral-8x7b", "2.4.0", "awq", False),
        ("dbrx-132b", "3.3.7", "none", False),
        ("dbrx-132b", "3.3.7", "fp8", True),
        ("qwen3-30b-a3b", "3.3.7", "none", False),
        ("llama3-8b", "3.3.7", "eetq", False),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "3.3.7", "none", True),
    ],
)
def test_unfused_experts_process_every_token(
    catalog: Catalog, model: str, version: str, method: str, *, everyone: bool
) -> None:
    profile, release = catalog.resolve(model), catalog.release(version)
    (scheme, *_) = schemes(profile, release, method)
    model_class = release.model_class(profile.model.model_type)
    assert runs_all_experts(profile.model, scheme, model_class) is everyone


def test_gathered_experts_copy_every_token(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "meta-llama/Llama-4-Maverick-17B-128E-Instruct")
    layout = layout_of(catalog, model, num_shard=8)
    assert activation_bytes(model, scheme, layout, warm_up(4096), 1) > 128 * 4096 * 3 * 5120 * 2


def test_scoring_prompts_needs_the_logits_of_every_token(catalog: Catalog) -> None:
    """A copy beside them up to 2.3.1, none after it (`torch.log_softmax(out, -1, out=out)`)."""
    llama, scheme = as_it_is(catalog, "llama3.1-8b")

    def peak(version: str, *, scored: bool, num_shard: int = 1) -> int:
        layout = layout_of(catalog, llama, version=version, num_shard=num_shard, prompt_logprobs=scored)
        return activation_bytes(llama, scheme, layout, warm_up(4096), 8)

    logits = 4096 * 128_256 * 2
    assert peak("2.3.1", scored=True) - peak("2.3.1", scored=False) == 2 * logits
    assert peak("2.4.1", scored=True) - peak("2.4.1", scored=False) == logits
    assert peak("2.4.1", scored=True, num_shard=2) - peak("2.4.1", scored=False, num_shard=2) == 3.5 * logits


def test_masks_of_a_vision_model_grow_with_the_square_of_the_prompt(catalog: Catalog) -> None:
    """Gemma 3 spells them out; before 3.3.0 it spells out the attention of every head as well."""
    model, scheme = as_it_is(catalog, "google/gemma-3-27b-it")

    def peak(version: str, prefill: int, prompt: int) -> int:
        layout = layout_of(catalog, model, version=version, num_shard=4)
        return activation_bytes(model, scheme, layout, warm_up(prefill, prompt=prompt), 1)

    one, both = peak("3.3.0", 30_000, 30_000), peak("3.3.0", 31_000, 30_000)
    assert both - one > 14 * 30_000**2
    assert peak("3.2.1", 30_000, 30_000) - one == 64 * 30_000**2


def test_the_warm_up_requests_complete_answers(catalog: Catalog) -> None:
    assert warm_up(4145, prompt=4095, total=4096).cached_tokens(16) == 2 * 4096
    assert warm_up(4096, prompt=8191, total=8192).cached_tokens(1) == 8191
    model, scheme = as_it_is(catalog, "llama3.1-8b")
    long = warm_up(2048, prompt=2048, total=40_000)
    budget = memory_budget(
        model, scheme, layout_of(catalog, model), load(context_tokens=1), total_bytes=80 * GIB, warm_up=long
    )
    assert budget.required_kv_tokens == 39_999


def test_older_releases_reserve_from_free_memory_newer_from_total(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "llama3.1-8b")

    def aside(version: str) -> int:
        layout = layout_of(catalog, model, version=version, attention="paged")
        budget = memory_budget(
            model, scheme, layout, load(context_tokens=1), total_bytes=24 * GIB, warm_up=warm_up(1024)
        )
        return budget.reserved_bytes + budget.graph_bytes

    assert aside("3.3.7") == int(24 * GIB * (1 - 0.9))
    assert aside("2.4.1") < 24 * GIB * 0.1 / 3


def test_a_margin_below_the_uncertainty_is_tight(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "llama3.1-8b")

    def budget(context_tokens: int) -> MemoryBudget:
        promised, layout = load(context_tokens=context_tokens), layout_of(catalog, model)
        return memory_budget(model, scheme, layout, promised, total_bytes=24 * GIB, warm_up=warm_up(1024))

    full = budget(1).kv_capacity_tokens
    assert budget(full).tight
    assert not budget(full // 2).tight
    assert not budget(full + 1).tight
    assert not budget(full + 1).fits


@pytest.mark.parametrize(
    ("version", "pins", "scored"),
    [
        ("2.2.0", {}, True),
        ("2.4.1", {}, True),
        ("3.0.0", {}, False),
        ("3.3.7", {}, False),
        ("3.3.7", {"--enable-prefill-logprobs": "true"}, True),
        ("3.3.7", {"--enable-prefill-logprobs": "false"}, False),
    ],
)
def test_prompts_are_scored_unless_disabled(
    catalog: Catalog, version: str, pins: dict[str, str], *, scored: bool
) -> None:
    assert scores_prompts(catalog.release(version), pins, "flashinfer") is scored
    assert scores_prompts(catalog.release(version), pins, "padded")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("num_shard", [1, 2, 4, 8])
def test_the_overhead_is_the_sum_of_its_parts(catalog: Catalog, model: str, num_shard: int) -> None:
    budget = budget_of(catalog, model, num_shard=num_shard)
    parts = (budget.context_bytes, budget.workspace_bytes, budget.graph_bytes, budget.collective_bytes)
    assert sum(parts) == budget.overhead_bytes
    assert (budget.collective_bytes > 0) is (num_shard > 1)
    assert budget.load_peak_bytes >= budget.weights_bytes + budget.context_bytes


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_is_counted_once(catalog: Catalog, model: str) -> None:
    """On one card a 16-bit model takes two bytes a parameter, and its table once more where the head is tied."""
    spec, scheme = as_it_is(catalog, model)
    again = spec.vocab_size * spec.hidden_size if spec.tied_embeddings else 0
    assert weights_bytes(spec, scheme, layout_of(catalog, spec)) == pytest.approx(2 * (spec.parameters + again), abs=2)
    counts = count(spec)
    assert counts.tables + counts.replicated + counts.vision + counts.linear == spec.parameters


def rank_weights(catalog: Catalog, model: ModelSpec, scheme: Scheme, num_shard: int) -> int:
    return weights_bytes(model, scheme, layout_of(catalog, model, num_shard=num_shard))


def test_unsplit_layers_are_on_every_rank(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "llama3.1-8b")
    norms = model.hidden_size * (2 * model.layers + 1) * 2
    one = rank_weights(catalog, model, scheme, 1)
    assert rank_weights(catalog, model, scheme, 8) == pytest.approx((one - norms) / 8 + norms, abs=9)


def test_the_vision_tower_is_split_like_other_layers(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "llama3.1-8b")
    seeing = replaced(model, vision_parameters=10**9, parameters=model.parameters + 10**9)
    more = rank_weights(catalog, seeing, scheme, 8) - rank_weights(catalog, model, scheme, 8)
    assert more == 2 * 10**9 // 8


def test_transformers_replicates_layers_outside_its_plan(catalog: Catalog) -> None:
    """Experts and embedding of Qwen3's mixtures; the embedding alone of its dense models."""
    mixture, scheme = as_it_is(catalog, "Qwen/Qwen3-30B-A3B")
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    assert rank_weights(catalog, mixture, scheme, 4) > experts
    assert rank_weights(catalog, mixture, scheme, 1) == pytest.approx(2 * mixture.parameters, abs=2)
    dense, plain = as_it_is(catalog, "Qwen/Qwen3-8B")
    table = dense.vocab_size * dense.hidden_size * 2
    whole = rank_weights(catalog, dense, plain, 4) - rank_weights(catalog, dense, plain, 1) / 4
    assert whole == pytest.approx(0.75 * table, rel=0.01)


def test_a_single_kv_head_is_on_every_rank(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "starcoder-15b")
    assert model.kv_heads == 1
    keys_and_values = 2 * model.hidden_size * model.head_dim * model.layers * 2
    many = replaced(model, kv_heads=4)
    more = rank_weights(catalog, model, scheme, 4) - rank_weights(catalog, many, scheme, 4)
    assert more == pytest.approx(keys_and_values * 0.75, abs=2)


def test_headers_override_the_rule(catalog: Catalog) -> None:
    profile = catalog.resolve("llama3.1-8b")
    packed = replaced(
        profile.model, quantization=CheckpointQuantization(method="awq", bits=4, group_size=128),
        quantized_parameters=6_000_000_000, quantized_bytes=3_111_111_111, stored_bytes=None,
    )  # fmt: skip
    (scheme,) = schemes(replaced(profile, model=packed, quantized=()), catalog.release("3.3.7"), "auto")
    rest = packed.parameters - 6_000_000_000
    assert rank_weights(catalog, packed, scheme, 1) == pytest.approx(3_111_111_111 + 2 * rest, abs=2)
    assert download_bytes(packed, scheme) == rank_weights(catalog, packed, scheme, 1)


def test_conversion_holds_the_largest_tensor_twice(catalog: Catalog) -> None:
    profile = catalog.resolve("llama3.1-8b")
    release = catalog.release("3.3.7")
    plain, repacked = schemes(profile, release, "none")[0], schemes(profile, release, "fp8")[0]
    matrix = 2 * profile.model.intermediate_size * profile.model.hidden_size
    peak = {scheme.name: _load_extra(catalog, profile.model, scheme) for scheme in (plain, repacked)}
    assert peak == {"none": 0, "fp8": 2 * matrix}
    stored_in_32 = replaced(profile.model, torch_dtype="float32")
    assert _load_extra(catalog, stored_in_32, plain) == 4 * profile.model.vocab_size * profile.model.hidden_size


def _load_extra(catalog: Catalog, model: ModelSpec, scheme: Scheme) -> int:
    layout, promised = layout_of(catalog, model), load(context_tokens=1)
    budget = memory_budget(model, scheme, layout, promised, total_bytes=80 * GIB, warm_up=warm_up(1024))
    return budget.load_peak_bytes - budget.weights_bytes - budget.context_bytes


@pytest.mark.parametrize(
    ("attention", "block", "whole"), [("flashinfer", 1, 1100), ("paged", 16, 1104), ("flashdecoding", 256, 1280)]
)
def test_every_request_uses_whole_blocks(catalog: Catalog, attention: str, block: int, whole: int) -> None:
    model, scheme = as_it_is(catalog, "llama3.1-8b")
    layout = layout_of(catalog, model, attention=attention)
    promised = Load(input_tokens=1000, output_tokens=100, concurrency=16, context_tokens=8192)
    budget = memory_budget(model, scheme, layout, promised, total_bytes=48 * GIB, warm_up=warm_up(2048))
    assert budget.required_kv_tokens == 8192
    assert budget.kv_capacity_tokens % block == 0
    assert budget.largest_concurrency == budget.kv_capacity_tokens // whole
    assert budget.largest_context_tokens == min(model.max_position_embeddings, budget.kv_capacity_tokens)
    assert budget.margin_bytes == budget.kv_cache_bytes - 8192 * budget.kv_bytes_per_token


@pytest.mark.parametrize(
    ("accelerator", "num_shard", "expected"),
    [("A10G", 1, 8300), ("L4", 4, 32_000), ("H100-80GB", 1, 59_900), ("RTX-4090", 1, 4096), ("B200", 8, 4096)],
)
def test_the_launchers_own_prefill_batch(catalog: Catalog, accelerator: str, num_shard: int, expected: int) -> None:
    """TGI 3.x and Llama-3.1-8B; cards it does not know get its fallback."""
    model = catalog.resolve("llama3.1-8b").model
    chosen = default_prefill_tokens(model, accelerator, num_shard, catalog.accelerator(accelerator).memory_bytes)
    assert chosen == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("accelerator", ["T4", "RTX-4090", "A100-40GB-PCIe", "H100-80GB-PCIe", "H200-NVL"])
def test_the_launcher_compares_complete_gpu_names(catalog: Catalog, accelerator: str) -> None:
    """`nvidia-smi` says `Tesla T4`, `NVIDIA GeForce RTX 4090`, `NVIDIA H100 PCIe`: none of them is in its table."""
    model = catalog.resolve("llama3.2-1b").model
    assert default_prefill_tokens(model, accelerator, 1, catalog.accelerator(accelerator).memory_bytes) == 4096
