# ruff: noqa: N802 -- the driver's library has names of its own
from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from tgi_deploy.errors import DeployError
from tgi_deploy.targets.docker.gpus import local_gpus

MIB = 2**20
ROWS = """0, GPU-a, NVIDIA GeForce RTX 4090, 24564, 512, 8.9, [N/A]
1, GPU-b, NVIDIA A100-SXM4-40GB, 40960, 3, 8.0, Enabled
2, GPU-c, Tesla T4, 15360, [N/A], 7.5, [N/A]
"""


class FakeNvml(ModuleType):
    """The driver's library: `cards` are (name, MiB, used MiB, capability, MIG or None)."""

    class NVMLError(Exception):
        pass

    def __init__(self, cards=(), *, broken=""):
        super().__init__("pynvml")
        self.cards, self.broken, self.closed = cards, broken, False

    def nvmlInit(self):
        if self.broken == "init":
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self):
        self.closed = True

    def nvmlDeviceGetCount(self):
        if self.broken == "count":
            raise self.NVMLError("Driver/library version mismatch")
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return self.cards[handle][0]

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}".encode()

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=self.cards[handle][1] * MIB, used=self.cards[handle][2] * MIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return self.cards[handle][3]

    def nvmlDeviceGetMigMode(self, handle):
        if self.cards[handle][4] is None:
            raise self.NVMLError("Not Supported")
        return self.cards[handle][4], 0


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)


def program(folder, text, *, code=0):
    made = folder / "nvidia-smi"
    made.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n", encoding="utf-8")
    made.chmod(0o755)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_nvml_provides_all_facts(monkeypatch):
    nvml = FakeNvml([("NVIDIA L40S", 46068, 3, (8, 9), None), ("NVIDIA A100 80GB PCIe", 81920, 9, (8, 0), 1)])
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    first, second = local_gpus()
    assert (first.index, first.uuid, first.name, first.compute_capability) == (0, "GPU-0", "NVIDIA L40S", "8.9")
    assert (first.memory_bytes, first.used_bytes, first.mig) == (46068 * MIB, 3 * MIB, False)
    assert second.mig
    assert nvml.closed


def test_a_failing_nvml_is_reported(monkeypatch):
    nvml = FakeNvml(broken="count")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(DeployError) as caught:
        local_gpus()
    assert caught.value.code == "gpus_unreadable"
    assert "mismatch" in caught.value.message
    assert nvml.closed


def test_without_a_driver_there_are_none(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(broken="init"))
    assert local_gpus() == ()


@pytest.mark.parametrize("code", [0, 6])
def test_a_driver_without_a_gpu_counts_as_none(without_library, folder, code):
    program(folder, "No devices were found\n", code=code)
    assert local_gpus() == ()


def test_nvidia_smi_is_used_without_nvml(without_library, folder):
    program(folder, ROWS)
    first, second, third = local_gpus()
    assert (first.name, first.memory_bytes, first.used_bytes) == ("NVIDIA GeForce RTX 4090", 24564 * MIB, 512 * MIB)
    assert (first.mig, second.mig) == (False, True)
    assert third.used_bytes is None


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [("Failed to initialize NVML: Driver/library version mismatch\n", 18, "mismatch"), ("nonsense\n", 0, "nonsense")],
)
def test_a_failing_nvidia_smi_is_reported(without_library, folder, text, code, words):
    program(folder, text, code=code)
    with pytest.raises(DeployError) as caught:
        local_gpus()
    assert caught.value.code == "gpus_unreadable"
    assert words in caught.value.message
    assert "--hardware" in caught.value.hint
