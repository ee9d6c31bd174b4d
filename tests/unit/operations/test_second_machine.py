"""Two machines of one deployment: every command shows both, and `up` removes the one that does not serve."""

from __future__ import annotations

from decimal import Decimal

import click
import pytest
from fakes.computer import FakeComputer, request

from tgi_deploy.cli.views.deployment import proposal_text, up_text
from tgi_deploy.cli.views.status import status_text
from tgi_deploy.errors import ConflictError, LeftBehindError, NotHealthyError
from tgi_deploy.operations.deploying.claim import FRESH
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.logs import locate
from tgi_deploy.operations.watching.status import status, statuses
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import NoCapacityError, ThrottledError
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.resource import TAG_ID, TAG_OWNER

TWICE = Decimal("3.722")


def bring_up(around, wanted=None, **changes):
    return up(around.context(), request(wanted, **changes))


def copy_machine(around, *, name="instance-0", **changes):
    """Another one with the same tags; by its id it comes before the first one in a search."""
    (machine,) = around.world.running()
    copied = replaced(machine, attributes={**machine.attributes, "id": name}, **changes)
    around.world.things[name] = copied
    around.world.properties[name] = around.world.properties[machine.id]
    return machine, copied


def ids(around):
    return [found.id for found in around.world.running()]


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("name", ["instance-0", "instance-9"])
def test_up_terminates_the_unrecorded_machine_and_reports_its_price(around, wait, name):
    first = bring_up(around, wait=wait)
    serving, copied = copy_machine(around, name=name)
    asked = []
    second = bring_up(around, wait=wait, confirm=lambda proposal: not asked.append(proposal))
    assert ids(around) == [serving.id]
    assert second.changed
    assert second.deployment.machine == first.deployment.machine
    assert second.deployment.status == first.deployment.status
    warning = f"second_machine a second instance is running in us-east-1: {copied.id} and costs $1.861 an hour"
    assert warning in around.recorder.lines
    (proposal,) = asked
    assert [step.attributes["id"] for step in proposal.changes.steps if step.action == "delete"] == [copied.id]
    assert f"duplicates {serving.id}" in proposal_text(proposal)
    assert not bring_up(around, wait=wait).changed


def test_the_prompt_shows_which_machine_stays(around):
    bring_up(around, wait=True)
    serving, copied = copy_machine(around)
    outcome = bring_up(around, wait=True, confirm=lambda _proposal: False)
    assert outcome.declined
    lines = click.unstyle(proposal_text(outcome.proposal)).splitlines()
    assert lines == [
        "demo: 1 machine too many",
        f"  - instance {copied.id} (duplicates {serving.id})",
        "  $1.861 an hour less; the recorded machine stays",
    ]
    assert len(ids(around)) == 2


def test_a_dry_run_reports_it_and_terminates_nothing(around):
    bring_up(around, wait=True)
    copy_machine(around)
    outcome = bring_up(around, wait=True, dry_run=True)
    assert "1 machine too many" in up_text(outcome)
    assert len(ids(around)) == 2


def test_a_changed_plan_changes_nothing_else(around):
    """The serving machine is not compared with today's plan, which may have another TTL or image."""
    bring_up(around, wait=True)
    serving, _ = copy_machine(around)
    bring_up(around, wait=True, settings={"ami": "ami-of-tomorrow", "subnet": "subnet-elsewhere"})
    assert ids(around) == [serving.id]
    assert len(around.world.creations) == 3


def test_an_unresponsive_recorded_machine_is_not_replaced_by_the_other(around):
    bring_up(around, wait=True)
    serving, _ = copy_machine(around)
    around.probe = Probe(outcome="refused")
    with pytest.raises(NotHealthyError):
        bring_up(around, wait=True, on_failure=lambda _error: "keep")
    assert ids(around) == [serving.id]


def test_an_unresponsive_recorded_machine_is_kept_over_one_in_a_better_location(around, tmp_path):
    """The plan would try the other one's zone first: there was no capacity in it when this one was launched."""
    twin = FakeComputer(home=tmp_path / "twin")
    bring_up(twin)
    (in_zone_a,) = twin.world.running()
    around.world.on_call = no_capacity_in("us-east-1a")
    bring_up(around, wait=True)
    around.world.on_call = None
    around.clock.sleep(3600)
    (serving,) = around.world.running()
    there = {"attributes": {**in_zone_a.attributes, "id": "instance-0"}, "tags": {**in_zone_a.tags, **same_id(serving)}}
    around.world.things["instance-0"] = replaced(serving, **there)
    around.world.properties["instance-0"] = {}
    around.probe = Probe(outcome="refused")
    with pytest.raises(NotHealthyError):
        bring_up(around, wait=True, on_failure=lambda _error: "keep")
    assert ids(around) == [serving.id]


def no_capacity_in(zone):
    def refuse(name, properties):
        if name == "create instance" and properties["request"]["Placement"]["AvailabilityZone"] == zone:
            raise NoCapacityError("none")

    return refuse


def same_id(found):
    return {TAG_ID: found.tags[TAG_ID]}


def test_if_the_recorded_machine_is_missing_another_is_adopted(around):
    bring_up(around, wait=True)
    serving, copied = copy_machine(around)
    _, third = copy_third(around)
    around.world.things[serving.id] = replaced(serving, state="terminated", alive=False)
    outcome = bring_up(around, wait=True)
    assert ids(around) == [outcome.deployment.machine.attributes["id"]]
    assert ids(around)[0] in {copied.id, third.id}
    assert len(around.world.creations) == 3


def copy_third(around):
    machine = around.world.running()[0]
    third = replaced(machine, attributes={**machine.attributes, "id": "instance-7"})
    around.world.things[third.id] = third
    around.world.properties[third.id] = around.world.properties[machine.id]
    return machine, third


def test_without_a_record_no_machine_is_terminated(around):
    bring_up(around)
    serving, copied = copy_machine(around)
    around.store.remove("demo")
    around.clock.seconds += FRESH.total_seconds()
    with pytest.raises(ConflictError) as caught:
        bring_up(around)
    assert caught.value.code == "name_taken"
    assert caught.value.message.startswith(f"{copied.id} and {serving.id} run under 'demo', and no record shows which")
    assert len(ids(around)) == 2


def test_a_second_machine_of_another_owner_is_kept(around):
    """Two computers may have resumed one deployment, each with its own machine on record."""
    bring_up(around, wait=True)
    serving, copied = copy_machine(around)
    around.world.things[copied.id] = replaced(copied, tags={**copied.tags, TAG_OWNER: "bob@desk"})
    with pytest.raises(ConflictError) as caught:
        bring_up(around, wait=True)
    assert caught.value.code == "name_taken"
    assert "bob@desk created it" in caught.value.message
    assert serving.id in caught.value.message
    assert "'tgi-deploy down demo' removes both" in caught.value.hint
    assert len(ids(around)) == 2


def test_a_machine_that_cannot_be_terminated_is_named(around):
    bring_up(around, wait=True)
    _, copied = copy_machine(around)
    around.world.slow_to_end = 10**9
    with pytest.raises(LeftBehindError, match=copied.id):
        bring_up(around, wait=True)


def test_an_interrupted_removal_names_what_runs(around):
    bring_up(around, wait=True)
    serving, _ = copy_machine(around)

    def refuse(name, _properties):
        if name == "delete instance":
            raise ThrottledError("too fast")

    around.world.on_call = refuse
    with pytest.raises(ThrottledError) as caught:
        bring_up(around, wait=True)
    assert f"the machine {serving.id} is running and costs $1.861 an hour" in caught.value.hint
    assert len(ids(around)) == 2


def test_status_shows_both_machines_and_their_total_price(around):
    bring_up(around, wait=True)
    serving, copied = copy_machine(around)
    for found in (status(around.context(), "demo"), *statuses(around.context())):
        assert found.machine.state == "running"
        (drift,) = found.drift
        assert (drift.code, drift.data["key"]) == ("second_machine", "instance@1.1")
        assert copied.id in drift.message
        assert "costs $1.861 an hour" in drift.message
        assert "'tgi-deploy down demo' removes both" in drift.message
        text = click.unstyle(status_text(found))
        assert f"resource  instance {serving.id} running" in text
        assert f"resource  instance {copied.id} running" in text
        assert f"cost      ${TWICE} an hour" in text


def test_status_without_a_record_shows_both(around):
    bring_up(around)
    copy_machine(around)
    around.store.remove("demo")
    found = status(around.context(), "demo")
    assert [item.code for item in found.drift].count("second_machine") == 1
    assert f"cost      ${TWICE} an hour" in click.unstyle(status_text(found))


def test_list_has_the_price_of_both(around):
    bring_up(around)
    copy_machine(around)
    assert list_deployments(around.context()).rows[0].usd_per_hour == TWICE


def test_logs_and_renewals_use_the_serving_machine(around):
    bring_up(around, settings={"lease_s": 3600})
    serving, _ = copy_machine(around)
    assert locate(around.context(), "demo")[1:] == ("us-east-1", serving.id)
    assert extend(around.context(), "demo", WantedEnds()).machine_id == serving.id


def test_down_removes_both(around):
    bring_up(around, wait=True)
    copy_machine(around)
    down(around.context(), ["demo"], lambda _removals: True)
    assert around.world.left() == []
