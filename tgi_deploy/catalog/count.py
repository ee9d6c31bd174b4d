"""Counts a model's parameters from its dimensions if no count is published.

The count is within 1 % for the models in `models/shapes.json` whose architecture it covers. It includes norms, but not
rotary buffers or vision towers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.model import LATENT_ROPE_DIM

if TYPE_CHECKING:
    from collections.abc import Mapping

# These have an up and a down projection; all others also have a gate.
_NO_GATE: Final = frozenset(
    {"bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "nemotron", "opt"}
    | {"persimmon", "phi", "starcoder2", "xglm"}
)
_STATE_SIZE: Final = 16
_LEARNED_POSITIONS: Final = frozenset({"gpt2", "gpt_bigcode", "opt"})


def count_parameters(shape: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> int:
    """Count the parameters of a shape (`ModelSpec` field names); `config` may add missing fields (`q_lora_rank`)."""
    raw = config or {}
    table = shape["vocab_size"] * shape["hidden_size"]
    total = table if shape["tied_embeddings"] else 2 * table
    if shape["model_type"] == "t5":
        return int(total + _encoder_decoder(shape, raw))
    if shape["model_type"] == "mamba":
        return int(total + shape["layers"] * _state_space_layer(shape, raw) + shape["hidden_size"])
    if shape["model_type"] in _LEARNED_POSITIONS:
        total += shape["max_position_embeddings"] * shape["hidden_size"]
    dense_layers, expert_layers = _layer_kinds(shape)
    total += shape["layers"] * (_attention(shape, raw) + 2 * shape["hidden_size"])
    total += dense_layers * _feed_forward(shape, shape["intermediate_size"])
    total += expert_layers * _experts(shape) if expert_layers else 0
    return int(total + shape["hidden_size"])


def _encoder_decoder(shape: Mapping[str, Any], raw: Mapping[str, Any]) -> int:
    """T5's: a decoder layer attends to itself and to the encoder."""
    hidden, encoders = shape["hidden_size"], shape["layers"]
    decoders = raw.get("num_decoder_layers", encoders)
    matrices = 3 if raw.get("gated") else 2
    feed_forward = matrices * hidden * shape["intermediate_size"]
    attention = 4 * hidden * shape["attention_heads"] * shape["head_dim"]
    encoder, decoder = attention + feed_forward + 2 * hidden, 2 * attention + feed_forward + 3 * hidden
    return int(encoders * encoder + decoders * decoder + 2 * hidden)


def _state_space_layer(shape: Mapping[str, Any], raw: Mapping[str, Any]) -> int:
    """Mamba's: projections in and out, a convolution, and the selection of a state with its time steps."""
    hidden, inner, state = shape["hidden_size"], shape["intermediate_size"], raw.get("state_size", _STATE_SIZE)
    steps = -(-hidden // _STATE_SIZE)
    convolution = shape["head_dim"] - state
    selection = inner * (steps + 2 * state) + steps * inner + inner
    return int(3 * hidden * inner + inner * (convolution + 1) + selection + inner * (state + 1) + hidden)


def _layer_kinds(shape: Mapping[str, Any]) -> tuple[int, int]:
    if not shape.get("experts"):
        return shape["layers"], 0
    dense = shape.get("first_dense_layers") or 0
    return dense, shape["layers"] - dense


def _attention(shape: Mapping[str, Any], raw: Mapping[str, Any]) -> int:
    if shape.get("kv_lora_rank"):
        return _latent_attention(shape, raw)
    width = shape["attention_heads"] * shape["head_dim"]
    kv_width = shape["kv_heads"] * shape["head_dim"]
    return int(2 * shape["hidden_size"] * (width + kv_width))


def _latent_attention(shape: Mapping[str, Any], raw: Mapping[str, Any]) -> int:
    """DeepSeek's: queries and keys/values go through a narrow latent."""
    hidden, heads, rank = shape["hidden_size"], shape["attention_heads"], shape["kv_lora_rank"]
    rope = raw.get("qk_rope_head_dim", LATENT_ROPE_DIM)
    plain = shape["head_dim"] - rope
    value = raw.get("v_head_dim", plain)
    narrow = raw.get("q_lora_rank")
    queries = heads * shape["head_dim"]
    query = narrow * (hidden + queries) if narrow else hidden * queries
    return int(query + hidden * (rank + rope) + rank * heads * (plain + value) + heads * value * hidden)


def _feed_forward(shape: Mapping[str, Any], width: int) -> int:
    matrices = 2 if shape["model_type"] in _NO_GATE else 3
    return int(matrices * shape["hidden_size"] * width)


def _experts(shape: Mapping[str, Any]) -> int:
    hidden: int = shape["hidden_size"]
    routed: int = shape["experts"]
    experts = routed + int(shape.get("shared_experts") or 0)
    return experts * _feed_forward(shape, shape["expert_intermediate_size"]) + routed * hidden
