"""Names in the spellings that people use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tgi_deploy.errors import InputError
from tgi_deploy.wiring import open_catalog

CASES = json.loads((Path(__file__).parents[2] / "cases" / "catalog" / "accelerator_names.json").read_text())
CATALOG = open_catalog()


def test_accelerators_are_found_in_common_spellings():
    spellings = [(text, name) for name, texts in CASES["found"].items() for text in texts]
    assert [(text, CATALOG.accelerator(text).name) for text, _ in spellings] == spellings


def test_every_accelerator_is_found_in_any_case():
    for name in CATALOG.accelerators():
        assert CATALOG.accelerator(name.upper()).name == name
        assert CATALOG.accelerator(name.lower().replace("-", "_")).name == name


@pytest.mark.parametrize("spelling", CASES["ambiguous"])
def test_ambiguous_accelerator_lists_the_choices(spelling):
    with pytest.raises(InputError) as caught:
        CATALOG.accelerator(spelling)
    assert caught.value.code == "unknown_accelerator"
    assert caught.value.message.count(",") >= 1
    assert "for example" in (caught.value.hint or "")


@pytest.mark.parametrize("spelling", CASES["unknown"])
def test_unknown_accelerator(spelling):
    with pytest.raises(InputError) as caught:
        CATALOG.accelerator(spelling)
    assert caught.value.code == "unknown_accelerator"
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("text", "name", "count", "interconnect"),
    [
        ("2xRTX-4090", "2xRTX-4090", 2, "pcie"),
        ("8xA100-80GB", "8xA100-80GB", 8, "nvlink"),
        ("8 x a100 80gb", "8xA100-80GB", 8, "nvlink"),
        ("1xL40S", "1xL40S", 1, "none"),
        ("L40S", "1xL40S", 1, "none"),
        ("4*t4", "4xT4", 4, "pcie"),
        ("2\u00d74090", "2xRTX-4090", 2, "pcie"),
    ],
)
def test_owned_hardware(text, name, count, interconnect):
    supply = CATALOG.owned_supply(release="3.3.7", hardware=text)
    (offer,) = supply.offers
    assert (offer.market, offer.region, offer.usd_per_hour) == ("owned", "local", None)
    machine = offer.instance_type
    assert (machine.name, machine.status, machine.accelerator_count) == (name, "owned", count)
    assert machine.interconnect == interconnect
    assert machine.memory_bytes_per_accelerator == machine.accelerator.memory_bytes
    assert supply.extra_prices["local"].public_ipv4_usd_per_hour == 0


@pytest.mark.parametrize("text", ["", "0xL40S", "1000xL40S", "-1xT4", "2x", "x" * 1000, "\n", "2x\x00"])
def test_bad_hardware(text):
    with pytest.raises(InputError) as caught:
        CATALOG.owned_supply(release="3.3.7", hardware=text)
    assert caught.value.code in {"bad_option_value", "unknown_accelerator"}
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("hardware", ["1xGH200-96GB", "1xT4g"])
def test_arm_hosts_are_known(hardware):
    machine = CATALOG.owned_supply(release="3.3.7", hardware=hardware).offers[0].instance_type
    assert machine.cpu_arch == "arm64"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llama3-13", "llama3-13b"),
        ("llama-3-13b", "llama3-13b"),
        ("LLAMA3-8B", "llama3-8b"),
        ("qwen25-7b", "qwen2.5-7b"),
        ("Mixtral8x7b", "mixtral-8x7b"),
        ("meta-llama/Llama-2-13b", "meta-llama/Llama-2-13b-hf"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_an_unknown_model_gets_a_suggestion_not_a_guess(text, expected):
    with pytest.raises(InputError) as caught:
        CATALOG.resolve(text)
    assert caught.value.code == "unknown_model"
    assert caught.value.exit_code == 2
    assert expected in (caught.value.hint or "")
    assert "config.json" in (caught.value.hint or "")


def test_a_dissimilar_name_gets_no_suggestion():
    with pytest.raises(InputError) as caught:
        CATALOG.resolve("zzzzzzzzzzzz")
    assert "did you mean" not in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text",
    ["", " ", "x;rm -rf /", "$(id)", "a" * 70_000, "a/b/c", "a\nb", "\x1b[31m", "../" * 400, "org/", "/" * 1100, "-x"],
)
def test_bad_model_names_are_rejected_and_escaped(text):
    with pytest.raises(InputError) as caught:
        CATALOG.resolve(text)
    assert caught.value.code == "bad_model_name"
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 150
    assert caught.value.hint


@pytest.mark.parametrize(
    ("regions", "hint"), [(("us-east-9",), "us-east-1"), (("frankfurt",), "eu-central-1"), (("",), "us-east-1")]
)
def test_unknown_region(regions, hint):
    with pytest.raises(InputError) as caught:
        CATALOG.supply(release="3.3.7", regions=regions, markets=("on-demand",))
    assert caught.value.code == "unknown_region"
    assert hint in (caught.value.hint or "")


def test_a_misspelled_region_gets_only_similar_ones():
    with pytest.raises(InputError) as caught:
        CATALOG.check_region("us-east-11")
    assert "us-east-1" in (caught.value.hint or "")
    assert "catalog list regions" in (caught.value.hint or "")
    assert len(caught.value.hint or "") < 120


@pytest.mark.parametrize("version", ["3.3.8", "latest", "", "../3.3.7", "3.3"])
def test_unknown_engine_version(version):
    with pytest.raises(InputError) as caught:
        CATALOG.release(version)
    assert caught.value.code == "unknown_engine_version"
    assert "3.3.7" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "types"),
    [("g6e", "types of g6e are g6e.xlarge"), ("L40S", "types with L40S are g6e.xlarge"), ("t3.micro", "'tgi-deploy")],
)
def test_a_family_or_gpu_name_suggests_its_types(asked, types):
    with pytest.raises(InputError) as caught:
        CATALOG.instance_type(asked)
    assert (caught.value.hint or "").startswith(types)


def test_a_list_of_regions_suggests_repeating_the_option():
    with pytest.raises(InputError) as caught:
        CATALOG.supply(release="3.3.7", regions=["us-east-1,eu-west-1"], markets=["on-demand"])
    assert "repeat the option" in (caught.value.hint or "")


def test_a_name_in_another_tools_style_gets_a_suggestion():
    with pytest.raises(InputError) as caught:
        CATALOG.resolve("llama3:8b")
    assert (caught.value.hint or "").startswith("did you mean llama3-8b")


def test_unknown_instance_type():
    with pytest.raises(InputError) as caught:
        CATALOG.instance_type("g6e.xlarg")
    assert caught.value.code == "unknown_instance_type"
    assert "g6e.xlarge" in (caught.value.hint or "")
