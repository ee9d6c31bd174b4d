"""Reads a hub `config.json` into a `ModelSpec`. Field names are those of transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.count import count_parameters
from tgi_deploy.errors import InputError
from tgi_deploy.values.model import FORMAT_ALIASES, CheckpointQuantization, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

_LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN: Final = ("hidden_size", "n_embd", "d_model")
_HEADS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
_KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_FEED_FORWARD: Final = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff")
_POSITIONS: Final = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length")
_EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN: Final = ("num_experts_per_tok", "moe_top_k")
_DENSE_LAYERS: Final = ("first_k_dense_replace",)
_COUNTED_TOO: Final = ("q_lora_rank", "qk_rope_head_dim", "v_head_dim", "num_decoder_layers", "state_size")

# transformers' defaults for missing keys.
_TIED_BY_DEFAULT: Final = frozenset(
    {
        "bloom",
        "cohere",
        "cohere2",
        "mamba",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gpt2",
        "gpt_bigcode",
        "mpt",
    }
    | {"opt", "starcoder2", "t5"}
)
_FOUR_TIMES_HIDDEN: Final = frozenset({"bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "mpt"})
_MAMBA: Final = "mamba"
_STATE_SIZE: Final = 16
_CONVOLUTION: Final = 4
_DEFAULT_POSITIONS: Final = 2048
_LARGEST_ROPE_FACTOR: Final = 1000
_METHOD_BITS: Final = {"fp8": 8, "mxfp4": 4}
_LARGEST: Final = 10**9
# A hundred times the largest model (Kimi K2, 1e12): only a bound for the arithmetic.
MOST_PARAMETERS: Final = 10**14
_MOST_BITS: Final = 32
_LONGEST_LABEL: Final = 100
# Keys of the language model in a multimodal config.
_TEXT_PARTS: Final = ("text_config", "llm_config", "language_config")
# transformers' defaults, which multimodal configs omit.
_TEXT_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000, "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 131072, "sliding_window": 4096,
    },
    "gemma": {
        "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
    },
    "gemma2": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
        "sliding_window": 4096,
    },
    "gemma3_text": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "qwen2": {
        "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32, "vocab_size": 151936, "max_position_embeddings": 32768,
    },
}  # fmt: skip


def model_spec(config: Mapping[str, Any], hub_id: str, **known: object) -> ModelSpec:
    """Return the shape in a config; `known` fields (source, local path, stored size) take precedence.

    Raises:
        InputError: `bad_model_config`, naming the missing or invalid field.
    """
    flat = _flat(config)
    dimensions = _state_space(flat) if _model_type(flat) == _MAMBA else _dimensions(flat)
    fields = {**dimensions, **_experts(flat), **_labels(flat), **known}
    fields["quantization"] = _quantization(flat)
    if "parameters" not in fields:
        fields["parameters"] = _counted(fields, flat)
    return ModelSpec(hub_id=hub_id, **fields)


def _counted(fields: Mapping[str, Any], flat: Mapping[str, Any]) -> int:
    more: dict[str, Any] = {name: _optional(flat, (name,)) for name in _COUNTED_TOO if flat.get(name) is not None}
    gate = flat.get("feed_forward_proj")
    more["gated"] = isinstance(gate, str) and gate.startswith("gated")
    counted = count_parameters(fields, more)
    if not 0 < counted <= MOST_PARAMETERS:
        raise _bad(_HIDDEN[0], f"and the other dimensions give an implausible {counted:,} parameters")
    return counted


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text dimensions of multimodal configs and the nested parts of DBRX and MPT on one level."""
    nested: dict[str, Any] = {}
    for key in ("attn_config", "ffn_config", *_TEXT_PARTS):
        part = config.get(key)
        if isinstance(part, dict):
            kind = part.get("model_type")
            defaults = _TEXT_DEFAULTS.get(kind, {}) if key in _TEXT_PARTS and isinstance(kind, str) else {}
            nested |= {name: value for name, value in {**defaults, **part}.items() if value is not None}
    outer = {key: value for key, value in config.items() if value is not None}
    flat = {**outer, **nested}
    for key in ("model_type", "architectures", "quantization_config"):
        flat[key] = outer.get(key) or nested.get(key)
    if "kv_n_heads" in flat:
        flat.setdefault("num_key_value_heads", flat["kv_n_heads"])
    return {**flat, **_llama4(flat)} if "intermediate_size_mlp" in flat else flat


def _llama4(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return Llama 4's fields under the names of other mixtures: each layer of experts has a shared one.

    Source: transformers 4.51, `modeling_llama4.py`.
    """
    layers, step = _required(flat, _LAYERS), _optional(flat, ("interleave_moe_layer_step",)) or 1
    return {
        "intermediate_size": flat["intermediate_size_mlp"],
        "moe_intermediate_size": flat.get("intermediate_size"),
        "n_shared_experts": 1,
        "first_k_dense_replace": layers - layers // step,
    }


def _dimensions(flat: Mapping[str, Any]) -> dict[str, Any]:
    hidden = _required(flat, _HIDDEN)
    heads = _required(flat, _HEADS)
    return {
        "layers": _required(flat, _LAYERS),
        "hidden_size": hidden,
        "intermediate_size": _feed_forward(flat, hidden),
        "attention_heads": heads,
        "kv_heads": _kv_heads(flat, heads),
        "head_dim": _head_dim(flat, hidden, heads),
        "vocab_size": _required(flat, ("vocab_size",)),
        "max_position_embeddings": _positions(flat),
        "sliding_window": _sliding_window(flat),
    }


def _positions(flat: Mapping[str, Any]) -> int:
    """Return the context length. YaRN multiplies the original one by its factor.

    With other kinds of scaling, configs contain the extended length (DeepSeek Coder, Gemma 3).
    """
    own = _optional(flat, _POSITIONS) or _DEFAULT_POSITIONS
    scaling = flat.get("rope_scaling")
    if not isinstance(scaling, dict) or scaling.get("rope_type", scaling.get("type")) != "yarn":
        return own
    original, factor = _optional(scaling, ("original_max_position_embeddings",)), scaling.get("factor")
    if original is None or isinstance(factor, bool) or not isinstance(factor, int | float):
        return own
    return max(own, int(original * factor)) if 1 <= factor <= _LARGEST_ROPE_FACTOR else own


def _state_space(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return Mamba's dimensions, modeling a request's state as the cache of its first `intermediate / 2` tokens.

    Without attention, a state has `layers x intermediate x (state + convolution)` values at any request length.
    """
    hidden = _required(flat, _HIDDEN)
    state = (_optional(flat, ("state_size",)) or _STATE_SIZE) + (_optional(flat, ("conv_kernel",)) or _CONVOLUTION)
    return {
        "layers": _required(flat, _LAYERS),
        "hidden_size": hidden,
        "intermediate_size": _optional(flat, ("intermediate_size",)) or 2 * hidden,
        "attention_heads": 1,
        "kv_heads": 1,
        "head_dim": state,
        "vocab_size": _required(flat, ("vocab_size",)),
        "max_position_embeddings": _optional(flat, _POSITIONS) or _DEFAULT_POSITIONS,
    }


def _feed_forward(flat: Mapping[str, Any], hidden: int) -> int:
    found = _optional(flat, _FEED_FORWARD)
    if found is not None:
        return found
    if _model_type(flat) in _FOUR_TIMES_HIDDEN:
        return 4 * hidden
    return _required(flat, _FEED_FORWARD)


def _kv_heads(flat: Mapping[str, Any], heads: int) -> int:
    if flat.get("multi_query") is True and flat.get("new_decoder_architecture") is not True:
        return 1
    return _optional(flat, _KV_HEADS) or heads


def _head_dim(flat: Mapping[str, Any], hidden: int, heads: int) -> int:
    if "qk_nope_head_dim" in flat:
        return _required(flat, ("qk_nope_head_dim",)) + _required(flat, ("qk_rope_head_dim",))
    found = _optional(flat, ("head_dim", "d_kv"))
    if found is None and hidden % heads:
        raise _bad(_HIDDEN[0], f"{hidden} does not divide by {heads} attention heads, and there is no head_dim")
    return found or hidden // heads


def _sliding_window(flat: Mapping[str, Any]) -> int | None:
    return None if flat.get("use_sliding_window") is False else _optional(flat, ("sliding_window",))


def _experts(flat: Mapping[str, Any]) -> dict[str, Any]:
    experts = _optional(flat, _EXPERTS) or 0
    if experts <= 1:
        return {"kv_lora_rank": _optional(flat, ("kv_lora_rank",))}
    chosen, dense = _required(flat, _EXPERTS_PER_TOKEN), _optional(flat, _DENSE_LAYERS) or 0
    if chosen > experts:
        raise _bad(_EXPERTS_PER_TOKEN[0], f"should be at most the number of experts, {experts}, not {chosen}")
    if dense > _required(flat, _LAYERS):
        raise _bad(_DENSE_LAYERS[0], f"should be at most the number of layers, not {dense}")
    return {
        "experts": experts,
        "experts_per_token": chosen,
        "expert_intermediate_size": _optional(flat, ("moe_intermediate_size",)) or _required(flat, _FEED_FORWARD),
        "shared_experts": _shared_experts(flat),
        "first_dense_layers": dense,
        "kv_lora_rank": _optional(flat, ("kv_lora_rank",)),
    }


def _shared_experts(flat: Mapping[str, Any]) -> int:
    """Return the number of shared experts. Qwen's mixtures have one as wide as several."""
    width, each = _optional(flat, ("shared_expert_intermediate_size",)), _optional(flat, ("moe_intermediate_size",))
    return width // each if width and each else _optional(flat, ("n_shared_experts",)) or 0


def _labels(flat: Mapping[str, Any]) -> dict[str, Any]:
    model_type = _model_type(flat)
    architectures = flat.get("architectures")
    listed = architectures if isinstance(architectures, list) else []
    dtype = flat.get("torch_dtype", flat.get("dtype"))
    return {
        "model_type": model_type,
        "architecture": _label("architectures", next(iter(listed), model_type)),
        "tied_embeddings": bool(flat.get("tie_word_embeddings", model_type in _TIED_BY_DEFAULT)),
        "torch_dtype": _label("torch_dtype", dtype).removeprefix("torch.") if dtype else "float32",
    }


def _label(field: str, value: object) -> str:
    """Return a label that is safe to print."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _LONGEST_LABEL:
        raise _bad(field, f"should be a name, not {ascii(value)[:40]}")
    return value


def _model_type(flat: Mapping[str, Any]) -> str:
    value = flat.get("model_type")
    if value is None and "ssm_cfg" in flat:
        return _MAMBA  # its first checkpoints lack `model_type` but have this key
    if value is None or value == "":
        raise _bad("model_type", "is missing")
    return _label("model_type", value)


def _quantization(flat: Mapping[str, Any]) -> CheckpointQuantization | None:
    raw = flat.get("quantization_config") or flat.get("compression_config")
    if not isinstance(raw, dict):
        return None
    method = _label("quantization_config", raw.get("quant_method", raw.get("quantization_method", "unknown")))
    method = FORMAT_ALIASES.get(method, method)
    weights = _compressed_weights(raw)
    bits = raw.get("bits") or weights.get("num_bits") or _METHOD_BITS.get(method, 4 if raw.get("load_in_4bit") else 8)
    group = raw.get("group_size", weights.get("group_size"))
    return CheckpointQuantization(
        method=method,
        bits=_bits(bits),
        group_size=group if isinstance(group, int) and 0 < group <= _LARGEST else None,
        block_scaled="weight_block_size" in raw,
    )


def _bits(value: object) -> int:
    """Return the bits per weight; exl2 has fractions such as 4.65."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= _MOST_BITS:
        raise _bad("quantization_config", f"has an invalid number of bits: {ascii(value)[:40]}")
    return round(value)


def _compressed_weights(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the weights' scheme of a compressed-tensors config, from its first group."""
    groups = raw.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    return weights if isinstance(weights, dict) else {}


def _optional(flat: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    name = next((name for name in names if flat.get(name) is not None), None)
    if name is None:
        return None
    value = flat[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise _bad(name, f"should be a whole number, not {ascii(value)[:40]}")
    return value


def _required(flat: Mapping[str, Any], names: tuple[str, ...]) -> int:
    value = _optional(flat, names)
    if value is None:
        raise _bad(names[0], "is missing")
    if value == 0:
        raise _bad(names[0], "should not be zero")
    return value


def _bad(field: str, problem: str) -> InputError:
    return InputError(
        "bad_model_config",
        f"reading the model's config.json: {field} {problem}",
        hint="use the config.json that came with the weights, unchanged",
    )
