"""The constants' own file: complete, explained, within reason."""

from __future__ import annotations

import re

import pytest

from tgi_deploy.values.speed_constants import CardShares, EngineProfile, Kernel, Link
from tgi_deploy.wiring import open_catalog

CONSTANTS = open_catalog().predictions.speed
DOCUMENT = CONSTANTS.document
KINDS = {"card": CardShares, "link": Link, "kernel": Kernel, "engine": EngineProfile}


def test_every_constant_is_documented_and_near_its_prior():
    for key, entry in DOCUMENT["constants"].items():
        kind, _, field = key.split(".")
        assert field in KINDS[kind].__struct_fields__, key
        assert entry["source"] in DOCUMENT["sources"], key
        assert DOCUMENT["meanings"][f"{kind}.{field}"], key
        apart = 2.5 if "spread" in entry else 1
        assert entry["guess"] / apart <= entry["value"] <= entry["guess"] * apart, key


def test_no_card_exceeds_its_datasheet():
    for key, entry in DOCUMENT["constants"].items():
        assert not re.fullmatch(r"card\..*(?<!host)", key) or 0 < entry["value"] <= 1, key


def test_few_constants_are_fitted():
    fitted = [key for key, entry in DOCUMENT["constants"].items() if "spread" in entry]
    assert len(fitted) <= 51
    assert len(DOCUMENT["constants"]) <= 143


@pytest.mark.parametrize(
    ("name", "version", "profile"),
    [
        ("tgi", "", "tgi"), ("TGI", "3.3.7", "tgi"), ("TGI", "0.9.3", "tgi-legacy"), ("TGI", "1.1", "tgi-legacy"),
        ("vLLM", "0.6.4", "vllm-2024"), ("vllm", "v0.6.4", "vllm-2024"), ("vLLM", "2024-mid", "vllm-2024"),
        ("vLLM", "0.2", "tgi-legacy"), ("vLLM", "0.11.0", "vllm-2025"), ("vLLM", "0.30", "vllm-2025"),
        ("TensorRT-LLM", "0.10", "trtllm-2024"), ("trt-llm", "0.9", "trtllm-2024"),
        ("TensorRT-LLM", "NIM-1.x", "trtllm-2024"), ("TensorRT-LLM", "1.0.0rc3", "trtllm-2025"),
        ("TensorRT-LLM", "MLPerf-v4.1", "trtllm-2025"), ("SGLang", "0.5.1.post1", "sglang"),
        ("LMDeploy", "0.2.0", "default"), ("somebody's", "", "default"), ("Triton TRT-LLM", "", "trtllm-2025"),
    ],
)  # fmt: skip
def test_engine_versions_have_profiles(name, version, profile):
    assert CONSTANTS.engine_profile_name(name, version) == profile
    assert CONSTANTS.engine(name, version).chunk_tokens > 0


def test_constants_are_looked_up_by_name_then_architecture(catalog):
    assert CONSTANTS.family(catalog.accelerator("L4")) == "ada-72w"
    assert CONSTANTS.family(catalog.accelerator("L40S")) == "ada"
    assert CONSTANTS.family(catalog.accelerator("A10G")) == "ampere-gddr"
    assert CONSTANTS.card(catalog.accelerator("Gaudi2")) == CONSTANTS.card(catalog.accelerator("TPU-v4"))


def test_an_interval_is_wider_the_more_of_the_time_is_hard_to_predict():
    widths = [CONSTANTS.interval("tpot_ms", unsure) for unsure in (0.0, 0.5, 1.0)]
    lows, highs = zip(*widths, strict=True)
    assert 1 > lows[0] > lows[1] > lows[2] > 0.5
    assert 1 < highs[0] < highs[1] < highs[2] < 2


def test_times_and_rates_have_consistent_intervals():
    """Rates and times share their scale where they share a kind, with the ends the other way round."""
    low, high = CONSTANTS.interval("tpot_ms", 0.3)
    assert CONSTANTS.interval("decode_tok_s_per_user", 0.3) == pytest.approx((1 / high, 1 / low))
    assert CONSTANTS.interval("ttft_ms", 0.3)[1] > high


def test_bridged_gpus_have_nvlink_in_pairs(catalog):
    nvl, a10g, l4 = (catalog.accelerator(name) for name in ("H100-NVL", "A10G", "L4"))
    assert CONSTANTS.link("pcie", nvl, 2) == CONSTANTS.link("nvlink", catalog.accelerator("H100-80GB"), 2)
    assert CONSTANTS.link("pcie", nvl, 4) == CONSTANTS.link("pcie-p2p", nvl, 4)
    assert len({CONSTANTS.link("pcie", card, 4).gb_s for card in (a10g, l4, catalog.accelerator("L40S"))}) == 3
    desktop = CONSTANTS.link("pcie", catalog.accelerator("RTX-3090"), 4)
    assert desktop == CONSTANTS.link("pcie-p2p", catalog.accelerator("RTX-4090"), 4)
    assert desktop.latency_us < CONSTANTS.link("pcie-p2p", l4, 4).latency_us
