"""Models read from their files: exact facts from headers, and errors that name the file."""

from __future__ import annotations

import json

import pytest
from builders.samples import some
from fakes import checkpoints

from tgi_deploy.catalog.kept_models import CachedModels
from tgi_deploy.catalog.repository import DirectorySource
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Plan
from tgi_deploy.wiring import open_catalog

SHAPES = json.loads((profiles_dir() / "models" / "shapes.json").read_text())["shapes"]
DESCRIBED = sorted(hub_id for hub_id, shape in SHAPES.items() if shape["model_type"] in checkpoints.CLASSES)
LLAMA = SHAPES["meta-llama/Llama-3.1-8B"]
QWEN = SHAPES["Qwen/Qwen2.5-7B-Instruct"]


def resolve(folder):
    return open_catalog().resolve(str(folder))


def model_of(folder, config, tensors=None, **tree):
    return resolve(checkpoints.write_tree(folder / "my-model", config, tensors, **tree)).model


def quantized_by(method, **more):
    return {"quantization_config": {"quant_method": method, **more}}


def test_every_class_is_described():
    assert {SHAPES[hub_id]["model_type"] for hub_id in DESCRIBED} == set(checkpoints.CLASSES)


@pytest.mark.parametrize("hub_id", some(DESCRIBED, 24))
def test_parameters_are_exact(hub_id, tmp_path):
    shape = SHAPES[hub_id]
    config = checkpoints.config_of(shape)
    model = model_of(tmp_path, config, checkpoints.tensors_of(config), shards=3)
    assert model.parameters == shape["parameters"]
    assert model.tied_embeddings is shape["tied_embeddings"]
    assert dict(model.tensor_bytes) == {"BF16": 2 * shape["parameters"]}
    for name in ("layers", "hidden_size", "attention_heads", "kv_heads", "head_dim", "vocab_size", "architecture"):
        assert getattr(model, name) == shape[name]


@pytest.mark.parametrize(
    ("hub_id", "active"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", 12_879_925_248),
        ("deepseek-ai/DeepSeek-V2-Lite", 2_661_150_208),
        ("Qwen/Qwen3-30B-A3B", 3_353_032_704),
    ],
)
def test_active_parameters_of_a_mixture_of_experts(hub_id, active, tmp_path):
    config = checkpoints.config_of(SHAPES[hub_id])
    model = model_of(tmp_path, config, checkpoints.tensors_of(config))
    assert model.active_parameters == active


def test_latent_attention_is_known(tmp_path):
    config = checkpoints.config_of(SHAPES["deepseek-ai/DeepSeek-V2-Lite"])
    model = model_of(tmp_path, config, checkpoints.tensors_of(config))
    assert (model.kv_lora_rank, model.head_dim, model.shared_experts, model.first_dense_layers) == (512, 192, 2, 1)


def test_folder_size_equals_the_download(tmp_path):
    config = checkpoints.config_of(LLAMA)
    model = model_of(tmp_path, config, checkpoints.tensors_of(config), shards=4)
    weights = sum(path.stat().st_size for path in (tmp_path / "my-model").glob("*.safetensors"))
    assert model.stored_bytes == weights
    assert 16_060_522_496 < weights < 16_060_522_496 + 100_000
    assert model.duplicate_bytes == 0
    assert not model.needs_conversion


def test_a_second_copy_of_the_weights_is_downloaded_but_not_loaded(tmp_path):
    config = checkpoints.config_of(SHAPES["mistralai/Mistral-7B-Instruct-v0.3"])
    tensors = checkpoints.tensors_of(config)
    folder = checkpoints.write_tree(tmp_path / "m", config, tensors, shards=3)
    own_names = {name.replace("model.", "").replace("self_attn", "attention"): it for name, it in tensors.items()}
    extra = checkpoints.write_file(folder / "consolidated.safetensors", own_names)
    model = resolve(folder).model
    assert model.parameters == 7_248_023_552
    assert model.duplicate_bytes == extra
    assert model.stored_bytes > 2 * 14_496_047_104
    (folder / "model.safetensors.index.json").unlink()
    assert resolve(folder).model == model


def test_consolidated_weights_alone_are_loaded(tmp_path):
    config = checkpoints.config_of(LLAMA)
    folder = checkpoints.write_tree(tmp_path / "m", config)
    checkpoints.write_file(folder / "consolidated.safetensors", checkpoints.tensors_of(config))
    model = resolve(folder).model
    assert (model.parameters, model.duplicate_bytes) == (LLAMA["parameters"], 0)


def test_bin_weights_need_conversion_and_twice_the_disk(tmp_path):
    config = checkpoints.config_of(LLAMA)
    folder = checkpoints.write_tree(tmp_path / "m", config)
    for name, size in (("pytorch_model-00001-of-00002.bin", 9_000), ("pytorch_model-00002-of-00002.bin", 7_000)):
        (folder / name).write_bytes(bytes(size))
    (folder / "training_args.bin").write_bytes(bytes(500))
    model = resolve(folder).model
    assert model.needs_conversion
    assert model.stored_bytes == 16_000
    assert model.parameters == LLAMA["parameters"]
    assert model.tensor_bytes == ()


@pytest.mark.parametrize("hub_id", ["google/gemma-2-9b-it", "meta-llama/Llama-3.2-1B-Instruct"])
def test_a_tied_head_is_not_stored(hub_id, tmp_path):
    config = checkpoints.config_of(SHAPES[hub_id])
    model = model_of(tmp_path, config, checkpoints.tensors_of(config))
    assert model.tied_embeddings
    assert model.head_stored is False


def test_a_tied_head_that_is_stored_counts_once(tmp_path):
    shape = SHAPES["Qwen/Qwen3-0.6B"]
    config = checkpoints.config_of(shape)
    tensors = checkpoints.tensors_of(config) | {"lm_head.weight": ("BF16", (config["vocab_size"], 1024))}
    model = model_of(tmp_path, config, tensors)
    assert model.parameters == shape["parameters"]
    assert model.head_stored is True
    assert model.stored_bytes > 1_503_264_768


def test_a_head_that_is_not_stored_is_tied_despite_the_config(tmp_path):
    config = checkpoints.config_of(LLAMA)
    tensors = checkpoints.tensors_of(config)
    del tensors["lm_head.weight"]
    assert model_of(tmp_path, config, tensors).tied_embeddings


def test_buffers_do_not_count_as_parameters(tmp_path):
    config = checkpoints.config_of(SHAPES["meta-llama/Llama-2-7b-hf"])
    tensors = checkpoints.tensors_of(config, "F16")
    for layer in range(32):
        tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = ("F32", (64,))
        tensors[f"model.layers.{layer}.self_attn.masked_bias"] = ("F32", ())
    tensors["transformer.h.0.attn.bias"] = ("U8", (1, 1, 1024, 1024))
    assert model_of(tmp_path, config, tensors).parameters == 6_738_415_616


def test_a_layer_for_multi_token_prediction_does_not_load(tmp_path):
    config = checkpoints.config_of(LLAMA)
    more = checkpoints.tensors_of({**config, "num_hidden_layers": 33})
    assert model_of(tmp_path, config, more).parameters == LLAMA["parameters"]


def test_awq(tmp_path):
    config = checkpoints.config_of(QWEN, **quantized_by("awq", bits=4, group_size=128))
    model = model_of(tmp_path, config, checkpoints.awq(checkpoints.tensors_of(config, "F16")))
    assert model.parameters == QWEN["parameters"]
    linear = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18944)
    assert model.quantized_parameters == linear
    assert model.quantized_bytes == linear * (4 + (16 + 4) / 128) / 8
    assert model.quantization.method == "awq"
    assert set(dict(model.tensor_bytes)) == {"F16", "I32"}


@pytest.mark.parametrize("bits", [4, 8])
def test_gptq(bits, tmp_path):
    config = checkpoints.config_of(QWEN, **quantized_by("gptq", bits=bits, group_size=128, desc_act=False))
    model = model_of(tmp_path, config, checkpoints.gptq(checkpoints.tensors_of(config, "F16"), bits=bits))
    assert model.parameters == QWEN["parameters"]
    assert model.quantized_bytes * 8 / model.quantized_parameters == pytest.approx(bits + (16 + bits) / 128, rel=0.01)


def test_fp8(tmp_path):
    config = checkpoints.config_of(LLAMA, **quantized_by("fbgemm_fp8"))
    model = model_of(tmp_path, config, checkpoints.fp8(checkpoints.tensors_of(config)))
    assert model.parameters == LLAMA["parameters"]
    assert model.quantized_parameters == LLAMA["parameters"] - 2 * 128256 * 4096 - 65 * 4096
    assert model.quantized_bytes == pytest.approx(model.quantized_parameters, rel=0.001)
    assert (model.quantization.method, model.quantization.bits) == ("fp8", 8)


def test_compressed_tensors(tmp_path):
    groups = {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}}
    config = checkpoints.config_of(LLAMA, **quantized_by("compressed-tensors", config_groups=groups))
    model = model_of(tmp_path, config, checkpoints.compressed(checkpoints.tensors_of(config)))
    assert model.parameters == LLAMA["parameters"]
    assert (model.quantization.bits, model.quantization.group_size) == (4, 128)


def test_exl2_of_any_width(tmp_path):
    config = checkpoints.config_of(LLAMA, **quantized_by("exl2", bits=4.65))
    model = model_of(tmp_path, config, checkpoints.exl2(checkpoints.tensors_of(config, "F16"), bits=5))
    assert model.parameters == LLAMA["parameters"]
    assert model.quantization.bits == 5


@pytest.mark.parametrize("hub_id", ["openai/gpt-oss-20b", "openai/gpt-oss-120b"])
def test_mxfp4_experts(hub_id, tmp_path):
    shape = SHAPES[hub_id]
    experts, hidden, vocab = shape["experts"], 2880, shape["vocab_size"]
    layer = {
        "self_attn.q_proj.weight": (4096, hidden), "self_attn.q_proj.bias": (4096,),
        "self_attn.k_proj.weight": (512, hidden), "self_attn.k_proj.bias": (512,),
        "self_attn.v_proj.weight": (512, hidden), "self_attn.v_proj.bias": (512,),
        "self_attn.o_proj.weight": (hidden, 4096), "self_attn.o_proj.bias": (hidden,), "self_attn.sinks": (64,),
        "mlp.router.weight": (experts, hidden), "mlp.router.bias": (experts,),
        "mlp.experts.gate_up_proj_bias": (experts, 5760), "mlp.experts.down_proj_bias": (experts, hidden),
        "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,),
    }  # fmt: skip
    packed = {
        "mlp.experts.gate_up_proj_blocks": (experts, 5760, 90, 16),
        "mlp.experts.gate_up_proj_scales": (experts, 5760, 90),
        "mlp.experts.down_proj_blocks": (experts, hidden, 90, 16),
        "mlp.experts.down_proj_scales": (experts, hidden, 90),
    }
    tables = {"model.embed_tokens.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden)}
    tensors = {name: ("BF16", size) for name, size in {**tables, "model.norm.weight": (hidden,)}.items()}
    for index in range(shape["layers"]):
        tensors |= {f"model.layers.{index}.{name}": ("BF16", size) for name, size in layer.items()}
        tensors |= {f"model.layers.{index}.{name}": ("U8", size) for name, size in packed.items()}
    config = checkpoints.config_of(shape, **quantized_by("mxfp4"))
    model = model_of(tmp_path, config, tensors)
    assert model.parameters == shape["parameters"]
    assert model.quantized_bytes * 8 == pytest.approx(4.25 * model.quantized_parameters)


def gpt2_tensors(layers, hidden, vocab, positions):
    found = {"wte.weight": (vocab, hidden), "wpe.weight": (positions, hidden)}
    found |= {"ln_f.weight": (hidden,), "ln_f.bias": (hidden,)}
    for layer in range(layers):
        for name, rows, columns in (
            ("attn.c_attn", hidden, 3 * hidden), ("attn.c_proj", hidden, hidden),
            ("mlp.c_fc", hidden, 4 * hidden), ("mlp.c_proj", 4 * hidden, hidden),
        ):  # fmt: skip
            found |= {f"h.{layer}.{name}.weight": (rows, columns), f"h.{layer}.{name}.bias": (columns,)}
        for name in ("ln_1", "ln_2"):
            found |= {f"h.{layer}.{name}.weight": (hidden,), f"h.{layer}.{name}.bias": (hidden,)}
        found[f"h.{layer}.attn.bias"] = (1, 1, positions, positions)
    return {name: ("F32", shape) for name, shape in found.items()}


@pytest.mark.parametrize("name", ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"])
def test_gpt2_stores_its_masks(name, tmp_path):
    shape = SHAPES[f"openai-community/{name}"]
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": shape["layers"],
        "n_embd": shape["hidden_size"], "n_head": shape["attention_heads"], "n_positions": 1024, "vocab_size": 50257,
    }  # fmt: skip
    model = model_of(tmp_path, config, gpt2_tensors(shape["layers"], shape["hidden_size"], 50257, 1024))
    assert model.parameters == shape["parameters"]
    assert model.stored_bytes == pytest.approx(shape["stored_bytes"], rel=0.001)
    assert (model.torch_dtype, model.tied_embeddings) == ("float32", True)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [(None, "use the original repository"), ("awq", "is already quantized with 'bitsandbytes'")],
)
def test_plans_reject_weights_packed_by_bitsandbytes(wanted, says, tmp_path):
    config = checkpoints.config_of(LLAMA, **quantized_by("bitsandbytes", load_in_4bit=True))
    folder = checkpoints.write_tree(tmp_path / "m", config, checkpoints.tensors_of(config))
    made = plan(OptionTexts(model=str(folder), quantize=wanted, instance="g6e.xlarge"), open_catalog(), {})
    (rejection,) = made.rejections
    assert rejection.code == "quantization_unavailable"
    assert says in rejection.message


def test_a_vision_tower_is_counted_separately(tmp_path):
    text = checkpoints.config_of(LLAMA)
    language = {f"language_model.{name}": it for name, it in checkpoints.tensors_of(text).items()}
    tower = {
        "vision_tower.vision_model.embeddings.patch_embedding.weight": ("BF16", (1024, 3, 14, 14)),
        "vision_tower.vision_model.encoder.layers.40.mlp.fc1.weight": ("BF16", (4096, 1024)),
        "multi_modal_projector.linear_1.weight": ("BF16", (4096, 1024)),
    }
    config = {"architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next", "text_config": text}
    model = model_of(tmp_path, config, language | tower)
    vision = 1024 * 3 * 14 * 14 + 2 * 4096 * 1024
    assert model.vision_parameters == vision
    assert model.parameters == LLAMA["parameters"] + vision
    assert (model.architecture, model.model_type) == ("LlavaNextForConditionalGeneration", "llava_next")


def test_dimensions_a_multimodal_config_leaves_out(tmp_path):
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                        "num_hidden_layers": 34, "sliding_window": 1024},
    }  # fmt: skip
    shape = SHAPES["google/gemma-3-4b-it"]
    model = model_of(tmp_path, config)
    for name in ("layers", "hidden_size", "attention_heads", "kv_heads", "head_dim", "vocab_size", "sliding_window"):
        assert getattr(model, name) == shape[name], name


@pytest.mark.parametrize(
    ("template", "files", "chat"),
    [
        ("{{ messages }}", {}, True),
        (None, {}, False),
        (None, {"chat_template.jinja": "{{ messages }}"}, True),
        (None, {"chat_template.json": "{}"}, True),
        ([{"name": "default", "template": "{{ messages }}"}], {}, True),
    ],
)
def test_chat_template(template, files, chat, tmp_path):
    config = checkpoints.config_of(LLAMA)
    folder = checkpoints.write_tree(tmp_path / "m", config, checkpoints.tensors_of(config), template=template, **files)
    profile = resolve(folder)
    assert profile.model.chat_template is chat
    assert profile.chat is chat


def test_a_config_alone_can_be_planned(tmp_path):
    profile = resolve(checkpoints.write_tree(tmp_path / "m", checkpoints.config_of(LLAMA)))
    assert profile.model.stored_bytes is None
    assert profile.model.chat_template is None
    assert profile.chat is True


def test_dtype_by_the_headers_where_the_config_is_silent(tmp_path):
    config = checkpoints.config_of(LLAMA)
    del config["torch_dtype"]
    assert model_of(tmp_path, config, checkpoints.tensors_of(config, "F16")).torch_dtype == "float16"


def broken(change):
    config = checkpoints.config_of(SHAPES["Qwen/Qwen2.5-0.5B-Instruct"])

    def make(folder):
        checkpoints.write_tree(folder, config, checkpoints.tensors_of(config), shards=2)
        change(folder)
        return folder

    return make


FIRST, SECOND, INDEX = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "index.json"


def header_of(table, data=0):
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


def put(name, content):
    return broken(lambda folder: (folder / name).write_bytes(content))


def tensor(**changes):
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


BROKEN = {
    "empty file": (put(FIRST, b""), FIRST, "does not start with a safetensors header"),
    "html page": (put(FIRST, b"<!doctype html><html>"), FIRST, "does not start with a safetensors header"),
    "lfs pointer": (put(SECOND, b"version https://git-lfs.github.com/spec/v1\n"), SECOND, "Git LFS pointer"),
    "no json": (put(FIRST, header_of(b"{nonsense")), FIRST, "is not JSON"),
    "deep json": (put(FIRST, header_of(b"[" * 100_000)), FIRST, "nested more than 64 deep"),
    "a list": (put(FIRST, header_of([])), FIRST, "is not a JSON object"),
    "no tensor": (put(FIRST, header_of({"x": 1})), FIRST, "an invalid entry for x"),
    "strange dtype": (put(FIRST, header_of(tensor(dtype="Q3"), 8)), FIRST, "an invalid entry for x"),
    "dtype a list": (put(FIRST, header_of(tensor(dtype=[]), 8)), FIRST, "an invalid entry for x"),
    "offsets text": (put(FIRST, header_of(tensor(data_offsets="ab"), 8)), FIRST, "an invalid entry for x"),
    "shape wrong": (put(FIRST, header_of(tensor(shape=[3]), 8)), FIRST, "shape and size of x do not agree"),
    "shape negative": (put(FIRST, header_of(tensor(shape=[-1, -2]), 8)), FIRST, "shape and size of x do not agree"),
    "shape text": (put(FIRST, header_of(tensor(shape=["2"]), 8)), FIRST, "shape and size of x do not agree"),
    "cut short": (put(FIRST, header_of(tensor(), 4)), FIRST, "promises 8 bytes of data, but there are 4"),
    "bell in a name": (put(FIRST, header_of({"\x07": 1})), FIRST, "an invalid entry for \\x07"),
    "index no json": (put(f"model.safetensors.{INDEX}", b"{"), INDEX, "is not JSON"),
    "index a list": (put(f"model.safetensors.{INDEX}", b"[]"), INDEX, "is not a JSON object"),
    "index without map": (put(f"model.safetensors.{INDEX}", b"{}"), INDEX, "no weight_map"),
    "index with numbers": (put(f"model.safetensors.{INDEX}", b'{"weight_map": {"a": 1}}'), INDEX, "no weight_map"),
    "index names more": (
        put(f"model.safetensors.{INDEX}", b'{"weight_map": {"a": "../../etc/passwd"}}'), INDEX, "which does not exist",
    ),
    "shard gone": (broken(lambda folder: (folder / SECOND).unlink()), INDEX, f"names {SECOND}, which does not exist"),
    "tokenizer": (put("tokenizer_config.json", b"{"), "tokenizer_config.json", "is not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_checkpoint_is_named(case, tmp_path):
    make, file, problem = BROKEN[case]
    folder = make(tmp_path / "my-model")
    with pytest.raises(InputError) as caught:
        resolve(folder)
    assert caught.value.code == "bad_checkpoint"
    assert file in caught.value.message
    assert problem in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.hint


def test_gguf_is_rejected(tmp_path):
    folder = checkpoints.write_tree(tmp_path / "m", checkpoints.config_of(LLAMA), **{"model.Q4_K_M.gguf": "GGUF"})
    with pytest.raises(InputError, match="GGUF files only") as caught:
        resolve(folder)
    assert caught.value.code == "bad_checkpoint"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"adapter_config.json": "{}", "adapter_model.safetensors": ""}, "it is an adapter (LoRA)"),
        ({"tiny.Q4_K_M.gguf": "GGUF"}, "it has GGUF files only"),
        ({"model_index.json": "{}"}, "it is a diffusion pipeline"),
    ],
)
def test_a_folder_of_something_else_is_named(files, says, tmp_path):
    """Without any config.json, which a model would have."""
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as caught:
        resolve(tmp_path)
    assert caught.value.code == "bad_checkpoint"
    assert says in caught.value.message


def test_an_adapter_beside_the_config_of_its_base_is_named(tmp_path):
    more = {"adapter_config.json": "{}", "adapter_model.safetensors": ""}
    folder = checkpoints.write_tree(tmp_path / "m", checkpoints.config_of(LLAMA), **more)
    with pytest.raises(InputError, match="it is an adapter") as caught:
        resolve(folder)
    assert caught.value.code == "bad_checkpoint"


def test_an_empty_folder_lacks_a_config(tmp_path):
    with pytest.raises(InputError) as caught:
        resolve(tmp_path)
    assert caught.value.code == "unreadable_path"


@pytest.mark.parametrize(
    ("scaling", "positions", "longest"),
    [
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 32768, 131_072),
        ({"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, 163_840, 163_840),
        ({"type": "yarn", "factor": 4.0}, 32768, 32768),
        ({"type": "yarn", "factor": "4", "original_max_position_embeddings": 32768}, 32768, 32768),
        ({"type": "yarn", "factor": 1e300, "original_max_position_embeddings": 32768}, 32768, 32768),
        ({"type": "linear", "factor": 4.0}, 16384, 16384),
        ("yarn", 32768, 32768),
    ],
)
def test_scaled_positions(scaling, positions, longest, tmp_path):
    """YaRN configs have the original context; others already have the extended one."""
    config = checkpoints.config_of(QWEN, rope_scaling=scaling, max_position_embeddings=positions)
    assert model_of(tmp_path, config).max_position_embeddings == longest


FLAN_T5_XXL = {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 4096, "d_kv": 64, "d_ff": 10240,
    "num_layers": 24, "num_decoder_layers": 24, "num_heads": 64, "vocab_size": 32128, "n_positions": 512,
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
}  # fmt: skip
MAMBA_HF = {
    "architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64,
    "intermediate_size": 5120, "state_size": 16, "conv_kernel": 4, "vocab_size": 50280,
}  # fmt: skip
MAMBA_FIRST = {"d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {}, "rms_norm": True}
QWEN_MOE = {
    "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
    "intermediate_size": 5632, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
    "num_experts": 60, "num_experts_per_tok": 4, "num_attention_heads": 16, "num_key_value_heads": 16,
    "vocab_size": 151_936, "tie_word_embeddings": False,
}  # fmt: skip
STABLELM = {
    "architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "hidden_size": 2560, "num_hidden_layers": 32,
    "intermediate_size": 6912, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 50304,
    "tie_word_embeddings": False, "max_position_embeddings": 4096,
}  # fmt: skip
COMMAND_R7B = {
    "architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "hidden_size": 4096, "num_hidden_layers": 32,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 256_000, "max_position_embeddings": 132_096,
}  # fmt: skip
GLM4_9B = {
    "architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "hidden_size": 4096, "num_hidden_layers": 40,
    "intermediate_size": 13696, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
    "vocab_size": 151_552, "tie_word_embeddings": False, "max_position_embeddings": 32768,
}  # fmt: skip

LLAMA4 = {
    "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48, "intermediate_size": 8192,
    "intermediate_size_mlp": 16384, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 202_048, "num_experts_per_tok": 1, "tie_word_embeddings": False,
}  # fmt: skip


def llama4(experts, step):
    text = {**LLAMA4, "num_local_experts": experts, "interleave_moe_layer_step": step}
    return {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": text}


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (FLAN_T5_XXL, 11.14), (MAMBA_HF, 2.77), (MAMBA_FIRST, 2.77), (QWEN_MOE, 14.3), (STABLELM, 2.80),
        (COMMAND_R7B, 8.03), (GLM4_9B, 9.40), (llama4(16, 1), 107.8), (llama4(128, 2), 400.7),
    ],
    ids=["T5-XXL", "Mamba", "Mamba of the first kind", "Qwen1.5-MoE", "StableLM", "Command R7B", "GLM-4",
         "Llama 4 Scout", "Llama 4 Maverick"],
)  # fmt: skip
def test_sizes_are_computed_from_a_config_alone(config, billions, tmp_path):
    """Against the sizes on the model cards: T5's encoder and cross attention count, so do shared experts."""
    assert model_of(tmp_path, config).parameters / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(
    ("config", "hardware", "shards"),
    [
        (FLAN_T5_XXL, "1xL40S", 1), (MAMBA_HF, "1xL4", 1), (MAMBA_FIRST, "1xL4", 1), (QWEN_MOE, "1xL40S", 1),
        (STABLELM, "2xL4", 1), (COMMAND_R7B, "2xL4", 2), (GLM4_9B, "2xL4", 2),
    ],
)  # fmt: skip
def test_models_of_every_backend_are_planned(config, hardware, shards, tmp_path):
    """TGI's own padded classes, transformers with the engine's attention, which is split, or plain, which is not."""
    folder = checkpoints.write_tree(tmp_path / "m", config)
    texts = OptionTexts(model=str(folder), hardware=hardware, quantize="none", context="512", concurrency="1")
    made = plan(replaced(texts, num_shard=str(shards)), open_catalog(), {})
    assert isinstance(made, Plan)
    if shards == 1:
        two = plan(replaced(texts, hardware="2xL40S", num_shard="2"), open_catalog(), {})
        codes = {code for rejection in two.rejections for code in rejection.codes}
        assert ("model_not_shardable" in codes) is (config is not FLAN_T5_XXL)


def test_t5_counts_its_encoder(tmp_path):
    folder = checkpoints.write_tree(tmp_path / "m", FLAN_T5_XXL)
    made = plan(OptionTexts(model=str(folder), hardware="1xL4", quantize="none"), open_catalog(), {})
    (rejection,) = made.rejections
    assert rejection.code == "memory_weights"


@pytest.mark.parametrize(
    ("architecture", "says"),
    [
        ("MistralModel", "makes embeddings"),
        ("Qwen2ForSequenceClassification", "ranks or classifies"),
        ("LlamaForTokenClassification", "ranks or classifies"),
        ("Qwen2ForRewardModel", "ranks or classifies"),
    ],
)
def test_a_model_without_a_generation_head_gets_a_pointer(architecture, says, tmp_path):
    folder = checkpoints.write_tree(tmp_path / "m", checkpoints.config_of(LLAMA, architectures=[architecture]))
    made = plan(OptionTexts(model=str(folder), instance="g6.xlarge", quantize="none"), open_catalog(), {})
    (rejection,) = made.rejections
    assert rejection.code == "model_type_unsupported"
    assert says in rejection.message
    assert "text-embeddings-inference (TEI)" in rejection.message


def test_three_bit_weights_are_rejected(tmp_path):
    """TGI `layers/gptq/triton.py`: "Only 2,4,8 bits are supported"."""
    config = checkpoints.config_of(LLAMA, **quantized_by("gptq", bits=3, group_size=128))
    made = plan(
        OptionTexts(model=str(checkpoints.write_tree(tmp_path / "m", config)), instance="g6e.xlarge"),
        open_catalog(),
        {},
    )
    (rejection,) = made.rejections
    assert rejection.code == "quantization_unavailable"
    assert "gptq kernels support 2, 4, 8 bits, not the checkpoint's 3" in rejection.message


@pytest.mark.parametrize("bits", ["four", True, 0, 64, [4]])
def test_invalid_bits_are_rejected(bits, tmp_path):
    config = checkpoints.config_of(LLAMA, **quantized_by("gptq", bits=bits or -1))
    with pytest.raises(InputError, match="quantization_config has an invalid number of bits") as caught:
        model_of(tmp_path, config)
    assert caught.value.code == "bad_model_config"


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["Llama\x1b[31m"]},
        {"architectures": [7]},
        {"model_type": "lla\x07ma"},
        {"model_type": ["llama"]},
        {"torch_dtype": "\x1b[31m"},
        {"torch_dtype": {"a": 1}},
        quantized_by("a\x1b[31mwq"),
        quantized_by(4),
        quantized_by("x" * 101),
    ],
)
def test_terminal_escapes_in_names_are_rejected(changes, tmp_path):
    with pytest.raises(InputError, match="should be a name, not") as caught:
        model_of(tmp_path, checkpoints.config_of(LLAMA, **changes))
    assert caught.value.code == "bad_model_config"
    assert caught.value.message.isprintable()


def test_a_disabled_window_in_a_multimodal_config(tmp_path):
    text = {"model_type": "mistral", "sliding_window": None, "num_hidden_layers": 30}
    model = model_of(tmp_path, {"model_type": "llava", "text_config": text})
    assert (model.sliding_window, model.layers, model.kv_heads) == (None, 30, 8)


@pytest.mark.parametrize(
    ("files", "noticed"),
    [({}, True), ({"tokenizer.json": "{}"}, False), ({"tokenizer.model": ""}, False), ({"vocab.json": "{}"}, False)],
)
def test_a_folder_without_a_tokenizer_is_noticed_each_time(files, noticed, tmp_path):
    config = checkpoints.config_of(SHAPES["meta-llama/Llama-3.1-8B"])
    folder = checkpoints.write_tree(tmp_path / "m", config, checkpoints.tensors_of(config), **files)
    kept = CachedModels(tmp_path / "kept")
    notices = [kept.of_folder(DirectorySource(folder=folder)).notice for _ in range(2)]
    assert [notice is not None for notice in notices] == [noticed, noticed]


def test_a_folder_with_only_a_config_can_be_planned(tmp_path):
    folder = checkpoints.write_tree(tmp_path / "m", checkpoints.config_of(SHAPES["meta-llama/Llama-3.1-8B"]))
    assert resolve(folder).notice is None
