"""Memory by parts: exact where the facts are exact, monotone where physics is."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tgi_deploy.engines.tgi.memory import Layout, activation_bytes, memory_budget, scores_prompts, weights_bytes
from tgi_deploy.engines.tgi.prefill import default_prefill_tokens
from tgi_deploy.engines.tgi.schemes import schemes
from tgi_deploy.values.engine import Load
from tgi_deploy.values.model import CheckpointQuantization, QuantizedRepository
from tgi_deploy.values.sizes import count, download_bytes, layer_values

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.engine import MemoryBudget, Scheme
    from tgi_deploy.values.model import ModelSpec, Profile

GIB = 2**30
A10G_BYTES = 22.5 * GIB
MODELS = ("llama3.1-8b", "qwen2.5-7b", "falcon-7b", "mixtral-8x7b", "gemma2-9b", "starcoder-15b", "phi3-mini")


def as_it_is(catalog: Catalog, model: str) -> tuple[ModelSpec, Scheme]:
    profile = catalog.resolve(model)
    return profile.model, schemes(profile, catalog.release("3.3.7"), "none")[0]


def budget_of(
    catalog: Catalog, name: str, *, num_shard: int = 1, prefill_tokens: int = 4096, gib: float = 80
) -> MemoryBudget:
    model, scheme = as_it_is(catalog, name)
    release = catalog.release("3.3.7")
    layout = Layout(
        num_shard=num_shard, share=release.memory_share, workspace_bytes=release.workspace_bytes, block_tokens=1,
        replicated_kv=release.model_classes[model.model_type].replicated_kv,
    )  # fmt: skip
    promised = load(context_tokens=10_240, concurrency=8)
    return memory_budget(
        model, scheme, layout, promised, total_bytes=int(gib * GIB), prefill_tokens=prefill_tokens
    )  # fmt: skip


def load(*, context_tokens: int, concurrency: int = 1) -> Load:
    return Load(input_tokens=0, output_tokens=0, concurrency=concurrency, context_tokens=context_tokens)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("num_shard", [1, 2, 4])
@pytest.mark.parametrize("gib", [15, 22.5, 80])
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
def test_cache_bytes_of_a_token_are_exact(catalog: Catalog, model: str, num_shard: int, expected: int) -> None:
    assert budget_of(catalog, model, num_shard=num_shard).kv_bytes_per_token == expected


@pytest.mark.parametrize(("model", "gigabytes"), [("llama2-7b", 3.889), ("llama2-13b", 7.248), ("llama2-70b", 36.61)])
def test_awq_copies_have_the_size_the_hub_shows(catalog: Catalog, model: str, gigabytes: float) -> None:
    profile = with_awq(catalog.resolve(model))
    (scheme,) = schemes(profile, catalog.release("3.3.7"), "awq")
    assert download_bytes(profile.model, scheme) == pytest.approx(gigabytes * 1e9, rel=0.01)


def with_awq(profile: Profile) -> Profile:
    copy = QuantizedRepository(method="awq", hub_id="example/awq", bits=4, group_size=128, source="made up")
    return replace(profile, quantized=(copy,))


@pytest.mark.parametrize(
    ("model", "stored"),
    [("meta-llama/Llama-3.1-8B-Instruct", 16_060_522_496), ("google/gemma-2b", 5_012_344_832)],
)
def test_checkpoints_have_the_size_their_index_says(catalog: Catalog, model: str, stored: int) -> None:
    spec, scheme = as_it_is(catalog, model)
    assert download_bytes(spec, scheme) == pytest.approx(stored, rel=0.001)


def test_the_cache_an_engine_reported_on_one_a10g(catalog: Catalog) -> None:
    """Llama-3.1-8B, TGI 2.2 with its 4,145 tokens of warm-up: 19,056 tokens in its log; never promised more."""
    model, scheme = as_it_is(catalog, "llama3.1-8b")
    release = catalog.release("2.2.0")
    layout = Layout(
        num_shard=1, share=release.memory_share, workspace_bytes=release.workspace_bytes,
        block_tokens=release.block_tokens["paged"], prompt_logprobs=scores_prompts(release, {}),
    )  # fmt: skip
    promised = load(context_tokens=4096)
    budget = memory_budget(model, scheme, layout, promised, total_bytes=int(A10G_BYTES), prefill_tokens=4145)
    assert 0.97 * 19_056 < budget.kv_capacity_tokens <= 19_056
    assert budget.kv_capacity_tokens % 16 == 0


@pytest.mark.parametrize("model", MODELS)
def test_more_shards_never_hold_fewer_tokens_on_each_card(catalog: Catalog, model: str) -> None:
    budgets = [budget_of(catalog, model, num_shard=num_shard) for num_shard in (1, 2, 4, 8)]
    assert all(more.kv_capacity_tokens >= less.kv_capacity_tokens for less, more in pairwise(budgets))
    assert all(more.weights_bytes < less.weights_bytes for less, more in pairwise(budgets))


@pytest.mark.parametrize("model", MODELS)
def test_a_larger_warm_up_never_leaves_more_cache(catalog: Catalog, model: str) -> None:
    budgets = [budget_of(catalog, model, prefill_tokens=tokens) for tokens in (512, 1024, 2048, 4096, 8192)]
    assert all(larger.kv_cache_bytes < smaller.kv_cache_bytes for smaller, larger in pairwise(budgets))


def test_a_head_that_does_not_divide_is_held_whole_by_every_shard(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "gpt2")
    assert model.vocab_size % 2
    table = model.vocab_size * model.hidden_size * 2
    split_all = weights_bytes(model, scheme, 1) / 2
    assert weights_bytes(model, scheme, 2) == pytest.approx(split_all + table / 2, rel=0.001)


def test_what_an_engine_of_the_third_generation_holds_on_one_l4(catalog: Catalog) -> None:
    """The release notes of TGI 3.0: 30k tokens of Llama-3.1-8B, at the launcher's own prefill batch."""
    model, scheme = as_it_is(catalog, "llama3.1-8b")
    release, card = catalog.release("3.0.0"), catalog.accelerator("L4")
    layout = Layout(
        num_shard=1, share=release.memory_share, workspace_bytes=release.workspace_bytes, block_tokens=1,
        prompt_logprobs=scores_prompts(release, {}),
    )  # fmt: skip
    prefill = default_prefill_tokens(model, card.name, 1, card.memory_bytes)
    promised = load(context_tokens=1)
    budget = memory_budget(
        model, scheme, layout, promised, total_bytes=card.memory_bytes, prefill_tokens=prefill
    )  # fmt: skip
    assert 0.85 * 30_000 < budget.kv_capacity_tokens <= 30_000


def test_experts_that_work_at_once_count_in_the_warm_up(catalog: Catalog) -> None:
    mixtral, _ = as_it_is(catalog, "mixtral-8x7b")
    both = 2 * mixtral.expert_intermediate_size
    assert layer_values(mixtral, 1) == 6 * 4096 + 3 * both
    assert activation_bytes(mixtral, 1, 1000, 1) == 1000 * (6 * 4096 + 3 * both) * 4


def test_scored_prompts_hold_the_logits_of_every_token(catalog: Catalog) -> None:
    llama, _ = as_it_is(catalog, "llama3.1-8b")
    assert activation_bytes(llama, 1, 4096, 8, prompt_logprobs=True) == 4096 * (128_256 * 6 + 2 * 4096 * 2)
    assert activation_bytes(llama, 1, 4096, 8) < activation_bytes(llama, 1, 4096, 8, prompt_logprobs=True)
    assert activation_bytes(llama, 1, 16, 4096) == 4096 * 128_256 * 8


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
def test_prompts_are_scored_unless_a_switch_is_off(
    catalog: Catalog, version: str, pins: dict[str, str], *, scored: bool
) -> None:
    assert scores_prompts(catalog.release(version), pins) is scored


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("num_shard", [1, 2, 4, 8])
def test_the_overhead_is_the_sum_of_its_parts(catalog: Catalog, model: str, num_shard: int) -> None:
    budget = budget_of(catalog, model, num_shard=num_shard)
    parts = (budget.context_bytes, budget.workspace_bytes, budget.graph_bytes, budget.collective_bytes)
    assert sum(parts) == budget.overhead_bytes
    assert (budget.collective_bytes > 0) is (num_shard > 1)
    assert budget.load_peak_bytes >= budget.weights_bytes + budget.context_bytes


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_is_laid_out_once(catalog: Catalog, model: str) -> None:
    """On one card a 16-bit model takes two bytes a parameter, and its table once more where the head is tied."""
    spec, scheme = as_it_is(catalog, model)
    again = spec.vocab_size * spec.hidden_size if spec.tied_embeddings else 0
    assert weights_bytes(spec, scheme, 1) == pytest.approx(2 * (spec.parameters + again), abs=2)
    counts = count(spec)
    assert counts.tables + counts.replicated + counts.vision + counts.linear == spec.parameters


def test_what_is_not_split_stays_on_every_rank(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "llama3.1-8b")
    norms = model.hidden_size * (2 * model.layers + 1) * 2
    assert weights_bytes(model, scheme, 8) == pytest.approx(
        (weights_bytes(model, scheme, 1) - norms) / 8 + norms, abs=9
    )
    seeing = replace(model, vision_parameters=10**9, parameters=model.parameters + 10**9)
    assert weights_bytes(seeing, scheme, 8) - weights_bytes(model, scheme, 8) == 2 * 10**9


def test_a_single_head_of_keys_is_held_by_every_rank(catalog: Catalog) -> None:
    model, scheme = as_it_is(catalog, "starcoder-15b")
    assert model.kv_heads == 1
    keys_and_values = 2 * model.hidden_size * model.head_dim * model.layers * 2
    many = replace(model, kv_heads=4)
    assert weights_bytes(model, scheme, 4) - weights_bytes(many, scheme, 4) == pytest.approx(
        keys_and_values * 0.75, abs=2
    )


def test_read_headers_outrank_the_rule(catalog: Catalog) -> None:
    profile = catalog.resolve("llama3.1-8b")
    packed = replace(
        profile.model, quantization=CheckpointQuantization(method="awq", bits=4, group_size=128),
        quantized_parameters=6_000_000_000, quantized_bytes=3_111_111_111, stored_bytes=None,
    )  # fmt: skip
    (scheme,) = schemes(replace(profile, model=packed, quantized=()), catalog.release("3.3.7"), "auto")
    rest = packed.parameters - 6_000_000_000
    assert weights_bytes(packed, scheme, 1) == pytest.approx(3_111_111_111 + 2 * rest, abs=2)
    assert download_bytes(packed, scheme) == weights_bytes(packed, scheme, 1)


def test_loading_holds_the_largest_tensor_twice_where_it_is_converted(catalog: Catalog) -> None:
    profile = catalog.resolve("llama3.1-8b")
    release = catalog.release("3.3.7")
    plain, repacked = schemes(profile, release, "none")[0], schemes(profile, release, "fp8")[0]
    matrix = 2 * profile.model.intermediate_size * profile.model.hidden_size
    peak = {scheme.name: _load_extra(profile.model, scheme) for scheme in (plain, repacked)}
    assert peak == {"none": 0, "fp8": 2 * matrix}
    stored_in_32 = replace(profile.model, torch_dtype="float32")
    assert _load_extra(stored_in_32, plain) == 4 * profile.model.vocab_size * profile.model.hidden_size


def _load_extra(model: ModelSpec, scheme: Scheme) -> int:
    layout = Layout(num_shard=1, share=0.9, workspace_bytes=0, block_tokens=1)
    promised = load(context_tokens=1)
    budget = memory_budget(model, scheme, layout, promised, total_bytes=80 * GIB, prefill_tokens=1024)
    return budget.load_peak_bytes - budget.weights_bytes - budget.context_bytes


@pytest.mark.parametrize(("block", "whole"), [(1, 1100), (16, 1104), (256, 1280)])
def test_every_request_takes_whole_blocks(catalog: Catalog, block: int, whole: int) -> None:
    model, scheme = as_it_is(catalog, "llama3.1-8b")
    layout = Layout(num_shard=1, share=0.9, workspace_bytes=0, block_tokens=block)
    promised = Load(input_tokens=1000, output_tokens=100, concurrency=16, context_tokens=8192)
    budget = memory_budget(model, scheme, layout, promised, total_bytes=48 * GIB, prefill_tokens=2048)
    assert budget.required_kv_tokens == 16 * whole
    assert budget.kv_capacity_tokens % block == 0
    assert budget.largest_concurrency == budget.kv_capacity_tokens // whole
    assert budget.largest_context_tokens == min(model.max_position_embeddings, budget.kv_capacity_tokens)
    assert budget.margin_bytes == budget.kv_cache_bytes - 16 * whole * budget.kv_bytes_per_token


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
def test_the_launcher_compares_whole_names_of_cards(catalog: Catalog, accelerator: str) -> None:
    """`nvidia-smi` says `Tesla T4`, `NVIDIA GeForce RTX 4090`, `NVIDIA H100 PCIe`: none of them is in its table."""
    model = catalog.resolve("llama3.2-1b").model
    assert default_prefill_tokens(model, accelerator, 1, catalog.accelerator(accelerator).memory_bytes) == 4096
