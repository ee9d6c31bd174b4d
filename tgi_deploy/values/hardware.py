"""Accelerators and instance types.

`memory_bytes` of an accelerator is usable memory: the smaller of the cloud's and the driver's figure
(`profiles/accelerators.json` records which). Rates are decimal (GB/s = 1e9 bytes per second, TFLOPS = 1e12).
"""

from __future__ import annotations

from typing import Literal

from tgi_deploy.values.base import Value

Interconnect = Literal["none", "pcie", "pcie-p2p", "nvlink", "neuronlink", "ethernet"]
TypeStatus = Literal["offered", "retired", "bundled", "owned", "hosted"]
# What the catalog lists.
EntryKind = Literal["accelerators", "instances", "regions", "engines", "models"]

ComputeCapability = tuple[int, int]


class Accelerator(Value, frozen=True, kw_only=True):
    """A chip, or a slice of one. Figures are dense (without sparsity) and per chip.

    `driver_name` is its name in nvidia-smi, `most_per_host` the maximum per host, `slice` its share of the chip's
    memory: below 1, it can't communicate with other slices. `loses`: what a slice lacks, as a sentence.
    """

    name: str
    vendor: str
    architecture: str
    compute_capability: ComputeCapability | None
    memory_bytes: int
    bandwidth_gb_s: float
    fp16_tflops: float | None
    fp8_tflops: float | None
    int8_tops: float | None
    bf16: bool
    interconnect: Interconnect
    host_arch: str = "x86_64"
    most_per_host: int = 8
    slice: float = 1.0
    aliases: tuple[str, ...] = ()
    driver_name: str | None = None
    confidence: str = "high"
    source: str = ""
    note: str | None = None
    loses: str | None = None


class InstanceType(Value, frozen=True, kw_only=True):
    """Rentable hardware, owned hardware (`status="owned"`, from `--hardware`), or a service's machine ("hosted").

    `partition` is a fractional machine's share of its chip, `driver` a driver that only some images have.
    """

    name: str
    status: TypeStatus
    accelerator: Accelerator
    accelerator_count: int
    memory_bytes_per_accelerator: int
    vcpus: int
    ram_bytes: int
    cpu_arch: str
    interconnect: Interconnect
    partition: float = 1.0
    driver: str | None = None
    capacity_block_only: bool = False
    network_gbps: float | None = None
    nvme_bytes: int = 0
    ebs_baseline_mb_s: float | None = None
    ebs_burst_mb_s: float | None = None
    quota_on_demand: str | None = None
    quota_spot: str | None = None
    note: str | None = None


class LocalGpu(Value, frozen=True, kw_only=True):
    """A GPU of this computer. `mig`: it is split into instances and can't be used as a whole."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    used_bytes: int | None = None
    compute_capability: str | None = None
    mig: bool = False
