"""Model shapes and profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import field

from tgi_deploy.values.base import Fact, Value

# The positional part of a latent KV cache: `qk_rope_head_dim` of DeepSeek's models.
LATENT_ROPE_DIM: Final = 64
# Synonyms of number formats in `quant_method` of config.json.
FORMAT_ALIASES: Final = {"fbgemm_fp8": "fp8"}


class CheckpointQuantization(Value, frozen=True, kw_only=True):
    """A checkpoint's quantization (`quantization_config` in its config.json)."""

    method: str
    bits: int
    group_size: int | None = None
    block_scaled: bool = False


class ModelSpec(Value, frozen=True, kw_only=True):
    """The shape of a checkpoint: dimensions as the engine uses them, 0 for missing parts.

    Known only if the weights' headers were read: `tensor_bytes` (loaded bytes by safetensors dtype),
    `quantized_parameters` and `quantized_bytes` (packed linear layers with scales and zeros), `active_parameters` (per
    token, in a mixture of experts), `head_stored`. `stored_bytes` is the download size, `duplicate_bytes` the part that
    is never loaded; `needs_conversion`: there is no safetensors file, and the converted copy needs the same disk space
    again.
    """

    hub_id: str
    architecture: str
    model_type: str
    parameters: int
    layers: int
    hidden_size: int
    intermediate_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    tied_embeddings: bool
    max_position_embeddings: int
    torch_dtype: str
    sliding_window: int | None = None
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    shared_experts: int = 0
    first_dense_layers: int = 0
    kv_lora_rank: int | None = None
    quantization: CheckpointQuantization | None = None
    gated: bool = False
    license: str | None = None
    revision: str | None = None
    local_path: str | None = None
    stored_bytes: int | None = None
    active_parameters: int | None = None
    vision_parameters: int = 0
    tensor_bytes: tuple[tuple[str, int], ...] = ()
    quantized_parameters: int = 0
    quantized_bytes: int = 0
    head_stored: bool | None = None
    duplicate_bytes: int = 0
    needs_conversion: bool = False
    chat_template: bool | None = None
    config_sha256: str | None = None
    source: str = ""
    note: str | None = None


class QuantizedRepository(Value, frozen=True, kw_only=True):
    """A published quantized copy of a model. `intermediate_size` is set if it was padded."""

    method: str
    hub_id: str
    bits: int
    group_size: int | None
    source: str
    intermediate_size: int | None = None


class Profile(Value, frozen=True, kw_only=True):
    """A named model: its shape, notes, and defaults for some options."""

    name: str
    model: ModelSpec
    summary: str
    notice: str | None = None
    chat: bool = True
    quantized: tuple[QuantizedRepository, ...] = ()
    defaults: Mapping[str, Fact] = field(default_factory=dict)
