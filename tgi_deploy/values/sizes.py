"""Memory sizes by a model's shape: weights on disk and in memory, KV cache, working memory.

A model's parameters have four parts:

* linear layers, which quantization packs and shards split; experts are counted separately because some formats pack
  only them, and attention because some formats don't pack it;
* the embedding and the head, 16 bits in all formats. Shards split the embedding's rows with padding, the head only if
  the vocabulary is divisible (otherwise every rank holds all of it);
* norms, and a mixture's router: 16 bits, on every rank;
* a vision tower: 16 bits, on every rank unless the engine splits it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import Value

if TYPE_CHECKING:
    from tgi_deploy.values.engine import Scheme
    from tgi_deploy.values.model import ModelSpec

MIB: Final = 1024**2
GIB: Final = 1024**3
# The driver's part of its reported total (0.3 to 0.5 GiB: 23,034 against 22,559 MiB on an L4), and a CUDA context with
# its libraries, if the engine's own figure is unknown.
CONTEXT_BYTES: Final = 870 * MIB
SIXTEEN_BITS: Final = 16.0
_BYTES_16: Final = 2
_BYTES_32: Final = 4


class Format(Value, frozen=True, kw_only=True):
    """Bits per value of each kind of linear layer, including group scales.

    `edge_layers_bits` are those of the first and last layer, 0 if they don't differ.
    """

    linear_bits: float = SIXTEEN_BITS
    expert_bits: float = SIXTEEN_BITS
    attention_bits: float = SIXTEEN_BITS
    edge_layers_bits: float = 0.0


UNQUANTIZED: Final = Format()


def uniform(bits: float) -> Format:
    return Format(linear_bits=bits, expert_bits=bits, attention_bits=bits)


class Counts(Value, frozen=True, kw_only=True):
    """Parameters of a model by kind. They add up to `ModelSpec.parameters`."""

    table: int
    tables: int
    replicated: int
    vision: int
    attention: int
    experts: int
    other: int

    @property
    def linear(self) -> int:
        return self.attention + self.experts + self.other


def count(model: ModelSpec) -> Counts:
    """Split the parameter count; the remainder not explained by the dimensions counts as linear layers."""
    table = model.vocab_size * model.hidden_size
    tables = table * (1 if model.tied_embeddings else 2)
    replicated = model.hidden_size * (2 * model.layers + 1 + model.layers * model.experts)
    experts = 3 * model.hidden_size * model.expert_intermediate_size * model.experts * expert_layers(model)
    attention = 2 * model.hidden_size * model.head_dim * (model.attention_heads + model.kv_heads) * model.layers
    linear = model.parameters - tables - replicated - model.vision_parameters
    if experts + attention > linear:
        attention = max(0, linear - experts)
    return Counts(
        table=table, tables=tables, replicated=replicated, vision=model.vision_parameters, attention=attention,
        experts=experts, other=linear - attention - experts,
    )  # fmt: skip


def expert_layers(model: ModelSpec) -> int:
    """Return the number of layers with experts: those after the first dense ones, unless there are too few parameters.

    Llama 4 Maverick alternates layers with and without experts, which its shape does not record.
    """
    a_layer = 3 * model.hidden_size * model.expert_intermediate_size * model.experts
    tables = model.vocab_size * model.hidden_size * (1 if model.tied_embeddings else 2)
    return min(model.layers - model.first_dense_layers, (model.parameters - tables) // max(1, a_layer))


def linear_bytes(model: ModelSpec, counts: Counts, packed: Format) -> float:
    """Return the size of all linear layers."""
    if packed.linear_bits == packed.expert_bits == packed.attention_bits:
        return counts.linear * packed.linear_bits / 8
    by_kind = (
        counts.attention * packed.attention_bits
        + counts.experts * packed.expert_bits
        + counts.other * packed.linear_bits
    )
    if packed.edge_layers_bits:
        by_kind += 2 / model.layers * counts.other * (packed.edge_layers_bits - packed.linear_bits)
    return by_kind / 8


def resident_bytes(
    model: ModelSpec,
    linear_total: float,
    counts: Counts,
    num_shard: int,
    *,
    tied_once: bool,
    split_vision: bool = False,
) -> int:
    """Return the size of the weights on one accelerator after loading.

    `tied_once`: a tied head shares the embedding's memory; `split_vision`: shards also split the vision tower.
    """
    rows = -(-model.vocab_size // num_shard)
    head = 0 if tied_once and model.tied_embeddings else head_rows(model, num_shard)
    vision = counts.vision // num_shard if split_vision else counts.vision
    whole = counts.replicated + vision + (rows + head) * model.hidden_size
    return (
        int(linear_total / num_shard) + whole * _BYTES_16 + _copied_heads_bytes(model, linear_total, counts, num_shard)
    )


def head_rows(model: ModelSpec, num_shard: int) -> int:
    """Return the rows of the head on one accelerator: all of them if they are not divisible."""
    return model.vocab_size if model.vocab_size % num_shard else model.vocab_size // num_shard


def _copied_heads_bytes(model: ModelSpec, linear_total: float, counts: Counts, num_shard: int) -> int:
    """Return the size of the key and value projections replicated because there are fewer heads than ranks."""
    if model.kv_heads >= num_shard:
        return 0
    projections = 2 * model.hidden_size * model.head_dim * model.kv_heads * model.layers
    held = 1 / model.kv_heads - 1 / num_shard
    return int(projections * held * linear_total / max(1, counts.linear))


def stored_bytes(linear_total: float, counts: Counts) -> int:
    """Return the size of a checkpoint's files, with every parameter once."""
    return int(linear_total) + (counts.tables + counts.replicated + counts.vision) * _BYTES_16


def loading_extra_bytes(model: ModelSpec, linear_bits: float, num_shard: int, *, repacked: bool) -> int:
    """Return the extra memory while the largest tensor is converted.

    A 32-bit tensor is read unchanged and then narrowed; a layer that is quantized or repacked for Marlin briefly exists
    twice.
    """
    width = max(model.intermediate_size, model.expert_intermediate_size * model.experts) * 2
    matrix = width * model.hidden_size // num_shard
    extra = int(matrix * (linear_bits if repacked else 0) / 8)
    if model.torch_dtype == "float32":
        extra = max(extra, max(matrix, model.vocab_size * model.hidden_size // num_shard) * _BYTES_32)
    return extra


def scheme_linear_bytes(model: ModelSpec, scheme: Scheme, counts: Counts) -> float:
    """Return the size of all linear layers; exact if the checkpoint's headers were read."""
    if scheme.prequantized and model.quantization is not None and model.quantized_bytes:
        return model.quantized_bytes + max(0, counts.linear - model.quantized_parameters) * _BYTES_16
    return linear_bytes(model, counts, uniform(scheme.bits))


def download_bytes(model: ModelSpec, scheme: Scheme) -> int:
    """Return the size to download and store: the checkpoint's size on the hub, twice if it is converted."""
    own = scheme.prequantized == (model.quantization is not None)
    if own and model.stored_bytes:
        return model.stored_bytes * (2 if model.needs_conversion else 1)
    counts = count(model)
    if scheme.prequantized:
        return stored_bytes(scheme_linear_bytes(model, scheme, counts), counts)
    return model.parameters * (_BYTES_32 if model.torch_dtype == "float32" else _BYTES_16)


def kv_bytes_per_token(
    model: ModelSpec, num_shard: int, *, value_bytes: int = _BYTES_16, replicated: bool = False
) -> int:
    """Return the KV cache of one token on one accelerator: 2 x layers x local heads x head_dim x bytes per value.

    Exact against engine logs (Qwen2.5-7B 57,344 bytes). `replicated`: every shard holds all heads.
    """
    heads = model.kv_heads if replicated else max(1, model.kv_heads // num_shard)
    return 2 * model.layers * heads * model.head_dim * value_bytes


def layer_values(model: ModelSpec, num_shard: int) -> int:
    """Return the 16-bit values per token of a running layer's activations."""
    feed_forward = model.intermediate_size
    if model.experts:
        feed_forward = max(model.expert_intermediate_size * model.experts_per_token, feed_forward)
    return 6 * model.hidden_size + 3 * feed_forward // num_shard
