"""The packaged facts about engine releases: flags, rules, quantization methods, model classes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from builders.samples import quick

from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.engines.tgi.release import TgiRelease

CATALOG = open_catalog()
VERSIONS = CATALOG.release_versions()


def rule_for(release: TgiRelease, capability: tuple[int, int]):
    return [rule for rule in release.architectures if rule.minimum <= capability <= rule.maximum]


def test_releases_are_ordered_and_complete():
    assert VERSIONS[0] == "2.0.4"
    assert VERSIONS[-1] == CATALOG.default_release == "3.3.7"
    dates = [CATALOG.release(version).released for version in VERSIONS]
    assert dates == sorted(dates)


def test_rules_cover_every_compute_capability_once():
    for version, major, minor in itertools.product(VERSIONS, range(20), range(10)):
        assert len(rule_for(CATALOG.release(version), (major, minor))) == 1, (version, major, minor)


@pytest.mark.parametrize("version", quick(VERSIONS, 6))
def test_verdicts_hold_in_every_release(version):
    release = CATALOG.release(version)
    for capability in ((8, 0), (8, 6), (8, 9), (9, 0)):
        assert rule_for(release, capability)[0].verdict == "ok"
    assert rule_for(release, (7, 0))[0].code == "arch_too_old"
    for capability in ((10, 0), (10, 3), (12, 0)):
        assert rule_for(release, capability)[0].code == "arch_no_kernels"
    turing = rule_for(release, (7, 5))[0]
    assert turing.code == "arch_flash_attention"
    assert turing.message.startswith("FlashAttention only supports Ampere GPUs or newer.")
    assert bool(turing.loses) == (turing.verdict == "override")


@pytest.mark.parametrize(
    ("version", "verdict", "env"),
    [
        ("2.0.4", "override", {}),
        ("2.1.0", "refused", {}),
        ("2.2.0", "refused", {}),
        ("2.3.0", "override", {"ATTENTION": "paged", "USE_PREFIX_CACHING": "0"}),
        ("3.0.2", "override", {"ATTENTION": "paged"}),
        ("3.3.7", "override", {"ATTENTION": "paged"}),
    ],
)
def test_turing_by_release(version, verdict, env):
    turing = rule_for(CATALOG.release(version), (7, 5))[0]
    assert turing.verdict == verdict
    assert turing.env == env


@pytest.mark.parametrize(
    ("version", "share", "chunked", "attention", "cache"),
    [
        ("2.0.4", 0.95, False, "", {"HUGGINGFACE_HUB_CACHE": "/data"}),
        ("2.2.0", 0.95, False, "", {"HUGGINGFACE_HUB_CACHE": "/data"}),
        ("2.3.0", 0.95, False, "flashinfer", {"HF_HOME": "/data"}),
        ("2.4.1", 0.90, False, "flashinfer", {"HF_HOME": "/data"}),
        ("3.0.0", 0.95, True, "flashinfer", {"HF_HOME": "/data"}),
        ("3.2.3", 0.93, True, "flashinfer", {"HF_HOME": "/data"}),
        ("3.3.0", 0.90, True, "flashinfer", {"HF_HOME": "/data"}),
        ("3.3.7", 0.90, True, "flashinfer", {"HF_HOME": "/data"}),
    ],
)
def test_inherited_facts(version, share, chunked, attention, cache):
    release = CATALOG.release(version)
    assert (release.memory_share, release.chunked_prefill) == (share, chunked)
    assert release.default_attention == attention
    assert release.cache_env == cache
    assert release.workspace_bytes == (128 * 2**20 if attention else 0)
    assert release.cpu_archs == ("x86_64",)
    assert release.share_of == ("total" if chunked else "free")


def test_notices_and_reported_versions_are_not_inherited():
    assert "compiler" in (CATALOG.release("3.2.0").notice or "")
    assert CATALOG.release("3.2.1").notice is None
    assert CATALOG.release("3.3.5").reported_version is None
    assert CATALOG.release("3.3.6").reported_version == "3.3.6-dev0"
    assert CATALOG.release("3.3.7").reported_version == "3.3.6-dev0"


def test_every_accepted_method_has_a_rule():
    for release in map(CATALOG.release, VERSIONS):
        assert set(release.quantizations) == set(release.flags["--quantize"].values), release.version
        for rule in release.quantizations.values():
            assert rule.on_the_fly or rule.prequantized
            assert 2 <= rule.bits <= 8


def test_quantization_facts_change_with_the_release():
    assert CATALOG.release("3.0.1").quantizations["bitsandbytes-nf4"].cuda_graphs is False
    assert CATALOG.release("3.0.2").quantizations["bitsandbytes-nf4"].cuda_graphs is True
    assert CATALOG.release("3.3.7").quantizations["bitsandbytes"].cuda_graphs is False
    assert CATALOG.release("2.1.1").quantizations["fp8"].min_compute_capability == (8, 9)
    assert CATALOG.release("2.2.0").quantizations["fp8"].min_compute_capability == (8, 0)
    assert CATALOG.release("2.3.0").quantizations["gptq"].fused_moe is False
    assert CATALOG.release("2.3.1").quantizations["gptq"].fused_moe is True
    assert CATALOG.release("2.3.1").quantizations["awq"].fused_moe is False
    assert CATALOG.release("2.4.0").quantizations["awq"].fused_moe is True
    assert CATALOG.release("2.2.0").quantizations["fp8"].fused_moe is False
    assert "compressed-tensors" not in CATALOG.release("2.4.0").quantizations
    assert "marlin" not in CATALOG.release("2.0.4").quantizations
    assert CATALOG.release("3.3.7").quantizations["exl2"].shardable is False


@pytest.mark.parametrize(
    ("model_type", "before", "since"),
    [
        ("gemma2", "2.0.4", "2.1.0"),
        ("deepseek_v2", "2.1.1", "2.2.0"),
        ("granite", "2.3.1", "2.4.0"),
        ("deepseek_v3", "3.0.2", "3.1.0"),
        ("gemma3", "3.1.1", "3.2.0"),
        ("llama4", "3.2.2", "3.2.3"),
        ("cohere2", "3.0.1", "3.0.2"),
        ("glm4", "3.2.2", "3.2.3"),
        ("qwen3", "3.2.2", "3.2.3"),
        ("olmo2", "3.0.1", "3.0.2"),
    ],
)
def test_model_classes_begin_with_a_release(model_type, before, since):
    early = CATALOG.release(before).model_classes[model_type]
    assert early.backend == "refused"
    assert since in early.reason
    assert CATALOG.release(since).model_classes[model_type].backend != "refused"


def test_model_classes_of_the_default_release():
    classes = CATALOG.release("3.3.7").model_classes
    assert classes["llama"].backend == "native"
    assert classes["llama"].default_dtype == "float16"
    assert classes["gemma2"].default_dtype == "bfloat16"
    assert classes["opt"].flash is False
    assert classes["mamba"].shardable is False
    assert classes["qwen3"].backend == "transformers"
    assert classes["qwen3_moe"].whole_experts is True
    assert (classes["qwen3_moe"].experts, classes["llama4"].experts) == ("looped", "gathered")
    assert classes["qwen3_moe"].cuda_graphs is False
    assert (classes["stablelm"].backend, classes["stablelm"].shardable) == ("plain", False)
    assert classes["olmo2"].replicated_kv is True
    assert classes["gemma3"].prefill_chunking is False
    assert classes["falcon"].paged_only is True
    for refused in ("gpt_oss", "kimi_k2", "nemotron-nas", "internlm", "internlm2", "qwen"):
        assert classes[refused].backend == "refused"
        assert classes[refused].reason


def test_one_release_cannot_use_the_transformers_backend():
    """3.1.1 asks for a method that its transformers does not have; TGI's own classes do not notice."""
    classes = CATALOG.release("3.1.1").model_classes
    for model_type in ("olmo2", "cohere2", "stablelm", "qwen2_moe"):
        assert classes[model_type].backend == "refused"
        assert "4.48.3" in classes[model_type].reason
        assert CATALOG.release("3.2.0").model_classes[model_type].backend != "refused"
    assert classes["llama"].backend == "native"


@pytest.mark.parametrize(
    ("version", "carried"), [("3.0.2", False), ("3.1.0", True), ("3.1.1", False), ("3.3.7", False)]
)
def test_only_one_release_has_block_scaled_fp8_kernels(version, carried):
    assert (CATALOG.release(version).block_scaled_fp8 == version) is carried


def test_every_known_model_type_has_a_class():
    classes = CATALOG.release("3.3.7").model_classes
    for hub_id in CATALOG.hub_ids():
        assert CATALOG.resolve(hub_id).model.model_type in classes, hub_id
