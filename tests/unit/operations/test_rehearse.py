"""The timeline of a rehearsal: its times, masked ids, faults, and leftovers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from fakes.computer import FakeComputer, plan, request

from tgi_deploy.errors import DeployError, InputError, warning
from tgi_deploy.operations.deploying.rehearse import Timeline, check_market, chosen, rehearse
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.values.change_results import LeftoverData
from tgi_deploy.values.resource import Step


@dataclass(frozen=True)
class Scenario:
    name: str = "made-up"
    description: str = "something made up happens"
    at_phase: str = ""
    machine_fault: Any = None
    delay_s: float = 0.0
    market: str = ""


@dataclass
class Stage:
    """Remembers what was asked of it."""

    prepared: list[tuple[str, int]] = field(default_factory=list)
    struck: list[tuple[str, str]] = field(default_factory=list)
    still: tuple[str, ...] = ()
    ids: ClassVar = re.compile(r"\b(i|sg|lt)-[0-9a-f]{8,17}\b")

    def prepare(self, name, seed):
        self.prepared.append((name, seed))
        return (f"{name} is arranged",)

    def strike(self, name, instance_id):
        self.struck.append((name, instance_id))

    def calls(self):
        return ("RunInstances", "DescribeInstances", "DescribeInstances")

    def running(self):
        return self.still


@pytest.fixture
def here(tmp_path):
    return FakeComputer(home=tmp_path)


def timeline(here, *scenarios, stage=None):
    return Timeline(context=here.context(), stage=stage or Stage(), plan=plan(), name="demo", scenarios=scenarios)


def step(action, kind, thing):
    return Step(
        action=action,
        key=kind,
        kind=kind,
        place="us-east-1",
        reason="",
        attributes={"id": thing},
        is_machine=kind == "instance",
    )


def test_a_rehearsal_runs_up_and_down_and_leaves_nothing(here):
    stage = Stage()
    reported = rehearse(here.context(), stage, request(), [Scenario()], seed=7)
    assert stage.prepared == [("made-up", 7)]
    assert [(item.command, item.exit_code) for item in reported.endings] == [("up", 0), ("down", 0)]
    assert (reported.safe, reported.left) == (True, ())
    assert reported.calls == {"DescribeInstances": 2, "RunInstances": 1}
    assert [item.text for item in reported.timeline][:3] == [
        "made-up: something made up happens",
        "made-up is arranged",
        "tgi-deploy up",
    ]
    moments = [item.at_s for item in reported.timeline]
    assert moments == sorted(moments)
    assert reported.machine_seconds > 60
    assert reported.usd > 0


def test_an_unknown_machine_counts_as_a_leftover(here):
    reported = rehearse(here.context(), Stage(still=("i-0123456789abcdef0",)), request(), [], seed=1)
    assert not reported.safe
    assert reported.left == (LeftoverData(kind="instance", id="i-0123456789abcdef0"),)


def test_a_failure_is_reported_with_code_and_hint(here):
    def fail():
        raise DeployError("died", "the machine i-0123456789abcdef0 died", hint="look")

    reported = timeline(here)
    ending = reported.play("up", fail)
    assert (ending.exit_code, ending.code, ending.message, ending.hint) == (1, "died", "the machine i-1 died", "look")
    assert [item.code for item in reported.moments] == ["command", "failed"]


def test_ids_become_numbers_in_the_order_of_appearance(here):
    reported = timeline(here)
    reported.record("x", "i-0000000000000000b and sg-00000000000000001")
    reported.record("x", "i-0000000000000000a, then i-0000000000000000b; not-an-id-1")
    assert [item.text for item in reported.moments] == ["i-1 and sg-1", "i-2, then i-1; not-an-id-1"]


def test_unobserved_phases_are_reported_with_the_planned_time(here):
    reported = timeline(here)
    reported.phase("launching", "", 0, 0)
    reported.phase("loading", "", 0, 0)
    reported.phase("booting", "", 0, 0)
    assert [item.text for item in reported.moments] == ["launching", "booting", "pulling", "downloading", "loading"]
    assert [item.at_s for item in reported.moments][:3] == [0, 40, 130]


def test_a_delay_makes_its_phase_longer(here):
    reported = timeline(here, Scenario(at_phase="booting", delay_s=300))
    for phase in ("booting", "pulling"):
        reported.phase(phase, "", 0, 0)
    assert reported.moments[-1].at_s == 40 + 90 + 300


def test_a_fault_in_a_phase_is_applied_once(here):
    stage = Stage()
    reported = timeline(here, Scenario(at_phase="booting", machine_fault={"name": "dead-host"}), stage=stage)
    reported.step(step("create", "instance", "i-00000001"), "done")
    for phase in ("launching", "booting", "booting", "pulling"):
        reported.phase(phase, "", 0, 0)
    assert stage.struck == [("made-up", "i-00000001")]
    seconds = reported.machine_s
    assert seconds == 40
    reported.step(step("delete", "instance", "i-00000001"), "done")
    reported.end_machines()
    assert reported.machine_s == seconds


def test_a_machine_costs_from_launch_to_termination(here):
    reported = timeline(here)
    deployment = rehearsed_record(here)
    reported.step(step("create", "instance", "i-00000001"), "begun")
    reported.step(step("create", "instance", "i-00000001"), "done")
    reported.now_s += 3599 - 61
    reported.step(step("delete", "instance", "i-00000001"), "done")
    assert reported.machine_s == 3599
    assert reported.usd == deployment.usd_per_hour * Decimal("3599.0") / 3600


def rehearsed_record(here):
    """A record with a price, as `up` leaves it."""
    up(here.context(), request())
    return here.store.load("demo")


def test_transient_lines_are_not_in_the_timeline(here):
    reported = timeline(here)
    reported.note("security group sg-1 is in use; waiting")
    reported.line("booting takes longer than expected")
    reported.step(step("delete", "volume", "vol-00000001"), "done")
    assert reported.moments == []
    reported.note("removing temporary resources")
    reported.warn(warning("no_capacity", "a pool is out"))
    assert [(item.at_s, item.code) for item in reported.moments] == [(0, "note"), (1, "no_capacity")]


def test_faults_are_chosen_by_name_without_duplicates():
    one, two = Scenario(name="one"), Scenario(name="two")
    assert chosen(["two", "one", "two"], [one, two]) == [two, one]


@pytest.mark.parametrize(("name", "hint"), [("ona", "did you mean one?"), ("x", "one of: one, two")])
def test_an_unknown_fault_is_rejected_with_a_suggestion(name, hint):
    with pytest.raises(InputError) as error:
        chosen([name], [Scenario(name="one"), Scenario(name="two")])
    assert (error.value.code, error.value.hint) == ("bad_option_value", hint)


def test_a_fault_of_another_market_is_rejected():
    check_market(plan(), [Scenario()])
    with pytest.raises(InputError) as error:
        check_market(plan(), [Scenario(name="spot-reclaim", market="spot")])
    assert error.value.code == "fault_not_applicable"
    assert "--market spot" in error.value.hint
