"""Clocks that differ by minutes, and a cloud that shows resources late: one machine, then none."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest
from builders.samples import some
from fakes.cloud import FakeWorld, KilledError
from fakes.computer import FakeComputer, request

from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.down_all import down_all
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.status import status, statuses
from tgi_deploy.reconcile.errors import LostReplyError
from tgi_deploy.values.base import replaced

SKEWS_S = (-300, -60, 0, 60, 300)
# This computer's clock in a first and a later command: it stays wrong, is corrected, or becomes wrong.
CLOCKS = tuple(dict.fromkeys((*((s, s) for s in SKEWS_S), *((s, 0) for s in SKEWS_S), *((0, s) for s in SKEWS_S))))
DELAYS_S = (0, 12, 40)
KINDS = ("security-group", "launch-template", "instance")
BREAKS = ("killed before it is asked for", "killed before the reply", "reply lost", "killed after the reply")

WORLDS = [(*clocks, delay_s) for clocks, delay_s in product(CLOCKS, DELAYS_S)]
in_some_worlds = pytest.mark.parametrize(("first_s", "then_s", "shows_after_s"), some(WORLDS, 8))


def computer(home, *, ahead_s=0, holds_groups=False, **world):
    """Groups that can be deleted while in use don't reveal an invisible machine."""
    around = FakeComputer(home=home, world=FakeWorld(holds_groups=holds_groups, **world))
    around.world.time = around.clock.monotonic
    around.clock.ahead_s = ahead_s
    return around


def break_off(around, kind, how):
    """`up`, which breaks off at the creation of `kind`; a lost reply alone does not end it."""
    struck = []

    def before(name, _properties):
        if name == f"create {kind}" and how == "killed before it is asked for":
            raise KilledError
        if struck and how == "killed after the reply":
            raise KilledError

    def after(name):
        if name != f"create {kind}" or struck:
            return
        struck.append(name)
        if how == "killed before the reply":
            raise KilledError
        if how == "reply lost":
            raise LostReplyError("the reply got lost")

    around.world.on_call, around.world.after_call = before, after
    with suppress(KilledError):
        up(around.context(), request())
    around.world.on_call = around.world.after_call = None


def take_down(around):
    return down(around.context(), ["demo"], lambda _removals: True)


def ever_made(around, kind="instance"):
    return [found for found in around.world.things.values() if found.kind == kind]


def assert_one_deployment(around):
    assert len(ever_made(around)) == len(around.world.running()) == 1
    assert sorted(found.kind for found in around.world.left()) == sorted(KINDS)


def assert_nothing_left(around):
    around.clock.sleep(600)
    assert around.world.left() == []
    assert around.store.names() == ()


@pytest.mark.slow
@in_some_worlds
def test_after_a_crash_at_any_point_up_has_one_machine_and_down_leaves_none(tmp_path, first_s, then_s, shows_after_s):
    for kind in KINDS:
        for how in BREAKS:
            around = computer(tmp_path / f"{kind} {how}", ahead_s=first_s, shows_after_s=shows_after_s)
            break_off(around, kind, how)
            around.clock.ahead_s = then_s
            up(around.context(), request())
            assert_one_deployment(around)
            take_down(around)
            assert_nothing_left(around)


@pytest.mark.slow
@in_some_worlds
@pytest.mark.parametrize("remove", [take_down, lambda around: down_all(around.context(), lambda _removals: True)])
def test_down_right_after_a_crash_at_any_point_leaves_nothing(tmp_path, first_s, then_s, shows_after_s, remove):
    for kind in KINDS:
        for how in BREAKS:
            around = computer(tmp_path / f"{kind} {how}", ahead_s=first_s, shows_after_s=shows_after_s)
            break_off(around, kind, how)
            around.clock.ahead_s = then_s
            remove(around)
            assert_nothing_left(around)


@pytest.mark.slow
@in_some_worlds
def test_a_down_killed_at_any_point_is_finished_by_the_next(tmp_path, first_s, then_s, shows_after_s):
    killed, point = True, -1
    while killed:
        point += 3
        around = computer(tmp_path / str(point), ahead_s=first_s, shows_after_s=shows_after_s, slow_to_end=2)
        up(around.context(), request())
        around.clock.ahead_s = then_s
        killed = _kill_down(around, point)
        take_down(around)
        assert_nothing_left(around)
    assert point > 6


def _kill_down(around, point):
    calls = len(around.world.calls)

    def strike(*_call):
        if len(around.world.calls) > calls + point:
            raise KilledError

    around.world.on_call = strike
    try:
        take_down(around)
    except KilledError:
        return True
    finally:
        around.world.on_call = None
    return False


@pytest.mark.parametrize("then_s", SKEWS_S)
def test_a_repeated_intent_counts_from_its_last_request(tmp_path, then_s):
    """The first run sent no request, an hour ago. The second one's resource becomes visible later."""
    around = computer(tmp_path, shows_after_s=40)
    break_off(around, "instance", "killed before it is asked for")
    around.clock.sleep(3600)
    break_off(around, "instance", "killed before the reply")
    around.clock.ahead_s = then_s
    take_down(around)
    assert_nothing_left(around)


@pytest.mark.parametrize("then_s", SKEWS_S)
def test_a_machine_that_appears_late_is_removed_with_its_group(tmp_path, then_s):
    """Its termination was requested by an id that the cloud did not know yet, which had no effect."""
    around = computer(tmp_path, holds_groups=True)
    up(around.context(), request())
    (machine,) = around.world.running()
    around.world.shows_after_s, around.world.made_at = 150, {machine.id: 0}
    around.clock.ahead_s = then_s
    take_down(around)
    assert_nothing_left(around)


def test_an_old_resource_is_not_waited_for(tmp_path):
    around = computer(tmp_path)
    up(around.context(), request())
    around.clock.sleep(3600)
    around.world.things.clear()
    started = around.clock.seconds
    take_down(around)
    up(around.context(), request())
    assert around.clock.seconds == started


def test_a_terminated_machine_counts_as_missing_however_new(tmp_path):
    around = computer(tmp_path)
    up(around.context(), request())
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    started = around.clock.seconds
    take_down(around)
    assert around.clock.seconds == started
    assert_nothing_left(around)


def test_a_clock_hours_ahead_causes_no_long_wait(tmp_path):
    """Its record comes from a disk that was in a computer with such a clock."""
    around = computer(tmp_path, ahead_s=7200)
    break_off(around, "instance", "killed before it is asked for")
    around.clock.ahead_s = 0
    take_down(around)
    assert around.clock.seconds < 90
    assert_nothing_left(around)


@pytest.mark.parametrize("ahead_s", SKEWS_S)
def test_a_machine_that_is_not_visible_yet_is_not_reported_missing(tmp_path, ahead_s):
    around = computer(tmp_path)
    up(around.context(), request())
    around.clock.ahead_s = ahead_s
    around.world.hidden.update(found.id for found in around.world.running())
    for found in (status(around.context(), "demo"), *statuses(around.context())):
        assert not found.missing
        assert [(item.data["key"], item.code) for item in found.drift] == [("instance@1.1", "unsettled")]
    assert not list_deployments(around.context()).rows[0].missing
    around.clock.sleep(3600)
    assert status(around.context(), "demo").missing
    assert list_deployments(around.context()).rows[0].missing


def test_a_machine_terminated_right_after_launch_is_reported_missing(tmp_path):
    around = computer(tmp_path)
    up(around.context(), request())
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    assert status(around.context(), "demo").missing
    assert list_deployments(around.context()).rows[0].missing
