"""The packaged shapes and profiles resolve and agree with each other."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from tgi_deploy.catalog.count import count_parameters
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.wiring import open_catalog

CATALOG = open_catalog()
SHAPES = json.loads((profiles_dir() / "models" / "shapes.json").read_text())["shapes"]

# Vision towers, multi-token prediction, layers that differ one by one: not in the formula.
NOT_BY_FORMULA = {"gemma3", "mllama", "nemotron-nas", "deepseek_v3"}


def test_shapes_are_found_by_hub_id_and_plausible():
    for hub_id in SHAPES:
        model = CATALOG.resolve(hub_id).model
        assert model.hub_id == hub_id
        assert model.source, hub_id
        assert model.attention_heads % model.kv_heads == 0, hub_id
        assert model.torch_dtype in {"float16", "bfloat16", "float32"}, hub_id
        if model.experts:
            assert 0 < model.experts_per_token <= model.experts, hub_id
            assert model.expert_intermediate_size > 0, hub_id
        if model.model_type not in NOT_BY_FORMULA:
            assert count_parameters(msgspec.to_builtins(model)) == pytest.approx(model.parameters, rel=0.01), hub_id


def test_profiles_resolve():
    for name in CATALOG.profile_names():
        profile = CATALOG.resolve(name)
        assert profile.name == name
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,29}", name)
        assert profile.summary
        assert "\n" not in profile.summary + (profile.notice or "")


def test_quantized_repositories_name_their_method():
    methods = set(CATALOG.release(CATALOG.default_release).quantizations)
    for name in CATALOG.profile_names():
        profile = CATALOG.resolve(name)
        for repository in profile.quantized:
            assert repository.method in methods
            assert repository.bits in {4, 8}
            assert repository.hub_id.count("/") == 1
            assert repository.hub_id != profile.model.hub_id
            assert repository.source


def test_llama3_13b_is_described_as_a_community_merge():
    profile = CATALOG.resolve("llama3-13b")
    assert profile.model.hub_id == "elinas/Llama-3-13B-Instruct"
    assert profile.model.parameters == 13_046_837_248
    assert profile.notice is not None
    assert "Meta never released a 13B Llama 3" in profile.notice
    assert "community merge" in profile.notice


def test_a_hub_id_finds_its_profile():
    profile = CATALOG.resolve("Qwen/Qwen2.5-7B-Instruct")
    assert profile.name == "qwen2.5-7b"
    assert {repository.method for repository in profile.quantized} == {"awq", "gptq"}
    assert CATALOG.resolve("elinas/Llama-3-13B-Instruct").notice
    assert CATALOG.resolve("facebook/opt-13b").name == "facebook/opt-13b"


def test_quantized_checkpoints_are_known():
    fp8 = CATALOG.resolve("meta-llama/Llama-3.1-405B-Instruct-FP8").model.quantization
    assert fp8 is not None
    assert (fp8.method, fp8.bits, fp8.block_scaled) == ("fp8", 8, False)
    blocks = CATALOG.resolve("deepseek-ai/DeepSeek-V3").model.quantization
    assert blocks is not None
    assert blocks.block_scaled
