"""The time to the first answer: bytes and rates; no deadline is shorter than the expected time."""

from __future__ import annotations

import pytest
from builders.plans import candidate, engine, instance_type, offer, storage
from fakes.computer import plan

from tgi_deploy.operations.planning.documents import plan_document
from tgi_deploy.planner.time_to_ready import estimate, packed_mb, phases_of_start, ready_deadline_s
from tgi_deploy.values.base import replaced

GB = 10**9
ORDER = ["launching", "booting", "pulling", "downloading", "loading", "warming_up", "ready"]


def seconds(*, weights_gb: int, on_nvme: bool = True, **hardware: object) -> dict[str, float]:
    machine = offer(instance_type=instance_type(**hardware))
    made = candidate(offer=machine, storage=storage(weights_bytes=weights_gb * GB, weights_on_nvme=on_nvme))
    return {phase.phase: phase.expected_s for phase in estimate(made)}


@pytest.mark.parametrize("weights_gb", [1, 16, 140, 810])
@pytest.mark.parametrize("on_nvme", [True, False])
@pytest.mark.parametrize("network_gbps", [None, 1.0, 100.0])
def test_deadlines_exceed_expected_times(weights_gb: int, on_nvme: bool, network_gbps: float | None) -> None:  # noqa: FBT001 -- a case
    machine = offer(instance_type=instance_type(network_gbps=network_gbps))
    made = candidate(offer=machine, storage=storage(weights_bytes=weights_gb * GB, weights_on_nvme=on_nvme))
    phases = estimate(made)
    assert [phase.phase for phase in phases] == ORDER
    assert all(phase.deadline_s >= 3 * phase.expected_s - 1e-6 for phase in phases)
    assert all(phase.deadline_s >= 60 for phase in phases)
    assert all(phase.expected_s > 0 for phase in phases)


def test_larger_weights_never_load_faster() -> None:
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
    large = replaced(small, storage=storage(image_bytes=20 * GB))
    assert estimate(large)[2].expected_s == pytest.approx(4 * estimate(small)[2].expected_s)


def test_a_burst_ends() -> None:
    """A g5.xlarge: 437.5 MB/s while the credit lasts, 87.5 after it; gp3 itself gives 125."""
    disk = {"on_nvme": False, "ebs_baseline_mb_s": 87.5, "ebs_burst_mb_s": 437.5, "network_gbps": 25.0, "ram_bytes": GB}
    short = seconds(weights_gb=100, **disk)  # type: ignore[arg-type]
    assert short["downloading"] == pytest.approx(100_000 / 125)
    spent_mb = 1800 * 125 - 15_000 - 100_000
    assert short["loading"] == pytest.approx(15 + 100_000 / 125)
    long = seconds(weights_gb=150, **disk)  # type: ignore[arg-type]
    assert long["downloading"] == pytest.approx(150_000 / 125)
    left_mb = spent_mb - 50_000
    assert long["loading"] == pytest.approx(15 + left_mb / 125 + (150_000 - left_mb) / 87.5)
    steady = seconds(weights_gb=100, **{**disk, "ebs_burst_mb_s": 87.5})  # type: ignore[arg-type]
    assert steady["downloading"] == pytest.approx(100_000 / 87.5)


@pytest.mark.parametrize("weights_gb", [1, 16, 140, 810])
@pytest.mark.parametrize("on_nvme", [True, False])
def test_the_stall_time_is_between_one_step_and_the_deadline(weights_gb: int, on_nvme: bool) -> None:  # noqa: FBT001 -- a case
    made = candidate(storage=storage(weights_bytes=weights_gb * GB, weights_on_nvme=on_nvme))
    for phase in estimate(made):
        assert 60 <= phase.stall_s <= phase.deadline_s
    download = {phase.phase: phase for phase in estimate(made)}["downloading"]
    one_file_s = download.expected_s / max(1, weights_gb / 5)
    assert download.stall_s >= min(download.deadline_s, 3 * one_file_s) - 1e-6
    if weights_gb > 100 and not on_nvme:
        assert download.stall_s < download.deadline_s


def test_every_captured_batch_lengthens_the_warm_up() -> None:
    made, usual = candidate(), engine()
    none = candidate(engine=replaced(usual, settings=replaced(usual.settings, cuda_graphs=(0,))))
    assert estimate(none)[5].expected_s < estimate(made)[5].expected_s


@pytest.mark.parametrize("weights_gb", [1, 26, 810])
def test_every_phase_has_a_stall_and_a_limit(weights_gb: int) -> None:
    phases = estimate(candidate(storage=storage(weights_bytes=weights_gb * GB)))
    assert all(0 < phase.stall_s <= phase.deadline_s < phase.limit_s for phase in phases)


def test_phases_have_their_network_bytes() -> None:
    made = candidate(storage=storage(weights_bytes=26 * GB, image_bytes=20 * GB))
    amounts = {phase.phase: phase.amount_mb for phase in estimate(made) if phase.amount_mb}
    assert amounts == {"pulling": 10_000, "downloading": 26_000}
    assert packed_mb(20 * GB) == 10_000


def test_a_larger_step_allows_a_longer_silence() -> None:
    slow = instance_type(network_gbps=1.0, ram_bytes=64 * GB)
    small, large = (
        {phase.phase: phase.stall_s for phase in estimate(candidate(offer=offer(instance_type=slow), storage=bytes_))}
        for bytes_ in (
            storage(weights_bytes=GB, image_bytes=GB, weights_on_nvme=False),
            storage(weights_bytes=800 * GB, image_bytes=80 * GB, weights_on_nvme=False),
        )
    )
    assert all(large[phase] > small[phase] for phase in ("pulling", "loading"))
    assert all(large[phase] >= small[phase] for phase in ORDER)


def test_an_owned_machine_has_no_launch_or_boot_phase_in_time_to_ready() -> None:
    rented = candidate()
    owned = candidate(offer=offer(market="owned", usd_per_hour=None))
    assert [phase.phase for phase in phases_of_start(rented)] == ORDER
    assert [phase.phase for phase in phases_of_start(owned)] == ORDER[2:]
    assert [phase.expected_s for phase in estimate(owned)][:2] == [0, 0]
    assert [phase.phase for phase in plan_document(plan(chosen=owned)).time_to_ready] == ORDER[2:]


def test_the_deadline_for_the_first_answer_is_that_of_all_phases() -> None:
    made = candidate()
    assert ready_deadline_s(made) >= sum(phase.deadline_s for phase in estimate(made)) > ready_deadline_s(made) - 1


def test_nothing_is_seen_of_a_services_machine_before_its_container_starts() -> None:
    hosted = candidate(offer=offer(instance_type=instance_type(status="hosted")))
    rented = candidate(offer=offer(instance_type=instance_type()))
    first, *others = estimate(hosted)
    assert [item.phase for item in (first, *others)] == [ORDER[0], *ORDER[3:]]
    assert first.expected_s == sum(item.expected_s for item in estimate(rented)[:3])
    assert first.deadline_s == first.stall_s == 2400


def test_a_service_may_replace_one_machine_after_the_other_but_starts_them_side_by_side() -> None:
    hosted = candidate(offer=offer(instance_type=instance_type(status="hosted")), machines=3, replicas=3)
    (*phases, first), (*_, update) = estimate(hosted), estimate(hosted, moved=3)
    starts_s = first.expected_s + sum(item.expected_s for item in phases)
    assert update.deadline_s - first.deadline_s == pytest.approx(2 * (900 + starts_s))
    alone = replaced(hosted, machines=1, replicas=1)
    assert estimate(alone)[-1].deadline_s == first.deadline_s
