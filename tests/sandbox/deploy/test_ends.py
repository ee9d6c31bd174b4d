"""Real timers: the sandbox's machines terminate themselves, unattended, on a clock that runs 60 times as fast. Times
are the machine's own: its limit by its own clock, and when it acted. Uses a separate sandbox because of the clock's
speed.
"""

from __future__ import annotations

import re
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders.sandboxed import Program
from builders.waiting import eventually

from tgi_deploy.sandbox import control
from tgi_deploy.sandbox.processes import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEED = 60.0
LATE_S = 2.0  # real seconds between a limit and the machine's shutdown command
UP = ("up", "llama3-13b", "--budget", "5", "--yes", "--no-wait")
EXPIRED = re.compile(r"phase=expired reason=(\w+) end=(\d+) now=(\d+)")


class Fleet:
    """The machines of one sandbox, by the names of their deployments."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ids: dict[str, str] = {}

    def up(self, name: str, *words: str) -> None:
        result = self.program.here(*UP, "--name", name, *words)
        assert result.code == 0, result.out
        resources = result.json["data"]["deployment"]["resources"]
        self.ids[name] = next(item["id"] for item in resources if item["kind"] == "instance")

    def machine(self, name: str) -> dict[str, Any]:
        found = self.program.control("GET", "machines")["machines"]
        return next(one for one in found if one["instance_id"] == self.ids[name])

    def console(self, name: str) -> str:
        path = Path(self.machine(name)["console"])
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def state(self, name: str, file: str, folder: str = "var/lib/tgi-deploy") -> str:
        root = Path(self.machine(name)["console"]).parent / "root"
        path = root / folder / file
        return path.read_text().strip() if path.exists() else ""

    def age_s(self, name: str) -> float:
        """Return the seconds since its first poll, as counted by the machine."""
        base = self.state(name, "clock", "run/tgi-deploy").split()[0]
        return int(base) + float(self.state(name, "uptime", "proc").split()[0])

    def clock(self, name: str) -> float:
        """Return the time on the machine's own clock."""
        clock = self.machine(name)["clock"]
        return clock["epoch"] + (time.time() - clock["epoch"]) * clock["speed"]

    def until(self, what: str, condition: Any) -> Any:
        return eventually(condition, what)

    def ended(self, name: str) -> tuple[str, int, float]:
        """Wait until the machine terminates; return the reason, the time, and the delay in real seconds."""
        found = self.until(f"the end of {name}", lambda: EXPIRED.search(self.console(name)))
        self.until(f"the end of {name}", lambda: self.machine(name)["state"] in {"shutting-down", "terminated"})
        return found[1], int(found[2]), (int(found[3]) - int(found[2])) / SPEED


@pytest.fixture(scope="module")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("ends")
    control.start(home / "sandbox", speed=600.0, timer_speed=SPEED)
    yield home
    control.stop(home / "sandbox")


@pytest.fixture
def fleet(_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fleet:
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(_home))
    info = control.start(_home / "sandbox")
    return Fleet(Program(url=info.endpoint_url, access_key=info.access_key, home=_home, capsys=capsys))


def ec2(fleet: Fleet) -> Any:
    return fleet.program.client("ec2")


def ours_besides_the_sandbox() -> list[str]:
    return [one.command for one in processes() if "tgi-deploy" in Path(one.command.split(" ")[0]).name]


def test_machines_terminate_themselves_unattended(fleet):
    """Each by its own limit, all at once, long after the command has exited."""
    fleet.up("by-ttl", "--ttl", "6m")
    fleet.up("by-spend", "--max-spend", "0.19")
    fleet.up("by-lease", "--lease", "6m")
    fleet.up("by-idleness", "--idle-timeout", "5m")
    assert ours_besides_the_sandbox() == []
    for name, reason in (("by-ttl", "ttl"), ("by-spend", "ttl"), ("by-lease", "lease"), ("by-idleness", "idle")):
        found, _, late_s = fleet.ended(name)
        assert found == reason, fleet.console(name)
        assert 0 <= late_s <= LATE_S, fleet.console(name)
    reasons = {
        instance["StateReason"]["Code"]
        for reservation in ec2(fleet).describe_instances(InstanceIds=list(fleet.ids.values()))["Reservations"]
        for instance in reservation["Instances"]
    }
    assert reasons == {"Client.InstanceInitiatedShutdown"}


def test_limits_of_a_running_machine_are_moved_lifted_and_set(fleet):
    fleet.up("moved", "--ttl", "20m")
    fleet.until("its first look", lambda: fleet.state("moved", "age"))
    assert fleet.program.here("extend", "moved", "--ttl", "none", "--lease", "3h").code == 0
    fleet.until("the lift", lambda: fleet.state("moved", "expires").startswith("1 - "))
    fleet.until("its first end to be past", lambda: fleet.age_s("moved") > 1300)
    assert fleet.machine("moved")["state"] == "running"
    (shown,) = fleet.program.here("status", "moved").json["data"]["deployments"]
    assert [end["reason"] for end in shown["ends"]] == ["lease"]
    assert fleet.program.here("extend", "moved", "--lease", "5m").code == 0
    reason, end, late_s = fleet.ended("moved")
    assert reason == "lease"
    assert end < 3600, "an owner may shorten a lease, too"
    assert 0 <= late_s <= LATE_S
    again = fleet.program.here("extend", "moved")
    assert again.json["errors"][0]["code"] == "machine_missing"


def test_activity_resets_the_idle_time_and_health_checks_do_not(fleet):
    fleet.up("busy", "--idle-timeout", "10m")
    endpoint = f"http://{fleet.machine('busy')['address']}:8080"
    fleet.until("the engine", lambda: _answers(f"{endpoint}/health"))
    ready = int(fleet.until("readiness", lambda: _since(fleet.state("busy", "idle-since"))))
    while fleet.age_s("busy") < ready + 200:
        _answers(f"{endpoint}/health")
        time.sleep(0.1)
    assert int(_since(fleet.state("busy", "idle-since"))) == ready
    _generate(endpoint)
    busy = int(fleet.until("activity", lambda: (at := _since(fleet.state("busy", "idle-since"))) != str(ready) and at))
    reason, end, late_s = fleet.ended("busy")
    assert (reason, end) == ("idle", busy + 600)
    assert busy > ready + 150
    assert 0 <= late_s <= LATE_S


def test_a_reboot_does_not_move_the_limit(fleet):
    fleet.up("rebooted", "--ttl", "15m")
    fleet.until("its first look", lambda: fleet.state("rebooted", "age"))
    began = fleet.clock("rebooted")
    fleet.until("the time of day", lambda: not fleet.state("rebooted", "age").endswith(" -"))
    boots = fleet.console("rebooted").count("Linux version")
    ec2(fleet).reboot_instances(InstanceIds=[fleet.ids["rebooted"]])
    fleet.until("a second boot", lambda: fleet.console("rebooted").count("Linux version") > boots)
    reason, end, _ = fleet.ended("rebooted")
    assert reason == "ttl"
    assert end in {900, 960}  # a minute later where a look takes so long that the tags were not asked before
    # Both moments are read late: the first look, and the order to shut down.
    assert abs(fleet.clock("rebooted") - began - end) <= 2 * LATE_S * SPEED


def test_the_next_machine_gets_the_rest_of_max_spend(fleet):
    capped = (*UP, "--name", "capped", "--max-spend", "0.30")
    first = fleet.program.here(*capped).json["data"]["deployment"]
    fleet.ids["capped"] = next(item["id"] for item in first["resources"] if item["kind"] == "instance")
    billed = time.monotonic() + 2  # by the second, and not by the machine's own clock
    fleet.until("two seconds that are billed", lambda: time.monotonic() > billed)
    ec2(fleet).terminate_instances(InstanceIds=[fleet.ids["capped"]])
    fleet.until("its end", lambda: fleet.machine("capped")["state"] == "terminated")
    again = fleet.program.here(*capped)
    assert again.code == 0, again.out
    assert "of --max-spend $0.30 is already spent (1 machine)" in again.err
    assert again.json["data"]["deployment"]["ttl_s"] < first["ttl_s"]


def test_a_spot_notice_drains_and_is_shown(fleet):
    fleet.up("taken", "--market", "spot", "--ttl", "1d")
    endpoint = f"http://{fleet.machine('taken')['address']}:8080"
    fleet.until("the engine", lambda: _answers(f"{endpoint}/health"))
    document = {"name": "spot-reclaim", "instance_id": fleet.ids["taken"], "after_s": 30.0}
    fleet.program.control("POST", "faults", document)
    result = fleet.until(
        "the notice", lambda: re.search(r"spot-notice action=(\w+) time=(\S+)", fleet.console("taken"))
    )
    assert result[1] == "terminate"
    assert datetime.fromisoformat(result[2]).tzinfo == UTC
    fleet.until("the drain", lambda: "starting graceful shutdown" in fleet.console("taken"))
    (shown,) = fleet.program.here("status", "taken").json["data"]["deployments"]
    assert shown["spot_notice"].startswith("the cloud is reclaiming the spot machine: terminate")


def test_stopped_time_counts_neither_as_idle_nor_toward_the_lease(fleet):
    fleet.up("rested", "--idle-timeout", "10m", "--lease", "15m", "--ttl", "4h")
    # What it was off for is worked out from the time of day, which it asks for two minutes after its first boot.
    fleet.until("the time of day to be known", lambda: fleet.state("rested", "age").split()[1:] not in ([], ["-"]))
    age_s, went = fleet.age_s("rested"), fleet.clock("rested")
    assert fleet.program.here("stop", "rested", "--yes").code == 0
    fleet.until("a quarter of an hour", lambda: fleet.clock("rested") - went > 900)
    assert fleet.program.here("start", "rested", "--ready", "fast", "--yes").code == 0
    reason, end, late_s = fleet.ended("rested")
    assert reason == "idle"
    assert end - age_s > 900 + 600
    assert 0 <= late_s <= LATE_S


def _since(text: str) -> str:
    """Return when the idle time started, once the engine has been ready."""
    since, _, seen = text.partition(" ")
    return since if seen not in {"", "-"} else ""


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 -- a loopback address
            return response.status == 200
    except OSError:
        return False


def _generate(endpoint: str) -> None:
    request = urllib.request.Request(  # noqa: S310 -- as above
        f"{endpoint}/generate",
        data=b'{"inputs": "hello", "parameters": {"max_new_tokens": 2}}',
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310 -- as above
        assert response.status == 200
