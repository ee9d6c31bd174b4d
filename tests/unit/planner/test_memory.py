"""Memory by parts: exact where the facts are exact, monotone where physics is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tgi_deploy.planner.memory import Layout, activation_bytes, memory_budget, total_weights_bytes, weights_bytes
from tgi_deploy.planner.quantization import schemes
from tgi_deploy.planner.types import QuantizedRepository

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.planner.quantization import Scheme
    from tgi_deploy.planner.types import MemoryBudget, ModelSpec, Profile

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
    return memory_budget(
        model, scheme, layout, total_bytes=int(gib * GIB), prefill_tokens=prefill_tokens, required_tokens=10_240,
        concurrency=8,
    )  # fmt: skip


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
    assert total_weights_bytes(profile.model, scheme) == pytest.approx(gigabytes * 1e9, rel=0.01)


def with_awq(profile: Profile) -> Profile:
    copy = QuantizedRepository(method="awq", hub_id="example/awq", bits=4, group_size=128, source="made up")
    return replace(profile, quantized=(copy,))


@pytest.mark.parametrize(
    ("model", "stored"),
    [("meta-llama/Llama-3.1-8B-Instruct", 16_060_522_496), ("google/gemma-2b", 5_012_344_832)],
)
def test_checkpoints_have_the_size_their_index_says(catalog: Catalog, model: str, stored: int) -> None:
    spec, scheme = as_it_is(catalog, model)
    assert total_weights_bytes(spec, scheme) == pytest.approx(stored, rel=0.001)


def test_the_cache_an_engine_reported_on_one_a10g(catalog: Catalog) -> None:
    """Llama-3.1-8B, 8,300 tokens of warm-up: its log says 19,056 tokens. Never promise more, nor much less."""
    budget = budget_of(catalog, "llama3.1-8b", prefill_tokens=8300, gib=A10G_BYTES / GIB)
    assert 0.85 * 19_056 < budget.kv_capacity_tokens <= 19_056


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


def test_experts_that_work_at_once_count_in_the_warm_up(catalog: Catalog) -> None:
    mixtral, _ = as_it_is(catalog, "mixtral-8x7b")
    both = 2 * mixtral.expert_intermediate_size
    assert activation_bytes(mixtral, 1, 1000, 0) == 1000 * (6 * mixtral.hidden_size + 3 * both) * 4
