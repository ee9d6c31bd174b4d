"""How a checkpoint's weights are stored, tensor by tensor, and which of them one rank loads.

This arithmetic is independent of the planner, because it is used to verify the planner. Layouts are those of
TGI 3.3.7 (`layers/tensor_parallel.py` and the model classes).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.engines.tgi.release import ModelClass, QuantizationRule, TgiRelease
    from tgi_deploy.values.model import ModelSpec, Profile

UNQUANTIZED: Final = "none"
_SIXTEEN_BITS: Final = 16.0
_BYTES_16: Final = 2
_BYTES_32: Final = 4
# `quant_method` in config.json if the launcher has another name for it.
_LAUNCHER_NAMES: Final = {"fbgemm_fp8": "fp8"}
# Model classes that copy their single KV head to every rank.
_COPIED_KV_HEAD: Final = frozenset({"gpt_bigcode", "santacoder"})

Split = Literal["padded", "if-divisible", "even", "whole"]
Kind = Literal["table", "head", "vision", "experts", "layer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The format of linear layers. `bits` per value include group scales; `rule` is None for unchanged 16 bits.

    `stored`: the checkpoint already has this format; `known`: the release can load it.
    """

    name: str
    bits: float
    stored: bool
    rule: QuantizationRule | None = None
    group_size: int | None = None
    known: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensors:
    """`count` equal tensors of `rows` x `columns`. Quantization applies to `packed` ones."""

    rows: int
    columns: int
    split: Split
    kind: Kind = "layer"
    count: int = 1
    packed: bool = False

    @property
    def values(self) -> int:
        return self.count * self.rows * self.columns

    def held_by_a_rank(self, ranks: int) -> float:
        """Return the number of values on one rank."""
        if self.split == "whole" or (self.split == "if-divisible" and self.rows % ranks):
            return self.values
        if self.split == "padded":
            return self.count * -(-self.rows // ranks) * self.columns
        return self.values / ranks


def stored_weights(profile: Profile, release: TgiRelease) -> Weights:
    """Return the format of the files on the hub."""
    stored = profile.model.quantization
    if stored is None:
        return Weights(name=UNQUANTIZED, bits=_SIXTEEN_BITS, stored=True)
    name = _LAUNCHER_NAMES.get(stored.method, stored.method)
    rule = release.quantizations.get(name)
    group = stored.group_size or 0
    scales = rule.group_overhead_bits / group if rule and group > 0 else 0.0
    return Weights(
        name=name, bits=_bits_read(profile.model) or stored.bits + scales, stored=True, rule=rule,
        group_size=stored.group_size,
        known=rule is not None and rule.prequantized,
    )  # fmt: skip


def _bits_read(model: ModelSpec) -> float | None:
    """Return a linear layer's mean bits per value if the checkpoint's headers were read: some layers keep 16 bits."""
    if not model.quantized_bytes:
        return None
    linear = sum(item.values for item in tensors(model) if item.packed)
    return 8 * (model.quantized_bytes + max(0, linear - model.quantized_parameters) * _BYTES_16) / linear


def quantized_on_load(name: str, release: TgiRelease) -> Weights:
    """Return the format after `--quantize` of 16-bit files."""
    rule = release.quantizations.get(name)
    return Weights(
        name=name, bits=_SIXTEEN_BITS if rule is None else rule.bits, stored=False, rule=rule,
        known=rule is not None and rule.on_the_fly,
    )  # fmt: skip


def checkpoint_bytes(model: ModelSpec, weights: Weights) -> int:
    """Return the size of the files, doubled if the engine converts them first."""
    if model.stored_bytes:
        return model.stored_bytes * (2 if model.needs_conversion else 1)
    plain_bytes = _BYTES_32 if model.torch_dtype == "float32" else _BYTES_16
    tied = model.vocab_size * model.hidden_size if model.tied_embeddings else 0
    return int(sum(_bytes(item, item.values, weights, plain_bytes) for item in tensors(model))) - tied * plain_bytes


def rank_bytes(model: ModelSpec, weights: Weights, ranks: int, native: ModelClass) -> int:
    """Return the size on one rank after loading; TGI's own classes load a tied head a second time."""
    held = sum(
        _bytes(item, item.held_by_a_rank(ranks), weights, _BYTES_16)
        for item in _tensors_of_a_rank(model, weights, ranks, native)
    )
    return int(held)


def _tensors_of_a_rank(model: ModelSpec, weights: Weights, ranks: int, native: ModelClass) -> Iterator[Tensors]:
    """Return the tensors in the class's layout: transformers does not split tensors that its plan omits."""
    for item in tensors(model, ranks):
        if native.backend == "native":
            packs_head = weights.rule is not None and weights.rule.packs_head and not weights.stored
            yield replace(item, packed=item.packed or packs_head) if item.kind == "head" else item
        elif item.kind == "head" and model.tied_embeddings:
            continue
        elif item.kind in {"table", "vision"} or (item.kind == "experts" and native.whole_experts):
            yield replace(item, split="whole")
        else:
            yield item


def largest_layer_bytes(model: ModelSpec, weights: Weights, ranks: int) -> int:
    """Return the extra size while converting a layer: its 32-bit file, or its form before quantization."""
    widest = max(
        item.held_by_a_rank(ranks) / item.count for item in tensors(model, ranks) if item.split in {"even", "padded"}
    )
    if model.torch_dtype == "float32":
        return int(widest * _BYTES_32)
    return 0 if weights.rule is None or weights.stored else int(widest * _BYTES_16)


def _bytes(item: Tensors, values: float, weights: Weights, plain_bytes: int) -> float:
    return values * (weights.bits / 8 if item.packed and weights.rule is not None else plain_bytes)


def tensors(model: ModelSpec, ranks: int = 1) -> Iterator[Tensors]:
    """Yield every tensor of the model. The part of its size not explained by dimensions counts as linear layers."""
    known = tuple(_named(model, ranks))
    yield from known
    explained = sum(item.values for item in _named(model, 1)) - _head(model).values * model.tied_embeddings
    rest = model.parameters - explained
    if rest:
        yield Tensors(rows=1, columns=rest, split="even", packed=True)


def _named(model: ModelSpec, ranks: int) -> Iterator[Tensors]:
    hidden, layers = model.hidden_size, model.layers
    kv_rows = max(model.kv_heads, ranks if model.kv_heads < ranks else 0) * model.head_dim
    yield Tensors(rows=model.vocab_size, columns=hidden, split="padded", kind="table")
    yield _head(model)
    yield Tensors(
        rows=model.attention_heads * model.head_dim, columns=hidden, split="even", count=2 * layers, packed=True
    )
    yield Tensors(rows=kv_rows, columns=hidden, split="even", count=2 * layers, packed=True)
    yield Tensors(rows=1, columns=hidden, split="whole", count=2 * layers + 1)
    yield Tensors(rows=1, columns=model.vision_parameters, split="even", kind="vision")
    yield from _feed_forward(model)


def _head(model: ModelSpec) -> Tensors:
    return Tensors(rows=model.vocab_size, columns=model.hidden_size, split="if-divisible", kind="head")


def _feed_forward(model: ModelSpec) -> Iterator[Tensors]:
    hidden, layers = model.hidden_size, model.layers
    if not model.experts:
        yield Tensors(rows=model.intermediate_size, columns=hidden, split="even", count=3 * layers, packed=True)
        return
    mixed = layers - model.first_dense_layers
    an_expert = 3 * model.expert_intermediate_size * hidden
    # Llama 4 Maverick has experts only in every second layer, which shows only in its size, not in its shape.
    mixed = min(mixed, model.parameters // (model.experts * an_expert))
    yield Tensors(
        rows=model.expert_intermediate_size, columns=hidden, split="even", kind="experts",
        count=3 * mixed * model.experts, packed=True,
    )  # fmt: skip
    yield Tensors(rows=model.experts, columns=hidden, split="whole", count=mixed)


def indivisible(model: ModelSpec, weights: Weights, ranks: int) -> tuple[str, int] | None:
    """Return the first dimension that TGI can't split over `ranks`: (name, size)."""
    if model.attention_heads % ranks:
        return "attention heads", model.attention_heads
    if model.kv_heads % ranks and not (model.kv_heads == 1 and model.model_type in _COPIED_KV_HEAD):
        return "KV heads", model.kv_heads
    widths = [model.intermediate_size, model.expert_intermediate_size if model.experts else 0]
    uneven = next((width for width in widths if width % ranks), None)
    if uneven is not None:
        return "intermediate size", uneven
    for width in (model.attention_heads * model.head_dim, *widths):
        if weights.group_size and weights.group_size > 0 and width // ranks % weights.group_size:
            return "quantization groups", width
    return None
