"""Every limit acts in time, whatever breaks: disks, Docker, clocks, reboots. Each condition for each kind of limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest
from builders.clocked import STATE, Clocked, Mounts, mounts
from builders.samples import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FIRST: Final = 1_795_262_400
DAY_S: Final = 86_400
LIFE_S: Final = 900
LAST_REQUEST_S: Final = 120
STEP_S: Final = 60
ENDS: Final = {"ttl": {"ttl_s": LIFE_S}, "lease": {"lease_s": LIFE_S}, "idle": {"idle_s": LIFE_S}}


@dataclass(frozen=True)
class Condition:
    """`steps` are what happens, by the seconds since the first look at which it does; `disk` is a small one."""

    steps: dict[int, Callable[[Clocked, Mounts | None], object]] = field(default_factory=dict)
    skew_s: int = 0
    disk: bool = False


def fill(box: Clocked, at: Mounts | None) -> None:
    assert at is not None
    at.fill(box.machine.at(STATE))


def make_read_only(box: Clocked, at: Mounts | None) -> None:
    assert at is not None
    at.make_read_only(box.machine.at(STATE))


def docker_dies(box: Clocked, _at: Mounts | None) -> None:
    box.metrics(None)


def clock_is_off(seconds: int) -> Callable[[Clocked, Mounts | None], object]:
    def set_clock(box: Clocked, _at: Mounts | None) -> None:
        box.skew_s = seconds

    return set_clock


def reboots(down_s: int = 20) -> Callable[[Clocked, Mounts | None], object]:
    def reboot(box: Clocked, _at: Mounts | None) -> None:
        box.reboot(down_s=down_s)
        box.requests(0)

    return reboot


def reboots_with_a_wrong_clock(seconds: int) -> Callable[[Clocked, Mounts | None], object]:
    def reboot(box: Clocked, at: Mounts | None) -> None:
        box.skew_s = seconds
        reboots()(box, at)

    return reboot


CONDITIONS: Final = {
    "nothing": Condition(),
    "a full disk": Condition({60: fill}, disk=True),
    "a disk that is full from the start": Condition({0: fill}, disk=True),
    "a read-only root": Condition({60: make_read_only}, disk=True),
    "a root that is read-only from the start": Condition({0: make_read_only}, disk=True),
    "a dead docker": Condition({180: docker_dies}),
    "a first boot with the clock ahead": Condition({60: clock_is_off(0)}, skew_s=DAY_S),
    "a first boot with the clock behind": Condition({60: clock_is_off(0)}, skew_s=-DAY_S),
    "a first boot in 1970": Condition({60: clock_is_off(0)}, skew_s=-FIRST),
    "a clock that is set forward": Condition({300: clock_is_off(DAY_S)}),
    "a clock that is set back": Condition({300: clock_is_off(-DAY_S)}),
    "a clock that is set back and forward": Condition({300: clock_is_off(-DAY_S), 480: clock_is_off(0)}),
    "a reboot": Condition({300: reboots()}),
    "two reboots": Condition({300: reboots(), 420: reboots()}),
    "a stop and a start": Condition({300: reboots(400)}),
    "a reboot after the clock was set back": Condition({240: clock_is_off(-DAY_S), 300: reboots_with_a_wrong_clock(0)}),
    "a reboot with the clock ahead": Condition({300: reboots_with_a_wrong_clock(DAY_S), 420: clock_is_off(0)}),
    "a reboot with the clock behind": Condition({300: reboots_with_a_wrong_clock(-DAY_S), 420: clock_is_off(0)}),
    "a full disk and a reboot": Condition({180: fill, 300: reboots()}, disk=True),
    "a read-only root and a reboot": Condition({180: make_read_only, 300: reboots()}, disk=True),
}  # fmt: skip


@pytest.fixture
def mounted() -> Iterator[Mounts | None]:
    yield from mounts()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "end"), some([(name, end) for name in CONDITIONS for end in ENDS], 20))
def test_a_limit_acts_neither_early_nor_late(tmp_path: Path, mounted: Mounts | None, name: str, end: str):
    """At most five seconds early or late."""
    condition = CONDITIONS[name]
    if condition.disk and mounted is None:
        pytest.skip("this computer allows no mount namespaces")
    box = Clocked(tmp_path / "clocked", inside=mounted.inside if mounted else (), **ENDS[end])
    box.skew_s = condition.skew_s
    if condition.disk and mounted is not None:
        mounted.small_disk(box.machine.at(STATE))
    box.tag(lease_until=datetime.fromtimestamp(FIRST + LIFE_S, UTC).isoformat())
    box.requests(0)
    expected_s = LIFE_S + (LAST_REQUEST_S if end == "idle" else 0)
    for second in (*range(0, expected_s, STEP_S), expected_s - 5):
        if second == LAST_REQUEST_S:
            box.requests(1)
        if second in condition.steps:
            condition.steps[second](box, mounted)
        if FIRST + second >= (box.now or 0):
            assert not box.over(FIRST + second), f"it ended {expected_s - second} s early"
    assert box.over(FIRST + expected_s + 5)


@pytest.mark.parametrize("end", ENDS)
def test_a_machine_that_was_off_past_its_limit_terminates_soon_after_boot(tmp_path: Path, end: str):
    """The clock has two minutes to be corrected before its elapsed time is used."""
    box = Clocked(tmp_path / "clocked", **ENDS[end])
    box.requests(0)
    for second in range(0, 301, STEP_S):
        assert not box.over(FIRST + second)
    box.reboot(down_s=DAY_S)
    assert box.now is not None
    assert box.over(box.now + 120)


def test_a_machine_that_cannot_write_anywhere_terminates_in_time(tmp_path: Path):
    box = Clocked(tmp_path / "clocked", ttl_s=LIFE_S)
    for path in ("/run", "/var"):
        box.machine.at(path).write_text("not a folder")
    assert not box.over(FIRST)
    assert not box.over(FIRST + LIFE_S - 60)
    assert box.over(FIRST + LIFE_S)
