"""Checkpoints with real structure but no content: real names, shapes, dtypes and sizes, in sparse files.

Names and shapes follow transformers' model classes and the quantizers' file formats; the code under test is not used.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I16": 2, "I64": 8, "F8_E4M3": 1, "U8": 1, "I8": 1, "BOOL": 1}
CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "mixtral": "MixtralForCausalLM", "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "phi3": "Phi3ForCausalLM",
}  # fmt: skip


def config_of(shape, **changes):
    """A config.json as the hub has it, from an entry of `models/shapes.json`."""
    config = {
        "architectures": [shape["architecture"]],
        "model_type": shape["model_type"],
        "hidden_size": shape["hidden_size"],
        "intermediate_size": shape["intermediate_size"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["attention_heads"],
        "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["head_dim"],
        "vocab_size": shape["vocab_size"],
        "tie_word_embeddings": shape["tied_embeddings"],
        "max_position_embeddings": shape["max_position_embeddings"],
        "torch_dtype": shape["torch_dtype"],
        "sliding_window": shape.get("sliding_window"),
    }
    if shape.get("experts"):
        config |= _expert_keys(shape)
    if shape["model_type"] == "deepseek_v2":
        config |= {
            "qk_nope_head_dim": shape["head_dim"] - 64, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "kv_lora_rank": shape["kv_lora_rank"], "q_lora_rank": None,
        }  # fmt: skip
    return config | changes


def _expert_keys(shape):
    if shape["model_type"] == "mixtral":
        return {"num_local_experts": shape["experts"], "num_experts_per_tok": shape["experts_per_token"]}
    name = "n_routed_experts" if shape["model_type"] == "deepseek_v2" else "num_experts"
    return {
        name: shape["experts"],
        "num_experts_per_tok": shape["experts_per_token"],
        "moe_intermediate_size": shape["expert_intermediate_size"],
        "n_shared_experts": shape.get("shared_experts"),
        "first_k_dense_replace": shape.get("first_dense_layers", 0),
    }


def tensors_of(config, dtype="BF16"):
    """Name → (dtype, shape) of every tensor of an unquantized checkpoint."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    found = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        start = f"model.layers.{layer}."
        parts = {**_attention(config), **_feed_forward(config, layer), **_norms(config)}
        found |= {start + name: shape for name, shape in parts.items()}
    return {name: (dtype, shape) for name, shape in found.items()}


def _attention(config):
    if config["model_type"] == "deepseek_v2":
        return _latent_attention(config)
    hidden, dim = config["hidden_size"], config["head_dim"]
    wide, narrow = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    if config["model_type"] == "phi3":
        return {"self_attn.qkv_proj.weight": (wide + 2 * narrow, hidden), "self_attn.o_proj.weight": (hidden, wide)}
    found = {
        "self_attn.q_proj.weight": (wide, hidden),
        "self_attn.k_proj.weight": (narrow, hidden),
        "self_attn.v_proj.weight": (narrow, hidden),
        "self_attn.o_proj.weight": (hidden, wide),
    }
    if config["model_type"] == "qwen2":
        found |= {f"self_attn.{name}_proj.bias": (size,) for name, size in (("q", wide), ("k", narrow), ("v", narrow))}
    if config["model_type"].startswith("qwen3"):
        found |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
    return found


def _latent_attention(config):
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    plain, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    return {
        "self_attn.q_proj.weight": (heads * (plain + rope), hidden),
        "self_attn.kv_a_proj_with_mqa.weight": (rank + rope, hidden),
        "self_attn.kv_a_layernorm.weight": (rank,),
        "self_attn.kv_b_proj.weight": (heads * (plain + value), rank),
        "self_attn.o_proj.weight": (hidden, heads * value),
    }


def _feed_forward(config, layer):
    kind = config["model_type"]
    hidden = config["hidden_size"]
    if kind == "mixtral":
        gate = {"block_sparse_moe.gate.weight": (config["num_local_experts"], hidden)}
        width = config["intermediate_size"]
        return gate | {
            f"block_sparse_moe.experts.{expert}.{name}.weight": (hidden, width) if name == "w2" else (width, hidden)
            for expert in range(config["num_local_experts"])
            for name in ("w1", "w2", "w3")
        }
    routed = config.get("n_routed_experts") or config.get("num_experts") or 0
    if not routed or layer < config["first_k_dense_replace"]:
        return _gated("mlp", hidden, config["intermediate_size"], fused=kind == "phi3")
    found = {"mlp.gate.weight": (routed, hidden)}
    width = config["moe_intermediate_size"]
    for expert in range(routed):
        found |= _gated(f"mlp.experts.{expert}", hidden, width)
    if config["n_shared_experts"]:
        found |= _gated("mlp.shared_experts", hidden, width * config["n_shared_experts"])
    return found


def _gated(name, hidden, width, *, fused=False):
    if fused:
        return {f"{name}.gate_up_proj.weight": (2 * width, hidden), f"{name}.down_proj.weight": (hidden, width)}
    return {
        f"{name}.gate_proj.weight": (width, hidden),
        f"{name}.up_proj.weight": (width, hidden),
        f"{name}.down_proj.weight": (hidden, width),
    }


def _norms(config):
    names = ["input_layernorm", "post_attention_layernorm"]
    if config["model_type"] == "gemma2":
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    return {f"{name}.weight": (config["hidden_size"],) for name in names}


def _linear(name, shape):
    return name.endswith("_proj.weight") and len(shape) == 2


def _replaced(tensors, parts):
    found = {}
    for name, (dtype, shape) in tensors.items():
        if _linear(name, shape):
            found |= {f"{name.removesuffix('weight')}{part}": value for part, value in parts(*shape).items()}
        else:
            found[name] = (dtype, shape)
    return found


def awq(tensors, group=128):
    return _replaced(
        tensors,
        lambda rows, columns: {
            "qweight": ("I32", (columns, rows // 8)),
            "qzeros": ("I32", (columns // group, rows // 8)),
            "scales": ("F16", (columns // group, rows)),
        },
    )


def gptq(tensors, group=128, bits=4):
    per_word = 32 // bits
    return _replaced(
        tensors,
        lambda rows, columns: {
            "qweight": ("I32", (columns // per_word, rows)),
            "qzeros": ("I32", (columns // group, rows // per_word)),
            "scales": ("F16", (columns // group, rows)),
            "g_idx": ("I32", (columns,)),
        },
    )


def fp8(tensors):
    return _replaced(
        tensors,
        lambda rows, columns: {
            "weight": ("F8_E4M3", (rows, columns)),
            "weight_scale": ("BF16", (rows, 1)),
            "input_scale": ("F32", (1,)),
        },
    )


def compressed(tensors, group=128):
    return _replaced(
        tensors,
        lambda rows, columns: {
            "weight_packed": ("I32", (rows, columns // 8)),
            "weight_scale": ("BF16", (rows, columns // group)),
            "weight_shape": ("I64", (2,)),
        },
    )


def exl2(tensors, bits=5):
    return _replaced(
        tensors,
        lambda rows, columns: {
            "q_weight": ("I32", (columns * bits // 32, rows)),
            "q_invperm": ("I32", (columns,)),
            "q_scale": ("I32", (columns // 128, rows // 8)),
            "q_scale_max": ("F16", (columns // 128,)),
            "q_groups": ("I16", (2 * (columns // 128),)),
        },
    )


def fields_of(entry):
    return list(entry.__struct_fields__)


def size_of(entry):
    dtype, shape = entry
    return math.prod(shape) * BYTES[dtype]


def header(tensors):
    """A file's head, and how long the file is with the data that would follow."""
    place, table = 0, {"__metadata__": {"format": "pt"}}
    for name, (dtype, shape) in tensors.items():
        end = place + size_of((dtype, shape))
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(table, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + place


def write_file(path: Path, tensors) -> int:
    head, size = header(tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return size


def write_tree(folder: Path, config, tensors=None, *, shards=1, template="{{ messages }}", **files) -> Path:
    """A repository: config, weights in `shards` files with their index, the tokenizer's settings, and other `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template} if template else {}))
    for name, content in files.items():
        (folder / name).write_text(content)
    if tensors:
        _write_weights(folder, tensors, shards)
    return folder


def _write_weights(folder, tensors, shards):
    if shards == 1:
        write_file(folder / "model.safetensors", tensors)
        return
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard::shards]
        write_file(folder / file, {name: tensors[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    total = sum(size_of(entry) for entry in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
