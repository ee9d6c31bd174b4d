"""Update `profiles/aws/instance_types.json` from EC2: DescribeInstanceTypes and the offerings of regions.

    python scripts/refresh_instances.py --region us-east-1 --region eu-west-1 [--write]

What EC2 does not report (interconnect, quota codes, capacity blocks, notes) is kept from the type's entry, or copied
from another size of its family; a new family is printed, to be completed by hand. Types that no region offers anymore
become `retired`. It only reads; the calls need ec2:DescribeInstanceTypes and ec2:DescribeInstanceTypeOfferings.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, Final

import boto3
from refresh_common import layout, load, report, today

from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tgi_deploy.values.hardware import Accelerator

FILE: Final = "aws/instance_types.json"
_ACCELERATED: Final = ("GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo")
_BY_FAMILY: Final = {"p3dn": "V100-32GB", "p3": "V100-16GB", "p4d": "A100-40GB", "p4de": "A100-80GB"}
# EC2 reports 512 GiB for a chip that has 96, or nothing at all.
_MEMORY_MIB: Final = {"Trainium2": 98304}
_KEPT: Final = (
    "driver", "interconnect", "capacity_block_only", "quota_on_demand", "quota_spot", "note", "us_east_1_zone_ids",
)  # fmt: skip
_ORDER: Final = (
    "status", "accelerator", "count", "memory_mib", "ec2_memory_mib", "partition", "driver", "vcpus", "ram_gib",
    "cpu_arch", "interconnect", "network_gbps", "nvme_gb", "ebs_baseline_mb_s", "ebs_burst_mb_s", "capacity_block_only",
    "usage_classes", "quota_on_demand", "quota_spot", "regions", "us_east_1_zone_ids", "note",
)  # fmt: skip


def entry(
    info: Mapping[str, Any], regions: Iterable[str], known: Mapping[str, Any], catalog: Catalog
) -> dict[str, Any]:
    """Return a type's entry from one element of DescribeInstanceTypes and its previous entry.

    Raises:
        InputError: `unknown_accelerator` if the chip is not in the catalog yet.
    """
    chip = _chip(info, catalog)
    family = info["InstanceType"].partition(".")[0]
    relative: Mapping[str, Any] = known.get(info["InstanceType"]) or next(
        (value for name, value in known.items() if name.partition(".")[0] == family), {}
    )
    found = {key: relative[key] for key in _KEPT if key in relative}
    found |= _accelerator_part(info, chip) | _machine_part(info)
    if found["count"] == 1:
        found["interconnect"] = "none"
    found |= {"status": "offered", "regions": sorted(regions)}
    return {key: found[key] for key in _ORDER if found.get(key) not in (None, [])}


def _devices(info: Mapping[str, Any]) -> Mapping[str, Any]:
    part: Mapping[str, Any] = next((info[key] for key in _ACCELERATED if key in info), {})
    devices = part.get("Gpus") or part.get("NeuronDevices") or part.get("Accelerators") or [{}]
    device: Mapping[str, Any] = devices[0]
    return device


def _chip(info: Mapping[str, Any], catalog: Catalog) -> Accelerator:
    family = info["InstanceType"].partition(".")[0]
    return catalog.accelerator(_BY_FAMILY.get(family) or _devices(info).get("Name", family))


def _accelerator_part(info: Mapping[str, Any], chip: Accelerator) -> dict[str, Any]:
    """Return count, share and usable memory. EC2 reports 0 fractional GPUs, so the logical count is used."""
    device = _devices(info)
    partition = device.get("GpuPartitionSize", 1)
    reported = device.get("MemoryInfo", {}).get("SizeInMiB")
    whole = chip.memory_bytes // 2**20
    usable = reported if partition < 1 else min(reported or whole, whole)
    usable = _MEMORY_MIB.get(chip.name, usable)
    return {
        "accelerator": chip.name,
        "count": device.get("LogicalGpuCount") or device.get("Count") or 1,
        "memory_mib": usable,
        "ec2_memory_mib": reported if reported != usable else None,
        "partition": partition if partition < 1 else None,
    }


def _machine_part(info: Mapping[str, Any]) -> dict[str, Any]:
    ebs = info.get("EbsInfo", {}).get("EbsOptimizedInfo", {})
    return {
        "vcpus": info["VCpuInfo"]["DefaultVCpus"],
        "ram_gib": _plain(info["MemoryInfo"]["SizeInMiB"] / 1024),
        "cpu_arch": info["ProcessorInfo"]["SupportedArchitectures"][-1],
        "network_gbps": network_gbps(info["NetworkInfo"]["NetworkPerformance"]),
        "nvme_gb": info.get("InstanceStorageInfo", {}).get("TotalSizeInGB"),
        "ebs_baseline_mb_s": _plain(ebs.get("BaselineThroughputInMBps")),
        "ebs_burst_mb_s": _plain(ebs.get("MaximumThroughputInMBps")),
        "usage_classes": sorted(info.get("SupportedUsageClasses", [])),
    }


def network_gbps(performance: str) -> float | None:
    """Return the peak in a text like `4x 100 Gigabit`: 400. EC2's own sum over cards is wrong for several types."""
    match = re.search(r"(?:(\d+)x )?([\d.]+) Gigabit", performance)
    return _plain(int(match[1] or 1) * float(match[2])) if match else None


def _plain(value: float | None) -> float | None:
    return int(value) if value is not None and value == int(value) else value


def describe(region: str, session: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 -- a boto3 session, or a fake
    """Return the accelerated types of a region. EC2 has no filter for them."""
    client = session.client("ec2", region_name=region)
    for page in client.get_paginator("describe_instance_types").paginate():
        yield from (info for info in page["InstanceTypes"] if any(key in info for key in _ACCELERATED))


def refreshed(known: Mapping[str, Any], regions: Iterable[str], session: Any, catalog: Catalog) -> dict[str, Any]:  # noqa: ANN401 -- as above
    """Return all entries, old and new, sorted by name."""
    seen: dict[str, Mapping[str, Any]] = {}
    places: dict[str, list[str]] = {}
    for region in regions:
        for info in describe(region, session):
            seen[info["InstanceType"]] = info
            places.setdefault(info["InstanceType"], []).append(region)
    entries = {name: old | ({"status": "retired"} if old["status"] == "offered" else {}) for name, old in known.items()}
    for name, info in seen.items():
        try:
            entries[name] = entry(info, places[name], known, catalog)
        except InputError as problem:
            print(f"{name} is left out: {problem.message}; {problem.hint}")
            continue
        if "interconnect" not in entries[name]:
            print(f"{name} is of a new family; add interconnect and quota codes by hand")
    return dict(sorted(entries.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--region", action="append", required=True, help="repeat for each region to query")
    parser.add_argument("--write", action="store_true", help="write the file instead of only printing the changes")
    options = parser.parse_args()
    path = profiles_dir() / FILE
    content = load(path)
    entries = refreshed(content["instance_types"], options.region, boto3.Session(), Catalog.open())
    fresh = content | {"collected_at": today(), "instance_types": entries}
    report(path, path.read_text(encoding="utf-8"), layout(fresh, by_entry=("instance_types",)), write=options.write)


if __name__ == "__main__":
    main()
