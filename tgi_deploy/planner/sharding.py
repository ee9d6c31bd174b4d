"""Which shard counts are worth a look, and which dimensions they must divide.

Source: TGI `layers/tensor_parallel.py` and the model classes, read at 3.3.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.planner.quantization import Scheme
    from tgi_deploy.values.model import ModelSpec

_USUAL_COUNTS: Final = (1, 2, 4, 8, 16)

# These classes copy their single KV head to every rank instead of splitting it.
_COPIES_SINGLE_KV_HEAD: Final = frozenset({"gpt_bigcode", "santacoder"})


def shard_counts(accelerator_count: int, pinned: int | None) -> tuple[int, ...]:
    """Shard counts to consider on a host; a pinned count is considered whether it can work or not."""
    if pinned is not None:
        return (pinned,)
    return tuple(count for count in _USUAL_COUNTS if count <= max(1, accelerator_count))


def indivisible(model: ModelSpec, scheme: Scheme, num_shard: int) -> Iterator[tuple[str, int]]:
    """The dimensions `num_shard` does not divide: (name, size), most telling first."""
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
    """Inputs of the layers that are split by rows: group scales run along them."""
    yield "attention output", model.attention_heads * model.head_dim
    yield from _split_dimensions(model)


def _breaks_groups(size: int, group_size: int | None, num_shard: int) -> bool:
    return bool(group_size and group_size > 0 and size % num_shard == 0 and size // num_shard % group_size)
