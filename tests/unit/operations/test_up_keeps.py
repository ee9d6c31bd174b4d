"""A failed `up` removes what it created itself. Earlier resources are kept and reported."""

from __future__ import annotations

import pytest
from fakes.cloud import KilledError
from fakes.computer import FakeEngine, on, plan, request

from tgi_deploy.cli.views.failure import failure_text
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.deploying.claim import FRESH
from tgi_deploy.operations.deploying.heal import Healer, up_and_heal
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.interrupts import guard, settle
from tgi_deploy.operations.stops import Stops
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import BadRequestError, PermissionDeniedError
from tgi_deploy.values.base import replaced

SILENT = Probe(outcome="refused")


def never(_error):
    pytest.fail("there is nothing to decide on")


def failed(around, **changes):
    with pytest.raises(DeployError) as caught:
        up(around.context(), request(**{"wait": True, **changes}))
    return caught.value


def test_an_unresponsive_engine_keeps_its_machine(around):
    up(around.context(), request(wait=True))
    (machine,) = around.world.running()
    around.probe = SILENT
    error = failed(around, on_failure=never)
    assert around.world.running() == [machine]
    assert len(around.world.left()) == 3
    assert error.data["outcome"] == "kept"
    assert error.data["still_billed"]["machine"] == machine.id
    assert "is older than this run and is kept and costs $1.861 an hour" in error.hint
    assert "'tgi-deploy down demo' removes it" in error.hint
    assert "is older than this run" in failure_text(error.problem, error.failure)


def test_a_machine_that_was_stopped_is_kept(around):
    up(around.context(), request(wait=True))
    (machine,) = around.world.running()
    around.probe = SILENT
    around.world.things[machine.id] = replaced(machine, state="stopped")
    error = failed(around, on_failure=never)
    assert machine.id in {found.id for found in around.world.left()}
    assert error.data["outcome"] == "kept"


def test_a_wrong_answer_keeps_the_machine(around):
    up(around.context(), request(wait=False))
    around.engine.model_id = "someone/else"
    error = failed(around, on_failure=never)
    assert (error.code, error.data["outcome"]) == ("wrong_model", "kept")
    assert len(around.world.running()) == 1


def test_on_failure_remove_removes_it(around):
    up(around.context(), request(wait=True))
    around.probe = SILENT
    error = failed(around, remove_all=True)
    assert (error.data["outcome"], error.data["before"]) == ("removed", [])
    assert around.world.left() == []


def test_resources_of_a_killed_run_are_kept_when_the_next_one_fails(around):
    def kill(call, _properties):
        if call == "machine":
            raise KilledError

    around.world.on_call = kill
    with pytest.raises(KilledError):
        up(around.context(), request())
    around.world.on_call, around.probe = None, SILENT
    assert failed(around, on_failure=never).data["outcome"] == "kept"
    assert len(around.world.running()) == 1


def test_resources_known_only_by_tags_are_kept(around):
    up(around.context(), request(wait=True))
    around.store.remove("demo")
    around.clock.seconds += FRESH.total_seconds()
    around.engine.model_id = "someone/else"
    assert failed(around, on_failure=never).data["outcome"] == "kept"
    assert len(around.world.running()) == 1


def test_only_the_new_machine_of_a_failed_up_is_removed(around):
    up(around.context(), request(wait=True))
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    around.clock.sleep(120)
    around.engine.model_id = "someone/else"
    error = failed(around)
    assert around.world.running() == []
    assert {found.kind for found in around.world.left()} == {"security-group", "launch-template"}
    assert (error.data["outcome"], error.data["still_billed"], error.data["receipt"]) == ("removed", None, None)
    assert {item["kind"] for item in error.data["before"]} == {"security-group", "launch-template"}
    assert "what already existed is kept: 'tgi-deploy down demo' removes it" in error.hint
    shown = failure_text(error.problem, error.failure)
    assert "nothing anymore" in shown
    assert "what already existed is kept" in shown
    receipt = down(around.context(), ["demo"], lambda _removals: True).receipts[0]
    assert len(receipt.machines) == 2
    assert around.world.left() == []


@pytest.mark.parametrize("error", [PermissionDeniedError("no", action="ec2:x"), BadRequestError("bad")])
def test_a_rejected_launch_keeps_the_earlier_machine(around, error):
    up(around.context(), request(wait=False))

    def refuse(call, _properties):
        if call == "machine":
            raise error

    around.clock.sleep(120)
    around.world.on_call = refuse
    refused = failed(around, remove_all=True)
    assert len(around.world.running()) == 1
    assert refused.data["outcome"] == "kept"
    assert "'tgi-deploy down demo' removes it" in refused.hint


def test_heal_does_not_replace_an_earlier_machine(around):
    made = plan(on("g6e.2xlarge"))
    up(around.context(), request(made, wait=False))
    around.engine = Deaf()
    healer = Healer(engine=Tgi(), edits={"generate_failed": ("other_machine",)}, plan_again=lambda _texts: made)
    with pytest.raises(DeployError) as caught:
        up_and_heal(
            around.context(), OptionTexts(model="x"), lambda _texts, chosen: request(chosen, wait=True), made, healer
        )
    assert caught.value.data["outcome"] == "kept"
    assert len([call for call in around.world.calls if call[0] == "create instance"]) == 1
    assert any(line.startswith("no automatic fix: ") for line in around.recorder.lines)


class Deaf(FakeEngine):
    def ask(self, probe):
        if probe.step == "generate":
            raise DeployError("generate_failed", "it answers nothing")
        return super().ask(probe)


@pytest.mark.parametrize("urgent", [False, True])
def test_an_interrupt_at_any_call_keeps_an_earlier_machine(around, urgent):
    """Only tags know it: this run writes the first record of it."""
    up(around.context(), request())
    around.store.remove("demo")
    around.clock.seconds += FRESH.total_seconds()
    for point in range(60):
        stops = Stops()
        context = guard(around.context(), stops)
        around.world.on_call = _at(point, stops, urgent=urgent)
        try:
            up(context, request(wait=True))
        except KeyboardInterrupt:
            around.world.on_call = None
            settle(context, "demo", stops, ask=lambda _exists: True)
        else:
            break
        finally:
            around.world.on_call = None
        assert len(around.world.running()) == 1, point
        assert len(around.world.left()) == 3, point
        if around.store.load("demo") is not None:
            around.store.remove("demo")
    assert 5 <= point < 59


def _at(point, stops, *, urgent):
    seen = [0]

    def strike(*_):
        seen[0] += 1
        if seen[0] == point + 1:
            stops.arrive(urgent=urgent)

    return strike
