"""The attention kernels that a release picks, their capabilities, and the dimensions that shards must divide.

Source: TGI `launcher/src/main.rs`, `layers/tensor_parallel.py` and the model classes, read at 3.3.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.engines.tgi.release import ModelClass, TgiRelease
    from tgi_deploy.values.engine import ArchitectureRule, Scheme
    from tgi_deploy.values.model import ModelSpec

PADDED: Final = "padded"
PAGED: Final = "paged"
FLASHINFER: Final = "flashinfer"
FLASHDECODING: Final = "flashdecoding"
ATTENTION_VARIABLE: Final = "ATTENTION"

_USUAL_COUNTS: Final = (1, 2, 4, 8, 16)
# These classes copy their single KV head to every rank instead of splitting it.
_COPIES_SINGLE_KV_HEAD: Final = frozenset({"gpt_bigcode", "santacoder"})


def attention_for(model: ModelSpec, model_class: ModelClass, release: TgiRelease, rule: ArchitectureRule | None) -> str:
    """Return the release's attention kernels for this model and GPU (`padded`: none)."""
    if not model_class.flash:
        return PADDED
    if rule is None:
        return PAGED
    if ATTENTION_VARIABLE in rule.env:
        return rule.env[ATTENTION_VARIABLE]
    if not release.default_attention:
        return PAGED
    if model.head_dim not in release.flash_head_dims or model_class.paged_only:
        return FLASHDECODING
    return release.default_attention


def prefills_in_chunks(release: TgiRelease, model_class: ModelClass, attention: str, pins: Mapping[str, str]) -> bool:
    """Return whether long prompts are prefilled in chunks; speculation disables that."""
    if not model_class.flash or "--speculate" in pins:
        return False
    return release.chunked_prefill and model_class.prefill_chunking and attention in {FLASHINFER, FLASHDECODING}


def shard_counts(available: int) -> tuple[int, ...]:
    return tuple(count for count in _USUAL_COUNTS if count <= max(1, available))


def indivisible(model: ModelSpec, scheme: Scheme, num_shard: int) -> Iterator[tuple[str, int]]:
    """Yield the dimensions that `num_shard` does not divide as (name, size), the most informative first."""
    if model.attention_heads % num_shard:
        yield "attention heads", model.attention_heads
    if model.kv_heads % num_shard and not (model.kv_heads == 1 and model.model_type in _COPIES_SINGLE_KV_HEAD):
        yield "KV heads", model.kv_heads
    for name, size in _split_dimensions(model):
        if size % num_shard:
            yield name, size
    for name, size in _row_split_inputs(model):
        if _breaks_groups(size, scheme.group_size, num_shard):
            yield f"{name} in quantization groups of {scheme.group_size}", size


def _split_dimensions(model: ModelSpec) -> Iterator[tuple[str, int]]:
    if model.intermediate_size:
        yield "intermediate size", model.intermediate_size
    if model.experts and model.expert_intermediate_size != model.intermediate_size:
        yield "expert intermediate size", model.expert_intermediate_size


def _row_split_inputs(model: ModelSpec) -> Iterator[tuple[str, int]]:
    """Yield the input sizes of row-split layers, along which group scales run."""
    yield "attention output", model.attention_heads * model.head_dim
    yield from _split_dimensions(model)


def _breaks_groups(size: int, group_size: int | None, num_shard: int) -> bool:
    return bool(group_size and group_size > 0 and size % num_shard == 0 and size // num_shard % group_size)
