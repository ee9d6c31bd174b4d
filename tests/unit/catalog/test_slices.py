"""Slices of a GPU, and machines that do not exist as one host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.values.hardware import InstanceType

GIB = 2**30


def machine(catalog: Catalog, text: str) -> InstanceType:
    return catalog.owned_supply(release="3.3.7", hardware=text).offers[0].instance_type


# What `nvidia-smi mig -lgip` prints in public logs: GiB, and multiprocessors of the whole card's.
@pytest.mark.parametrize(
    ("card", "profile", "printed_gib", "multiprocessors"),
    [
        ("A30", "1g.6gb", 5.81, 14 / 56),
        ("A100-80GB", "3g.40gb", 39.25, 42 / 108),
        ("H100-80GB", "1g.10gb", 9.75, 16 / 132),
        ("H100-80GB", "1g.20gb", 19.62, 26 / 132),
        ("H100-80GB-PCIe", "4g.40gb", 39.50, 62 / 114),
        ("H100-NVL", "1g.12gb", 10.62, 16 / 132),
        ("H200-141GB", "1g.18gb", 16.00, 16 / 132),
        ("B200", "1g.23gb", 20.50, 18 / 148),
        ("B200", "2g.45gb", 44.25, 36 / 148),
    ],
)
def test_a_slice_has_the_memory_the_driver_reports(catalog, card, profile, printed_gib, multiprocessors):
    whole, cut = catalog.accelerator(card), catalog.accelerator(f"{card}-MIG-{profile}")
    assert cut.memory_bytes / GIB == pytest.approx(printed_gib)
    assert cut.fp16_tflops == pytest.approx(whole.fp16_tflops * multiprocessors)
    assert cut.compute_capability == whole.compute_capability


def test_a_slice_has_the_bandwidth_of_its_memory(catalog):
    assert catalog.accelerator("A100-80GB-MIG-3g.40gb").bandwidth_gb_s == pytest.approx(2039 / 2)


@pytest.mark.parametrize("text", ["a100-80gb mig 3g.40gb", "A100 80GB-MIG-3G.40GB", "A100-80GB-3g.40gb"])
def test_slices_are_found_in_common_spellings(catalog, text):
    assert catalog.accelerator(text).name == "A100-80GB-MIG-3g.40gb"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1g.10gb", "is a slice, and its GPU is missing"),
        ("L4-MIG-1g.10gb", "does not support MIG"),
        ("A30-MIG-3g.20gb", "its profiles are 1g.6gb, 2g.12gb, 4g.24gb"),
        ("A100-MIG-3g.40gb", "'A100' could be"),
    ],
)
def test_an_impossible_slice_is_rejected_by_name(catalog, text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        catalog.accelerator(text)


@pytest.mark.parametrize("text", ["16xH100-80GB", "2xGB10", "12xL40S", "21xT4", "16xA100-80GB-MIG-4g.40gb"])
def test_more_gpus_than_a_host_has_are_rejected(catalog, text):
    with pytest.raises(InputError) as caught:
        machine(catalog, text)
    assert caught.value.code == "more_than_one_host"


@pytest.mark.parametrize(
    "text", ["16xA100-40GB", "8xH100-80GB", "56xA100-80GB-MIG-1g.10gb", "10xRTX-4090", "20xT4", "18xL4"]
)
def test_existing_hosts_are_accepted(catalog, text):
    assert machine(catalog, text).accelerator_count == int(text.partition("x")[0])


@pytest.mark.parametrize(
    "text",
    [
        "Ascend-910B",
        "Groq",
        "Cerebras WSE-3",
        "SN40L",
        "IPU-POD4",
        "M3-Max",
        "Jetson Orin",
        "Grace",
        "Grace Hopper",
        "DGX H100",
    ],
)
def test_unsupported_chips_get_an_explanation(catalog, text):
    with pytest.raises(InputError, match="TGI"):
        catalog.accelerator(text)


def test_an_arm_host_is_recognized_by_its_gpu(catalog):
    assert machine(catalog, "1xGB200").cpu_arch == "arm64"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NVL72", "4xGB200"),
        ("DGX SuperPOD", "the GPUs of one"),
        ("Trainium3", "does not name Trainium3"),
        ("MI300A", "does not name the MI300A"),
    ],
)
def test_newer_or_larger_chips_than_an_image_supports_get_an_explanation(catalog, text, says):
    with pytest.raises(InputError, match=says):
        catalog.accelerator(text)


def test_a_rack_is_more_than_one_host(catalog):
    with pytest.raises(InputError, match="72 x GB200 is more than one host has"):
        machine(catalog, "72xGB200")


def test_a_machine_of_another_cloud_suggests_its_gpus(catalog):
    with pytest.raises(InputError) as caught:
        catalog.instance_type("Standard_ND96asr_v4")
    assert "a machine of Azure: --hardware 8xA100-40GB" in caught.value.hint
