"""A seeded sample of `scripts/chaos.py`: kills at AWS calls, and storms."""

from __future__ import annotations

import functools

import pytest
from builders.samples import some
from disruptions import matrix, storm
from disruptions.checks import Account
from disruptions.program import Program
from disruptions.stage import UP_HOLDS, Stage

SEED = 4
POINTS = 1  # of each operation
RUNS = 1
# Each group runs by itself, with its own sandbox and warm interpreter.
GROUPS = (
    ("up", "up with everything", "down", "down of everything"),
    ("update", "rollback"),
    ("recreation", "extend"),
    ("stop", "start", "restart"),
)
# Some of the calls of each operation.
CALLS = {
    "up": {"RunInstances", "CreateSecurityGroup", "CreateLaunchTemplate"},
    "up with everything": {"PutParameter", "CreateRole", "CreateSchedule"},
    "down": {"TerminateInstances", "DeleteSecurityGroup", "DeleteLaunchTemplate"},
    "down of everything": {"DeleteParameter", "DeleteRole", "DeleteScheduleGroup"},
    "update": {"TerminateInstances", "RunInstances", "GetConsoleOutput"},
    "recreation": {"TerminateInstances", "RunInstances", "GetConsoleOutput"},
    "rollback": {"TerminateInstances", "RunInstances", "GetConsoleOutput"},
    "extend": {"CreateTags"},
    "stop": {"StopInstances"},
    "start": {"StartInstances"},
    "restart": {"RebootInstances"},
}


def in_group(number):
    return pytest.mark.xdist_group(f"disruptions {number}")


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    with Program(tmp_path_factory.mktemp("disruptions")) as started:
        yield started


@pytest.fixture(scope="session")
def account(program):
    return Account(program)


@pytest.fixture(scope="session")
def stage(program, account):
    return Stage(program, account, chain=POINTS)


@pytest.fixture(scope="session")
def recorded(stage):
    """Return a function for the calls of an undisturbed operation."""
    return functools.cache(lambda operation: stage.record((operation,)))


def test_every_operation_is_in_a_group():
    assert sorted(operation for group in GROUPS for operation in group) == sorted(matrix.OPERATIONS) == sorted(CALLS)


each_operation = pytest.mark.parametrize(
    "operation",
    some([pytest.param(name, marks=in_group(number)) for number, group in enumerate(GROUPS) for name in group], 6),
)


@each_operation
def test_the_matrix_covers_every_call(recorded, operation):
    calls = recorded(operation)[operation]
    points = matrix.points(recorded(operation))
    assert set(calls) >= CALLS[operation]
    assert {point.action for point in points} == {*calls} - {matrix.WRITE}
    assert len(set(points)) == len(points) >= 2 * len({*calls})
    assert calls.count(matrix.WRITE) >= 2


@each_operation
def test_after_a_signal_at_any_call_the_next_command_finishes(stage, recorded, operation):
    certain = [point for point in matrix.points(recorded(operation)) if not _is_a_later_look(point)]
    for point in matrix.sample(certain, POINTS, SEED):
        result = stage.try_point(point)
        assert (result.struck, result.failures) == (True, ()), point


def _is_a_later_look(point):
    """The number of polls in a wait differs between runs."""
    return point.ordinal > 0 and point.action.startswith(("Describe", "Get"))


@in_group(0)
@pytest.mark.parametrize("then", ["up", "down"])
def test_after_a_kill_during_the_launch_the_next_command_settles_it(stage, then):
    point = matrix.Point(operation="up", action="RunInstances", ordinal=0, signal="KILL", moment="lost", then=then)
    result = stage.try_point(point)
    assert (result.struck, result.failures) == (True, ())


@in_group(0)
@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_a_storm_leaves_no_leftovers_and_no_duplicates(program, account, seed):
    run = storm.try_run(program, account, seed)
    assert run.failures == ()
    assert run.calls > 0


@in_group(0)
def test_an_extra_machine_is_detected(program, account):
    program.empty()
    assert program.run(*matrix.UP).code == 0
    first = account.leftovers()
    assert [line.split()[0] for line in first] == UP_HOLDS
    assert program.run(*matrix.UP, "--name", "second").code == 0
    assert len(account.alive()) == 2
    assert program.run("down", "--all", "--yes").code == 0
    assert account.leftovers() == []
