"""A model's shape as a table: in `models/shapes.json`, in a profile's `[shape]`, and in the hub cache."""

from __future__ import annotations

from typing import Any, Final

from tgi_deploy.catalog.fields import (
    OPTIONAL_TEXT,
    REQUIRED_TEXT,
    Field,
    anything,
    boolean,
    count,
    positive,
    read,
    text,
)
from tgi_deploy.values.base import Where, changed_fields
from tgi_deploy.values.model import CheckpointQuantization, ModelSpec

_OPTIONAL_COUNT: Final = Field(check=count, required=False)
_OPTIONAL_SIZE: Final = Field(check=positive, required=False)
_OPTIONAL_TRUTH: Final = Field(check=boolean, required=False)


def _bytes_by_dtype(value: Any) -> tuple[tuple[str, int], ...]:  # noqa: ANN401 -- every check takes anything
    try:
        return tuple((text(dtype), count(size)) for dtype, size in value)
    except (TypeError, ValueError):
        raise ValueError('should be a list like [["BF16", 16060522496]]') from None


_SHAPE: Final = {
    "architecture": REQUIRED_TEXT,
    "model_type": REQUIRED_TEXT,
    "parameters": Field(check=positive),
    "layers": Field(check=positive),
    "hidden_size": Field(check=positive),
    "intermediate_size": Field(check=count),
    "attention_heads": Field(check=positive),
    "kv_heads": Field(check=positive),
    "head_dim": Field(check=positive),
    "vocab_size": Field(check=positive),
    "tied_embeddings": Field(check=boolean),
    "max_position_embeddings": Field(check=positive),
    "torch_dtype": REQUIRED_TEXT,
    "sliding_window": _OPTIONAL_SIZE,
    "experts": _OPTIONAL_COUNT,
    "experts_per_token": _OPTIONAL_COUNT,
    "expert_intermediate_size": _OPTIONAL_COUNT,
    "shared_experts": _OPTIONAL_COUNT,
    "first_dense_layers": _OPTIONAL_COUNT,
    "kv_lora_rank": _OPTIONAL_SIZE,
    "quantization": Field(check=anything, required=False),
    "gated": _OPTIONAL_TRUTH,
    "license": OPTIONAL_TEXT,
    "revision": OPTIONAL_TEXT,
    "stored_bytes": _OPTIONAL_SIZE,
    "active_parameters": _OPTIONAL_SIZE,
    "vision_parameters": _OPTIONAL_COUNT,
    "tensor_bytes": Field(check=_bytes_by_dtype, required=False),
    "quantized_parameters": _OPTIONAL_COUNT,
    "quantized_bytes": _OPTIONAL_COUNT,
    "head_stored": _OPTIONAL_TRUTH,
    "duplicate_bytes": _OPTIONAL_COUNT,
    "needs_conversion": _OPTIONAL_TRUTH,
    "chat_template": _OPTIONAL_TRUTH,
    "config_sha256": OPTIONAL_TEXT,
    "source": OPTIONAL_TEXT,
    "note": OPTIONAL_TEXT,
}
_CHECKPOINT_QUANTIZATION: Final = {
    "method": REQUIRED_TEXT,
    "bits": Field(check=positive),
    "group_size": _OPTIONAL_SIZE,
    "block_scaled": _OPTIONAL_TRUTH,
}
# A local path is valid only here; the hub id is stored with the shape.
_NOT_IN_A_TABLE: Final = frozenset({"hub_id", "local_path"})


def read_shape(hub_id: str, raw: object, where: Where) -> ModelSpec:
    """Return the model with this shape. Raises InputError `bad_profile`, naming file and key path."""
    found = read(raw, _SHAPE, where)
    if "quantization" in found:
        found["quantization"] = CheckpointQuantization(
            **read(found["quantization"], _CHECKPOINT_QUANTIZATION, where.child("quantization"))
        )
    return ModelSpec(hub_id=hub_id, **found)


def shape_table(spec: ModelSpec) -> dict[str, Any]:
    """Return the table for `read_shape`: required keys, and optional ones that differ from their defaults."""
    table = {key: value for key, value in changed_fields(spec).items() if key not in _NOT_IN_A_TABLE}
    if spec.quantization is not None:
        table["quantization"] = changed_fields(spec.quantization)
    return table
