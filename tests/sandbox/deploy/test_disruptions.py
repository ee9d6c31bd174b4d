"""A seeded sample of what `scripts/chaos.py` does in full: kills at AWS calls, and storms."""

from __future__ import annotations

import pytest
from disruptions import matrix, storm
from disruptions.checks import Account
from disruptions.program import Program

pytestmark = pytest.mark.xdist_group("disruptions")  # one warm interpreter
SEED = 4
POINTS = 2
RUNS = 1


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    with Program(tmp_path_factory.mktemp("disruptions")) as started:
        yield started


@pytest.fixture(scope="module")
def account(program):
    return Account(program)


@pytest.fixture(scope="module")
def recorded(program):
    return matrix.record(program)


def test_the_matrix_covers_every_call(recorded):
    assert {"RunInstances", "CreateSecurityGroup", "CreateLaunchTemplate"} <= set(recorded["up"])
    assert {"TerminateInstances", "DeleteSecurityGroup", "DeleteLaunchTemplate"} <= set(recorded["down"])
    points = matrix.points(recorded, ("KILL",))
    assert len(points) >= 3 * (len(recorded["up"]) + len(recorded["down"])) >= 60
    assert len(set(points)) == len(points)


@pytest.mark.parametrize("signal", matrix.SIGNALS)
def test_stopped_at_a_call_one_machine_then_none(program, account, recorded, signal):
    for point in matrix.sample(matrix.points(recorded, (signal,)), POINTS, SEED):
        result = matrix.try_point(program, account, point)
        assert result.failures == (), point
        assert result.struck, point


def test_killed_as_the_launch_is_asked_for_and_taken_down_at_once(program, account):
    point = matrix.Point(command="up", action="RunInstances", ordinal=0, signal="KILL", moment="lost", then="down")
    result = matrix.try_point(program, account, point)
    assert (result.struck, result.failures) == (True, ())


def test_killed_with_a_secret_a_role_a_profile_and_a_schedule(program, account):
    recorded = matrix.record(program, everything=True)
    assert {"PutParameter", "CreateRole", "CreateInstanceProfile", "CreateSchedule"} <= set(recorded["up"])
    points = matrix.points(recorded, ("KILL",), everything=True)
    made = [point for point in points if point.action in {"PutParameter", "CreateRole", "CreateSchedule"}]
    for point in matrix.sample(made, 1, SEED):
        result = matrix.try_point(program, account, point)
        assert (result.struck, result.failures) == (True, ()), point


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_a_storm_leaves_and_doubles_nothing(program, account, seed):
    run = storm.try_run(program, account, seed)
    assert run.failures == ()
    assert run.calls > 0


def test_a_machine_too_many_would_be_seen(program, account):
    program.empty()
    assert program.run(*matrix.up_words(wait=False)).code == 0
    first = account.leftovers()
    assert [line.split()[0] for line in first] == [
        "instance",
        "launch-template",
        "network-interface",
        "security-group",
        "volume",
    ]
    assert program.run(*matrix.up_words(wait=False), "--name", "second").code == 0
    assert len(account.alive()) == 2
    assert program.run("down", "--all", "--yes").code == 0
    assert account.leftovers() == []
