from __future__ import annotations

from contextlib import suppress

import pytest
from builders.updates import NEW, again, bring_up
from fakes.cloud import FakeWorld, KilledError
from fakes.computer import FakeComputer, request

from tgi_deploy.errors import ConflictError, DeployError
from tgi_deploy.operations.deploying.claim import FRESH
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.interrupts import guard, settle
from tgi_deploy.operations.stops import Stops
from tgi_deploy.reconcile.errors import LostReplyError, ThrottledError
from tgi_deploy.values.base import replaced


def stop_up(around, strike, *, ask=lambda _things: True, moment="before", **changes):
    """Run `up` with `strike(stops)` at its calls; (how it was settled, the stops), or None when it got through."""
    stops = Stops()
    context = guard(around.context(), stops)
    setattr(around.world, "on_call" if moment == "before" else "after_call", lambda *call: strike(stops, *call))
    try:
        up(context, request(**changes))
        stops.check()
    except KeyboardInterrupt:
        around.world.on_call = around.world.after_call = None
        return settle(context, "demo", stops, ask=ask), stops
    around.world.on_call = around.world.after_call = None
    return None, stops


def launched(around):
    return {found.id for found in around.world.things.values() if found.kind == "instance"}


def receipted(around):
    receipts = around.store.receipts("demo")
    return {line["id"] for receipt in receipts for line in receipt["resources"] if line["kind"] == "instance"}


def at(point, act):
    seen = [0]

    def strike(stops, *_):
        seen[0] += 1
        if seen[0] == point + 1:
            act(stops)

    return strike


def cut(_stops):
    raise KeyboardInterrupt


def ctrl_c(stops):
    stops.arrive(urgent=False)


def terminate(stops):
    stops.arrive(urgent=True)


def during(name, act):
    return lambda stops, call, *_: act(stops) if call == name else None


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("act", [cut, ctrl_c], ids=["abandoned", "deferred"])
def test_an_interrupt_at_any_call_leaves_nothing(tmp_path, moment, act):
    interrupted = 0
    for point in range(99):
        around = FakeComputer(home=tmp_path / str(point))
        settled, _ = stop_up(around, at(point, act), moment=moment, wait=True)
        if settled is None:
            break
        interrupted += 1
        assert settled.outcome in {"nothing_created", "removed"}, point
        assert around.world.left() == [], point
        assert around.store.names() == (), point
    assert 15 <= interrupted < 99


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_after_an_interrupt_that_keeps_everything_up_has_one_and_down_leaves_none(tmp_path, moment):
    for point in range(99):
        around = FakeComputer(home=tmp_path / str(point))
        settled, _ = stop_up(around, at(point, ctrl_c), moment=moment, ask=lambda _things: False)
        assert settled is None or settled.outcome in {"nothing_created", "kept"}, point
        up(around.context(), request())
        assert len(around.world.running()) == 1, point
        assert len(around.world.left()) == 3, point
        down(around.context(), ["demo"], lambda _removals: True)
        assert around.world.left() == [], point
        if settled is None:
            break
    assert 10 <= point < 98


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sigterm_at_any_call_leaves_nothing_unrecorded(tmp_path, moment):
    for point in range(99):
        around = FakeComputer(home=tmp_path / str(point), world=FakeWorld(slow_to_end=20))
        asked = pytest.fail
        settled, _ = stop_up(around, at(point, terminate), moment=moment, ask=lambda _things, no=asked: no("asked"))
        if settled is None:
            break
        if around.world.left():
            assert settled.outcome == "removing", point
            assert around.store.load("demo").status == "deleting", point
            assert around.world.running() == [], point
        down(around.context(), ["demo"], lambda _removals: True)
        assert around.world.left() == [], point
        assert around.store.names() == (), point
    assert 10 <= point < 98


def test_a_sigterm_finishes_within_ten_seconds(around):
    around.world.slow_to_end = 10**9
    settled, _ = stop_up(around, during("machine", terminate))
    assert settled.outcome == "removing"
    assert around.clock.seconds < 10
    assert settled.exists[-1].kind == "instance"


@pytest.mark.parametrize("trouble", ["searches fail", "it does not show yet"])
def test_a_sigterm_terminates_the_machine_by_id_before_searching(around, trouble):
    """A canceled job may have only a second or two left."""

    def strike(stops, call, *_):
        if call == "machine":
            around.world.hidden.update(found.id for found in around.world.running())
            terminate(stops)

    def refuse(call, *_):
        if call.startswith("find"):
            raise ThrottledError("too fast")

    stops = Stops()
    context = guard(around.context(), stops)
    around.world.on_call = lambda *call: strike(stops, *call)
    with pytest.raises(KeyboardInterrupt):
        up(context, request())
    around.world.on_call = refuse if trouble == "searches fail" else None
    settled = settle(context, "demo", stops, ask=lambda _things: pytest.fail("asked"))
    assert around.world.running() == []
    assert settled.outcome == {"searches fail": "removing", "it does not show yet": "removed"}[trouble]
    assert settled.outcome == "removed" or around.store.load("demo").status == "deleting"


@pytest.mark.parametrize("kind", ["security-group", "launch-template"])
def test_after_a_sigterm_an_invisible_resource_stays_on_record(around, kind):
    """There is no time to wait for it: the next 'down' does."""

    def strike(stops, call, *_):
        if call == "machine":
            around.world.time, around.world.shows_after_s = around.clock.monotonic, 40
            around.world.made_at = {found.id: around.clock.seconds for found in around.world.there(kind)}
            terminate(stops)

    settled, _ = stop_up(around, strike)
    assert settled.outcome == "removing"
    assert around.store.load("demo").status == "deleting"
    assert around.world.running() == []
    down(around.context(), ["demo"], lambda _removals: True)
    assert around.world.left() == []


def test_a_machine_that_could_not_be_terminated_stays_on_record(around):
    around.world.holds_groups = False

    def strike(stops, call, *_):
        if call == "machine":
            around.world.hidden.update(found.id for found in around.world.running())
            terminate(stops)

    def refuse(call, *_):
        if call == "delete instance":
            raise ThrottledError("too fast")

    stops = Stops()
    context = guard(around.context(), stops)
    around.world.on_call = lambda *call: strike(stops, *call)
    with pytest.raises(KeyboardInterrupt):
        up(context, request())
    around.world.on_call = refuse
    settled = settle(context, "demo", stops, ask=lambda _things: pytest.fail("asked"))
    assert (settled.outcome, len(around.world.running())) == ("removing", 1)
    assert around.store.load("demo").status == "deleting"


def test_a_launch_is_recorded_before_the_interrupt_is_handled(around):
    settled, stops = stop_up(around, during("create instance", ctrl_c), ask=lambda _things: False)
    assert settled.outcome == "kept"
    assert not stops.abandoned
    assert [item.id for item in settled.exists] == stops.made
    assert {item.phase for item in settled.exists} == {"created"}


def test_an_address_whose_reply_was_lost_is_awaited_before_another_is_allocated(around):
    """A run that can be interrupted knows as much about a kind as any other."""
    around.world.time, around.world.shows_after_s = around.clock.monotonic, 12
    lost = []

    def lose(_stops, call, *_):
        if call == "create address" and not lost:
            lost.append(call)
            raise LostReplyError("lost")

    settled, _ = stop_up(around, lose, moment="after", settings={"static_ip": True})
    assert settled is None
    assert len(around.world.there("address")) == 1


def test_an_interruptible_run_moves_the_external_limit(around):
    up(around.context(), request(settings={"ttl_s": 7200}))
    settled, _ = stop_up(around, lambda *_: None, settings={"ttl_s": 3600})
    assert settled is None
    (machine,) = around.world.running()
    assert around.world.outside_ends == [(machine.id, around.store.load("demo").ends.expires_at)]


def test_a_second_interrupt_aborts_the_launch_and_its_machine_is_found(around):
    def twice(stops):
        stops.arrive(urgent=False)
        stops.arrive(urgent=False)

    settled, stops = stop_up(around, during("create instance", twice), moment="after")
    assert stops.abandoned
    assert settled.outcome == "removed"
    assert around.world.left() == []


def test_a_second_interrupt_while_removing_exits_and_lists_what_exists(around):
    around.world.slow_to_end = 10**9
    stops = Stops()
    context = guard(around.context(), stops)
    around.world.on_call = lambda call, *_: stops.arrive(urgent=False) if call == "machine" else None
    with pytest.raises(KeyboardInterrupt):
        up(context, request())
    around.world.on_call = lambda call, *_: stops.arrive(urgent=False) if call == "read instance" else None
    settled = settle(context, "demo", stops, ask=lambda _things: True)
    assert settled.outcome == "not_removed"
    assert [item.kind for item in settled.exists] == ["security-group", "launch-template", "instance"]
    assert around.store.load("demo").status == "deleting"


def test_a_second_interrupt_at_the_prompt_exits_at_once(around):
    def ask(_things):
        raise KeyboardInterrupt

    settled, _ = stop_up(around, during("machine", ctrl_c), ask=ask)
    assert settled.outcome == "not_removed"
    assert len(around.world.running()) == 1


def test_closing_the_terminal_at_the_prompt_removes(around):
    def ask(_things):
        stops.urgent = True
        raise KeyboardInterrupt

    stops = Stops()
    context = guard(around.context(), stops)
    around.world.on_call = lambda call, *_: stops.arrive(urgent=False) if call == "machine" else None
    with pytest.raises(KeyboardInterrupt):
        up(context, request())
    around.world.on_call = None
    assert settle(context, "demo", stops, ask=ask).outcome == "removed"
    assert around.world.left() == []


def test_resources_of_an_earlier_run_are_not_removed(around):
    up(around.context(), request())
    settled, stops = stop_up(around, during("machine", ctrl_c), wait=True)
    assert stops.made == []
    assert settled.outcome == "nothing_created"
    assert len(settled.exists) == 3
    assert len(around.world.running()) == 1


def test_resources_known_only_by_tags_are_not_removed(around):
    up(around.context(), request())
    around.store.remove("demo")
    around.clock.seconds += FRESH.total_seconds()
    settled, _ = stop_up(around, during("machine", ctrl_c))
    assert settled.outcome == "nothing_created"
    assert len(around.world.running()) == 1
    assert around.store.load("demo") is not None


@pytest.mark.parametrize("act", [ctrl_c, terminate])
def test_only_resources_of_this_run_are_removed(around, act):
    """The group and the template existed before; the machine is new."""
    up(around.context(), request())
    machine = around.world.running()[0]
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    around.clock.sleep(3600)
    settled, stops = stop_up(around, during("machine", act))
    if stops.made == []:
        pytest.fail("no machine was made")
    assert settled.outcome in {"removed", "removing"}
    assert around.world.running() == []
    assert {found.kind for found in around.world.left()} == {"security-group", "launch-template"}
    assert around.store.load("demo") is not None


@pytest.mark.parametrize("act", [ctrl_c, terminate])
def test_a_promoted_machine_keeps_serving(around, act):
    bring_up(around)
    update = {"plan": NEW, "wait": True, "plan_revision": again}
    settled, _ = stop_up(around, during("update instance", act), **update)
    assert settled.outcome == "kept"
    assert around.store.load("demo").rollout.stage == "promoted"
    assert len(around.world.running()) == 2
    finished = bring_up(around, NEW)
    assert (finished.deployment.current.number, finished.deployment.rollout) == (2, None)
    assert len(around.world.running()) == 1


@pytest.mark.parametrize("urgent", [False, True])
def test_an_aborted_launch_next_to_earlier_resources_is_found_and_terminated(around, urgent):
    def twice(stops):
        stops.arrive(urgent=urgent)
        stops.arrive(urgent=urgent)

    up(around.context(), request())
    machine = around.world.running()[0]
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    around.clock.sleep(3600)
    settled, stops = stop_up(around, during("create instance", twice), moment="after")
    assert (stops.abandoned, stops.made) == (True, [])
    assert around.world.running() == []
    assert settled.outcome == ("removing" if urgent else "removed")
    up(around.context(), request())
    down(around.context(), ["demo"], lambda _removals: True)
    assert receipted(around) == launched(around)


@pytest.mark.parametrize("urgent", [False, True])
def test_a_lost_launch_before_the_interrupt_is_found_and_terminated(around, urgent):
    def lose(stops, call, *_):
        if call == "create instance":
            stops.arrive(urgent=urgent)
            raise LostReplyError("launching: the reply was lost")

    up(around.context(), request())
    machine = around.world.running()[0]
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    around.clock.sleep(3600)
    settled, stops = stop_up(around, lose, moment="after")
    assert stops.made == []
    assert around.world.running() == []
    assert settled.outcome == ("removing" if urgent else "removed")
    down(around.context(), ["demo"], lambda _removals: True)
    assert receipted(around) == launched(around)


def test_a_rejected_deletion_after_sigterm_does_not_block_the_others(around):
    """The group belongs to an earlier run; the termination of this run's machine is rejected."""

    def kill(call, _properties):
        if call == "create launch-template":
            raise KilledError

    around.world.on_call = kill
    with pytest.raises(KilledError):
        up(around.context(), request())
    stops = Stops()
    context = guard(around.context(), stops)
    around.world.on_call = lambda call, *_: terminate(stops) if call == "machine" else None
    with pytest.raises(KeyboardInterrupt):
        up(context, request())

    def refuse(call, _properties):
        if call == "delete instance":
            raise ThrottledError("too fast")

    around.world.on_call = refuse
    settled = settle(context, "demo", stops, ask=lambda _things: pytest.fail("asked"))
    assert (settled.outcome, settled.why) == ("removing", "too fast")
    assert around.world.there("launch-template") == []
    assert {item.kind for item in settled.exists} == {"security-group", "launch-template", "instance"}


def test_without_resources_none_are_reported(around):
    settled, _ = stop_up(around, at(0, cut))
    assert (settled.outcome, settled.exists) == ("nothing_created", ())
    assert around.store.names() == ()


def test_if_the_cloud_stops_answering_resources_stay_on_record(around):
    stops = Stops()
    context = guard(around.context(), stops)
    around.world.on_call = lambda call, *_: stops.arrive(urgent=False) if call == "machine" else None
    with pytest.raises(KeyboardInterrupt):
        up(context, request())

    def gone(*_):
        raise DeployError("cloud_unreachable", "no answer")

    around.world.on_call = gone
    settled = settle(context, "demo", stops, ask=lambda _things: True)
    assert (settled.outcome, settled.why) == ("not_removed", "no answer")
    assert len(settled.exists) == 3


def test_a_removed_machine_has_its_receipt(around):
    settled, _ = stop_up(around, during("machine", ctrl_c))
    assert len(settled.receipt.machines) == 1
    assert settled.receipt.usd is not None


def test_the_lock_is_free_after_an_interruption(around):
    stop_up(around, during("create instance", cut), ask=lambda _things: False)
    with around.store.lock("demo", command="other"):
        pass


def test_another_processes_lock_is_still_a_conflict(around):
    stops = Stops()
    with around.store.lock("demo", command="other"), pytest.raises(ConflictError):
        up(guard(around.context(), stops), request())
    assert not stops.holding


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupted_down_keeps_the_record_until_proof(tmp_path, moment):
    for point in range(99):
        around = FakeComputer(home=tmp_path / str(point), world=FakeWorld(slow_to_end=2))
        up(around.context(), request())
        stops = Stops()
        strike = at(point, ctrl_c)
        setattr(
            around.world,
            "on_call" if moment == "before" else "after_call",
            lambda *call, strike=strike, stops=stops: strike(stops, *call),
        )
        with suppress(KeyboardInterrupt):
            down(guard(around.context(), stops), ["demo"], lambda _removals: True)
        around.world.on_call = around.world.after_call = None
        assert not around.world.left() or around.store.load("demo") is not None, point
        down(around.context(), ["demo"], lambda _removals: True)
        assert around.world.left() == [], point
        assert around.store.names() == (), point
        if not stops.count:
            break
    assert point > 15


@pytest.mark.parametrize("ask", [Stops.request, lambda stops: stops.arrive(urgent=True)])
def test_a_stop_request_is_forwarded_to_the_worker(ask):
    stops, asked = Stops(), []
    with stops.passed_on(lambda: asked.append("stop")):
        ask(stops)
        stops.check()
        stops.now()  # even what is overdue ends by itself
    assert asked == ["stop"]


def test_an_earlier_stop_request_is_forwarded_at_once():
    stops, asked = Stops(), []
    stops.request()
    with stops.passed_on(lambda: asked.append("stop")):
        assert asked == ["stop"]
