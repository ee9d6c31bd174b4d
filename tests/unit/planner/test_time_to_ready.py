"""How long until the first answer: bytes and rates, never a deadline before what is expected."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.plans import candidate, instance_type, offer, storage

from tgi_deploy.planner.time_to_ready import estimate

GB = 10**9
ORDER = ["launching", "booting", "pulling", "downloading", "loading", "warming_up", "ready"]


def seconds(*, weights_gb: int, on_nvme: bool = True, **hardware: object) -> dict[str, float]:
    machine = offer(instance_type=instance_type(**hardware))
    made = candidate(offer=machine, storage=storage(weights_bytes=weights_gb * GB, weights_on_nvme=on_nvme))
    return {phase.phase: phase.expected_s for phase in estimate(made)}


@pytest.mark.parametrize("weights_gb", [1, 16, 140, 810])
@pytest.mark.parametrize("on_nvme", [True, False])
@pytest.mark.parametrize("network_gbps", [None, 1.0, 100.0])
def test_deadlines_leave_room(weights_gb: int, on_nvme: bool, network_gbps: float | None) -> None:  # noqa: FBT001 -- a case
    machine = offer(instance_type=instance_type(network_gbps=network_gbps))
    made = candidate(offer=machine, storage=storage(weights_bytes=weights_gb * GB, weights_on_nvme=on_nvme))
    phases = estimate(made)
    assert [phase.phase for phase in phases] == ORDER
    assert all(phase.deadline_s >= 3 * phase.expected_s - 1e-6 for phase in phases)
    assert all(phase.deadline_s >= 60 for phase in phases)
    assert all(phase.expected_s > 0 for phase in phases)


def test_larger_weights_never_come_faster() -> None:
    found = [seconds(weights_gb=size) for size in (1, 8, 16, 26, 140, 810)]
    for phase in ORDER:
        series = [one[phase] for one in found]
        assert series == sorted(series), phase
    assert found[-1]["downloading"] > 100 * found[0]["downloading"]


@pytest.mark.parametrize(
    ("slow", "fast"),
    [
        ({"on_nvme": False, "network_gbps": 25.0}, {"network_gbps": 25.0}),
        ({"network_gbps": 1.0}, {"network_gbps": 25.0}),
    ],
)
def test_faster_disks_and_networks_help(slow: dict[str, object], fast: dict[str, object]) -> None:
    slower, faster = seconds(weights_gb=26, **slow), seconds(weights_gb=26, **fast)  # type: ignore[arg-type]
    assert slower["downloading"] > faster["downloading"]


def test_weights_that_fit_in_memory_are_read_from_its_cache() -> None:
    cached = seconds(weights_gb=26, on_nvme=False, ram_bytes=128 * GB)
    from_disk = seconds(weights_gb=26, on_nvme=False, ram_bytes=32 * GB)
    assert from_disk["loading"] > 5 * cached["loading"]


def test_a_larger_image_takes_longer() -> None:
    small = candidate(storage=storage(image_bytes=5 * GB))
    large = replace(small, storage=storage(image_bytes=20 * GB))
    assert estimate(large)[2].expected_s == pytest.approx(4 * estimate(small)[2].expected_s)
