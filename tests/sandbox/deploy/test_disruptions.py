"""A seeded sample of `scripts/chaos.py`: kills at AWS calls, and storms."""

from __future__ import annotations

import pytest
from disruptions import matrix, storm
from disruptions.checks import Account
from disruptions.program import Program
from disruptions.stage import UP_HOLDS, Stage

pytestmark = pytest.mark.xdist_group("disruptions")  # one warm interpreter
SEED = 4
POINTS = 2  # of each operation
RUNS = 1


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    with Program(tmp_path_factory.mktemp("disruptions")) as started:
        yield started


@pytest.fixture(scope="module")
def account(program):
    return Account(program)


@pytest.fixture(scope="module")
def stage(program, account):
    return Stage(program, account, chain=POINTS)


@pytest.fixture(scope="module")
def recorded(stage):
    return stage.record()


def test_the_matrix_covers_every_call(recorded):
    assert {"RunInstances", "CreateSecurityGroup", "CreateLaunchTemplate"} <= set(recorded["up"])
    assert {"PutParameter", "CreateRole", "CreateSchedule"} <= set(recorded["up with everything"])
    assert {"TerminateInstances", "DeleteSecurityGroup", "DeleteLaunchTemplate"} <= set(recorded["down"])
    for name in ("update", "rollback"):
        assert {"TerminateInstances", "RunInstances", "GetConsoleOutput"} <= set(recorded[name])
    assert "CreateTags" in recorded["extend"]
    points = matrix.points(recorded)
    assert len(set(points)) == len(points) > 1000
    for name, calls in recorded.items():
        assert {point.action for point in points if point.operation == name} == {*calls} - {matrix.WRITE}
        assert calls.count(matrix.WRITE) >= 2


@pytest.mark.parametrize("operation", matrix.OPERATIONS)
def test_after_a_signal_at_any_call_the_next_command_finishes(stage, recorded, operation):
    points = matrix.points({operation: recorded[operation]})
    tried = [(point, stage.try_point(point)) for point in matrix.sample(points, POINTS, SEED)]
    for point, result in tried:
        assert result.failures == (), point
        assert result.struck or _is_a_later_look(point), point
    assert any(result.struck for _, result in tried)


def _is_a_later_look(point):
    """The number of polls in a wait differs between runs."""
    return point.ordinal > 0 and point.action.startswith(("Describe", "Get"))


@pytest.mark.parametrize("then", ["up", "down"])
def test_after_a_kill_during_the_launch_the_next_command_settles_it(stage, then):
    point = matrix.Point(operation="up", action="RunInstances", ordinal=0, signal="KILL", moment="lost", then=then)
    result = stage.try_point(point)
    assert (result.struck, result.failures) == (True, ())


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_a_storm_leaves_no_leftovers_and_no_duplicates(program, account, seed):
    run = storm.try_run(program, account, seed)
    assert run.failures == ()
    assert run.calls > 0


def test_an_extra_machine_is_detected(program, account):
    program.empty()
    assert program.run(*matrix.UP).code == 0
    first = account.leftovers()
    assert [line.split()[0] for line in first] == UP_HOLDS
    assert program.run(*matrix.UP, "--name", "second").code == 0
    assert len(account.alive()) == 2
    assert program.run("down", "--all", "--yes").code == 0
    assert account.leftovers() == []
