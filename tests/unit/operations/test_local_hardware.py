from __future__ import annotations

import pytest

from tgi_deploy.errors import InputError
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.targets.docker.local_hardware import local_hardware
from tgi_deploy.values.base import replaced
from tgi_deploy.values.hardware import LocalGpu
from tgi_deploy.values.plan import NoFeasiblePlan, Plan

MIB = 2**20


def cards(*named, **changes):
    return tuple(
        LocalGpu(**{"index": at, "uuid": f"GPU-{at}", "name": name, "memory_bytes": mib * MIB, **changes})
        for at, (name, mib) in enumerate(named)
    )


def found(catalog, *named, **changes):
    return local_hardware(cards(*named, **changes), catalog, release=catalog.default_release)


@pytest.mark.parametrize(
    ("name", "mib", "card"),
    [
        ("NVIDIA GeForce RTX 4090", 24564, "RTX-4090"),
        ("NVIDIA GeForce RTX 3090", 24576, "RTX-3090"),
        ("NVIDIA GeForce RTX 5090", 32607, "RTX-5090"),
        ("NVIDIA RTX A6000", 49140, "RTX-A6000"),
        ("NVIDIA RTX A5000", 24564, "RTX-A5000"),
        ("NVIDIA RTX A4000", 16376, "RTX-A4000"),
        ("NVIDIA A10", 23028, "A10"),
        ("NVIDIA A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100-80GB-PCIe"),
        ("NVIDIA A100-PCIE-40GB", 40960, "A100-40GB-PCIe"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB"),
        ("NVIDIA L40S", 46068, "L40S"),
        ("Tesla V100-SXM2-16GB", 16384, "V100-16GB"),
        ("Tesla T4", 15360, "T4"),
    ],
)
def test_driver_names_match_catalog_accelerators(catalog, name, mib, card):
    assert found(catalog, (name, mib)).hardware == f"1x{card}"


def test_identical_gpus_are_counted(catalog):
    one = found(catalog, ("NVIDIA L40S", 46068), ("NVIDIA L40S", 46068))
    assert (one.hardware, one.devices, one.notices) == ("2xL40S", ("GPU-0", "GPU-1"), ())


def test_of_mixed_gpus_the_largest_identical_group_is_used_and_reported(catalog):
    mixed = found(catalog, ("Tesla T4", 15360), ("NVIDIA L4", 23034), ("NVIDIA L4", 23034))
    assert (mixed.hardware, mixed.devices) == ("2xL4", ("GPU-1", "GPU-2"))
    (notice,) = mixed.notices
    assert notice.code == "mixed_gpus"
    assert "Tesla T4" in notice.message


def test_of_two_different_gpus_the_larger_one_is_used(catalog):
    assert found(catalog, ("Tesla T4", 15360), ("NVIDIA L40S", 46068)).hardware == "1xL40S"


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA Quadro K2200"])
def test_an_unknown_gpu_is_rejected_with_its_facts(catalog, name):
    with pytest.raises(InputError) as caught:
        found(catalog, (name, 16376), compute_capability="8.9")
    assert caught.value.code == "unknown_card"
    assert "compute capability 8.9" in caught.value.message
    assert "--hardware NxGPU" in caught.value.hint


def test_memory_used_by_other_processes_is_reported_in_mib(catalog):
    busy = found(catalog, ("NVIDIA L40S", 46068), used_bytes=9000 * MIB)
    assert [item.code for item in busy.notices] == ["gpu_in_use"]
    assert "9000 of 46068 MiB" in busy.notices[0].message
    assert not found(catalog, ("NVIDIA L40S", 46068), used_bytes=300 * MIB).notices


def test_the_gpus_with_the_most_free_memory_come_first(catalog):
    busy, free = cards(("NVIDIA L40S", 46068), ("NVIDIA L40S", 46068))
    two = (replaced(busy, used_bytes=9000 * MIB), replaced(free, used_bytes=0))
    assert local_hardware(two, catalog, release=catalog.default_release).devices == ("GPU-1", "GPU-0")


def test_a_gpu_with_less_memory_than_the_catalog_is_reported(catalog):
    assert [item.code for item in found(catalog, ("NVIDIA RTX A6000", 46068)).notices] == ["less_memory"]


def test_gpus_in_mig_mode_are_rejected(catalog):
    with pytest.raises(InputError) as caught:
        found(catalog, ("NVIDIA A100-SXM4-40GB", 40960), mig=True)
    assert caught.value.code == "mig_enabled"
    assert "nvidia-smi -mig 0" in caught.value.hint


def test_without_a_gpu_the_cpu_image_is_named_with_a_warning(catalog):
    with pytest.raises(InputError) as caught:
        found(catalog)
    assert caught.value.code == "no_gpu"
    assert f"{catalog.release(catalog.default_release).image}-intel-cpu" in caught.value.message
    assert "GB/s" in caught.value.message


def test_a_t4_is_detected_and_rejected_by_the_planner(catalog):
    hardware = found(catalog, ("Tesla T4", 15360)).hardware
    outcome = plan(OptionTexts(model="llama3-8b", hardware=hardware), catalog, {})
    assert isinstance(outcome, NoFeasiblePlan)
    assert "arch_flash_attention" in {item.code for item in outcome.rejections}


def test_an_rtx_4090_is_planned_for_without_a_price(catalog):
    hardware = found(catalog, ("NVIDIA GeForce RTX 4090", 24564)).hardware
    outcome = plan(OptionTexts(model="llama3-8b", hardware=hardware), catalog, {})
    assert isinstance(outcome, Plan)
    assert outcome.chosen.cost.usd_per_hour == 0
