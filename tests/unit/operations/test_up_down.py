from __future__ import annotations

from decimal import Decimal

import pytest
from fakes.cloud import FakeWorld, KilledError
from fakes.computer import FakeComputer, on, plan, request

from tgi_deploy.errors import ConflictError, DeployError, InputError, LeftBehindError, NotHealthyError
from tgi_deploy.operations.deploying.claim import FRESH
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.down_all import down_all
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import (
    BadRequestError,
    InUseError,
    LostReplyError,
    NoCapacityError,
    PermissionDeniedError,
    QuotaError,
    ThrottledError,
)
from tgi_deploy.values.base import replaced
from tgi_deploy.values.names import default_name
from tgi_deploy.values.plan import Cost, CostLine, Rejection
from tgi_deploy.values.resource import TAG_EXPIRES, TAG_ID, TAG_NAME, TAG_SPEC, TAG_VERSION


def bring_up(around, **changes):
    return up(around.context(), request(**changes))


def take_down(around, *names, context=None):
    return down(context or around.context(), names, lambda _removals: True)


def lose_record(around):
    """Lose the record, long enough ago that no run is still active."""
    around.store.remove("demo")
    around.clock.seconds += FRESH.total_seconds()


def failing(times, error, *, call="create instance", when=lambda _properties: True):
    left = [times]

    def fail(name, properties):
        if name == call and left[0] and when(properties):
            left[0] -= 1
            raise error

    return fail


def in_zone(zone):
    return lambda properties: properties["request"]["Placement"]["AvailabilityZone"] == zone


def test_a_custom_driver_needs_a_machine_image(around):
    wanted = plan(driver="grid")
    with pytest.raises(InputError) as refused:
        bring_up(around, wanted=wanted)
    assert (refused.value.code, "--ami" in refused.value.hint) == ("conflicting_options", True)
    assert bring_up(around, wanted=wanted, settings={"ami": "ami-0123456789abcdef0"}).changed


def test_up_creates_one_machine_and_records_it(around):
    outcome = bring_up(around)
    (machine,) = around.world.running()
    assert outcome.changed
    assert outcome.deployment.endpoint == "http://127.0.0.1:8080"
    assert around.store.load("demo") == outcome.deployment
    assert outcome.deployment.status == "running"
    assert outcome.deployment.machine.attributes["id"] == machine.id


def test_the_record_keeps_the_plan_without_rejections(around):
    """The record is written at every step, and a plan has hundreds of rejections that are never read from it."""
    refused = Rejection(
        instance_type="g5.xlarge",
        num_shard=1,
        quantize="none",
        code="memory",
        message="it does not fit",
        numbers={},
        codes=("memory",),
        region="us-east-1",
        market="on-demand",
        usd_per_hour=None,
    )
    deployment = up(around.context(), request(replaced(plan(), rejections=(refused,) * 800))).deployment
    assert deployment.plan.rejections == ()
    assert deployment.plan.chosen.instance_type == "g6e.xlarge"
    assert (around.home / "deployments" / "demo" / "deployment.json").stat().st_size < 16_384


def test_everything_is_tagged_in_the_creating_call(around):
    deployment = bring_up(around, settings={"ttl_s": 3600}).deployment
    made = around.world.left()
    assert len(made) == 3
    for found in made:
        assert found.tags[TAG_NAME] == "demo"
        assert found.tags[TAG_ID] == deployment.id
        assert found.tags[TAG_VERSION] == "0.1.0"
        assert found.tags[TAG_EXPIRES] == "2026-01-09T01:00:00+00:00"
        assert found.tags[TAG_SPEC]


def test_up_waits_for_the_engine_and_proves_it(around):
    outcome = bring_up(around, wait=True)
    assert outcome.deployment.status == "ready"
    assert outcome.proof.served.answer == "yes"


def test_up_twice_changes_nothing(around):
    first = bring_up(around, wait=True)
    calls = len(around.world.creations)
    second = bring_up(around, wait=True, confirm=lambda _proposal: pytest.fail("asked"))
    assert not second.changed
    assert second.deployment == first.deployment
    assert len(around.world.creations) == calls


def test_up_waits_for_an_unresponsive_engine(around):
    first = bring_up(around, wait=True)
    around.probe = Probe(outcome="refused")
    around.recorder.lines.clear()
    with pytest.raises(NotHealthyError):
        bring_up(around, wait=True, on_failure=lambda _error: "keep")
    assert any("stopped responding" in line for line in around.recorder.lines)
    assert [found.id for found in around.world.running()] == [first.deployment.machine.attributes["id"]]


def test_up_after_no_wait_waits(around):
    bring_up(around, wait=False)
    outcome = bring_up(around, wait=True)
    assert outcome.deployment.status == "ready"
    assert len(around.world.running()) == 1


def test_dry_run_shows_the_steps_and_does_nothing(around):
    outcome = bring_up(around, dry_run=True)
    assert [step.action for step in outcome.proposal.changes.steps] == ["create"] * 3
    assert around.world.left() == []
    assert around.store.names() == ()


def test_nothing_is_done_if_declined(around):
    outcome = bring_up(around, confirm=lambda _proposal: False)
    assert outcome.declined
    assert around.world.left() == []


def test_no_capacity_leads_to_the_next_zone(around):
    around.world.on_call = failing(
        9, NoCapacityError("none", cause="InsufficientInstanceCapacity"), when=in_zone("us-east-1a")
    )
    outcome = bring_up(around)
    assert around.world.running()[0].attributes["zone"] == "us-east-1b"
    assert outcome.deployment.machine.notes["pool"] == "us-east-1/us-east-1b/g6e.xlarge/on-demand"
    assert any("no_capacity us-east-1/us-east-1a" in line for line in around.recorder.lines)


def test_no_capacity_in_any_zone_leads_to_the_fallback(around):
    taken = failing(9, NoCapacityError("none"), when=lambda p: p["request"]["InstanceType"] == "g6e.xlarge")
    around.world.on_call = taken
    outcome = bring_up(around, plan=plan(on("g6.12xlarge")))
    (machine,) = around.world.running()
    assert machine.attributes["instance_type"] == "g6.12xlarge"
    assert outcome.deployment.plan.chosen.instance_type == "g6.12xlarge"
    assert len(around.world.there("launch-template")) == 1


def test_a_fallback_that_fails_its_checks_leaves_nothing(around):
    """How long --max-spend lasts is known only when its price is: too short a time for this one."""
    dearer = replaced(on("g6.12xlarge"), cost=Cost(lines=(CostLine(item="instance", usd_per_hour=Decimal(5)),)))
    around.world.on_call = failing(9, NoCapacityError("none"))
    with pytest.raises(InputError) as refused:
        up(around.context(), request(plan(dearer), settings={"max_spend_usd": Decimal("0.2")}))
    assert refused.value.code == "bad_option_value"
    assert "create instance" in {kind for kind, _ in around.world.calls}
    assert around.world.left() == []
    assert around.store.names() == ()


def test_a_fallback_in_another_region_leaves_nothing_in_the_first(around):
    around.world.on_call = failing(
        9, NoCapacityError("none"), when=lambda p: "us-east" in str(p["request"]["Placement"])
    )
    bring_up(around, plan=plan(on("g6e.xlarge", region="eu-west-1")))
    assert {found.place for found in around.world.left()} == {"eu-west-1"}
    assert around.store.load("demo").region == "eu-west-1"


def test_an_exceeded_quota_skips_the_family_and_its_zones(around):
    around.world.on_call = failing(1, QuotaError("quota", cause="VcpuLimitExceeded"))
    chosen, same, other = (on(name, quota=quota) for name, quota in (("g5.x", "L-G"), ("g6.x", "L-G"), ("p4.x", "L-P")))
    bring_up(around, plan=plan(same, other, chosen=chosen))
    tried = [
        properties["request"]["InstanceType"] for kind, properties, _ in around.world.creations if kind == "instance"
    ]
    assert tried == ["p4.x"]
    assert len([call for call in around.world.calls if call[0] == "create instance"]) == 2


def test_exceeded_quotas_everywhere_are_named(around):
    around.world.on_call = failing(9, QuotaError("quota", cause="VcpuLimitExceeded"))
    with pytest.raises(QuotaError) as caught:
        bring_up(around, plan=plan(chosen=on("g6e.xlarge", quota="L-DB2E81BA")))
    assert "L-DB2E81BA" in caught.value.hint
    assert around.world.left() == []


@pytest.mark.parametrize("error", [PermissionDeniedError("no", action="ec2:RunInstances"), BadRequestError("bad")])
def test_a_rejection_stops_at_once_and_removes_what_was_created(around, error):
    around.world.on_call = failing(9, error)
    with pytest.raises(type(error)):
        bring_up(around, plan=plan(on("g6.12xlarge")))
    assert len([call for call in around.world.calls if call[0] == "create instance"]) == 1
    assert around.world.left() == []
    assert around.store.names() == ()


def test_leftovers_of_a_rejected_launch_exit_6_with_ids(around):
    def refuse(name, _properties):
        if name == "create instance":
            raise PermissionDeniedError("no", action="ec2:RunInstances")
        if name == "delete security-group":
            raise InUseError("somebody's interface holds it")

    around.world.on_call = refuse
    with pytest.raises(LeftBehindError) as caught:
        bring_up(around)
    (group,) = around.world.left()
    assert [item["id"] for item in caught.value.data["not_removed"]] == [group.id]
    assert "permission_denied no" in around.recorder.lines


@pytest.mark.parametrize(
    ("call", "error", "reported"),
    [
        ("machine", ThrottledError("too fast"), "the machine instance-2 is running and costs $1.861 an hour"),
        ("machine", DeployError("state_unusable", "the disk is full"), "the machine instance-2 is running"),
        ("create instance", LostReplyError("lost"), "a machine may have been launched"),
    ],
)
def test_a_launch_that_fails_midway_reports_what_runs_and_costs(around, call, error, reported):
    around.world.on_call = failing(99, error, call=call)
    with pytest.raises(type(error)) as caught:
        bring_up(around)
    assert reported in caught.value.hint
    assert "'tgi-deploy down demo' removes it" in caught.value.hint
    assert caught.value.data["deployment"] == "demo"
    assert caught.value.data["still_billed"]["ends_with"] == "tgi-deploy down demo"


def test_a_launch_that_fails_before_the_machine_reports_none(around):
    around.world.on_call = failing(99, ThrottledError("too fast"), call="create launch-template")
    with pytest.raises(ThrottledError) as caught:
        bring_up(around)
    assert "still_billed" not in caught.value.data


def test_trying_every_pool_without_success_leaves_nothing(around):
    around.world.on_call = failing(99, NoCapacityError("none"))
    with pytest.raises(NoCapacityError, match="us-east-1b/g6e"):
        bring_up(around)
    assert around.world.left() == []
    assert around.store.names() == ()


def test_an_accepted_launch_that_loses_capacity_is_retried_elsewhere(around):
    around.world.deaths = ["Server.InsufficientInstanceCapacity"]
    bring_up(around)
    (machine,) = around.world.running()
    assert machine.attributes["zone"] == "us-east-1b"


def test_a_lost_reply_creates_no_second_machine(around):
    lost = [True]

    def lose(name):
        if name == "create instance" and lost.pop() if lost else False:
            raise LostReplyError("gone")

    around.world.after_call = lose
    bring_up(around)
    assert len(around.world.running()) == 1


def test_down_removes_everything_and_the_record(around):
    bring_up(around)
    outcome = take_down(around, "demo")
    assert outcome.removed == ("demo",)
    assert around.world.left() == []
    assert around.store.names() == ()
    assert not (around.home / "deployments" / "demo").exists()


def test_down_deletes_in_reverse_order_of_creation(around):
    bring_up(around)
    around.world.calls.clear()
    take_down(around, "demo")
    deleted = [name for name, _ in around.world.calls if name.startswith("delete")]
    assert deleted == ["delete instance", "delete launch-template", "delete security-group"]


def test_down_waits_until_the_machine_is_terminated(around):
    bring_up(around)
    around.world.slow_to_end = 4
    take_down(around, "demo")
    assert around.world.left() == []
    assert around.clock.seconds > 0


def test_down_twice_finds_nothing(around):
    bring_up(around)
    take_down(around, "demo")
    outcome = take_down(around, "demo")
    assert outcome.removed == ()
    assert outcome.absent == ("demo",)
    assert around.store.names() == ()


def test_down_works_from_tags_without_the_record(around):
    bring_up(around)
    around.store.remove("demo")
    outcome = take_down(around, "demo")
    assert outcome.removed == ("demo",)
    assert around.world.left() == []
    assert around.store.names() == ()


def test_down_all_finds_deployments_by_tags(around):
    bring_up(around)
    bring_up(around, name="other")
    around.store.remove("other")
    outcome = down_all(around.context(), lambda _removals: True)
    assert outcome.removed == ("demo", "other")
    assert around.world.left() == []


def test_down_removes_a_leftover_volume(around):
    bring_up(around)
    around.world.leaves_volume = True
    take_down(around, "demo")
    assert around.world.left() == []


def test_down_removes_a_leftover_interface_that_blocks_the_group(around):
    group = bring_up(around).deployment.record("security-group").attributes["id"]
    (machine,) = around.world.running()
    interface = replaced(
        machine,
        key="network-interface:eni-1",
        kind="network-interface",
        is_machine=False,
        attributes={"id": "eni-1"},
        state="available",
        attached=True,
    )
    around.world.things["eni-1"] = interface

    def hold(name, properties):
        if name == "delete security-group" and properties["id"] == group and "eni-1" in around.world.things:
            raise InUseError("an interface holds the group")

    around.world.on_call = hold
    take_down(around, "demo")
    assert around.world.left() == []


def test_a_resource_that_cannot_be_removed_stays_recorded(around):
    bring_up(around)
    around.world.slow_to_end = 10**9
    with pytest.raises(LeftBehindError) as caught:
        take_down(around, "demo")
    (machine,) = around.world.there("instance")
    assert machine.id in caught.value.message
    assert caught.value.data["not_removed"][0]["id"] == machine.id
    assert around.store.load("demo").status == "deleting"
    around.world.slow_to_end = 1
    take_down(around, "demo")
    assert around.world.left() == []


def test_down_needs_confirmation(around):
    bring_up(around)
    outcome = down(around.context(), ["demo"], lambda _removals: False)
    assert outcome.declined
    assert len(around.world.running()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_up_finishes_an_unfinished_removal_and_starts_over(tmp_path, moment):
    finished = 0
    for point in range(30):
        around = FakeComputer(home=tmp_path / f"{moment}-{point}", world=FakeWorld(slow_to_end=2))
        first = bring_up(around).deployment
        strike_down(around, point, moment)
        around.world.on_call = around.world.after_call = None
        again = bring_up(around).deployment
        assert [found.id for found in around.world.running()] == [again.machine.attributes["id"]], point
        assert len(around.world.left()) == 3, point
        if again.id != first.id:
            finished += 1
            assert (around.home / "receipts" / f"demo-{first.id}.json").exists(), point
        take_down(around, "demo")
        assert around.world.left() == [], point
    assert finished >= 10


def test_a_dry_run_finishes_no_removal(around):
    bring_up(around)
    record = around.store.load("demo")
    around.store.save(replaced(record, status="deleting"), expected_serial=record.serial)
    with pytest.raises(ConflictError) as caught:
        bring_up(around, dry_run=True)
    assert caught.value.code == "being_removed"
    assert len(around.world.left()) == 3


def test_a_machine_known_only_by_tags_is_adopted(around):
    first = bring_up(around).deployment
    lose_record(around)
    second = bring_up(around)
    assert len(around.world.running()) == 1
    assert second.deployment.id == first.id
    assert [step.action for step in second.proposal.changes.steps] == ["adopt"] * 3


def test_a_machine_known_only_by_tags_is_never_replaced(around):
    bring_up(around)
    lose_record(around)
    with pytest.raises(ConflictError) as caught:
        up(around.context(), request(plan(chosen=on("p4d.24xlarge"))))
    assert caught.value.code == "name_taken"
    assert "copy that record's folder here (deployments/demo)" in caught.value.hint
    assert len(around.world.running()) == 1


def test_allow_cidr_changes_in_place(around):
    bring_up(around)
    lose_record(around)
    bring_up(around, settings={"allow_cidr": ("198.51.100.1/32",)})
    (group,) = around.world.there("security-group")
    assert around.world.properties[group.id]["allowed"] == ["198.51.100.1/32"]
    assert len(around.world.running()) == 1


def test_a_failed_engine_is_removed_on_request(around):
    around.engine.model_id = "someone/else"
    with pytest.raises(NotHealthyError) as caught:
        bring_up(around, wait=True)
    assert caught.value.code == "wrong_model"
    assert "removed" in caught.value.hint
    assert around.world.left() == []


def test_a_failed_engine_is_kept_on_request(around):
    around.probe = Probe(outcome="refused")
    with pytest.raises(NotHealthyError) as caught:
        bring_up(around, wait=True, on_failure=lambda _error: "keep")
    assert "tgi-deploy down demo" in caught.value.hint
    assert around.store.load("demo").status == "failed"
    assert len(around.world.running()) == 1


def test_a_held_lock_is_a_conflict(around):
    with around.store.lock("demo", command="tgi-deploy up demo"), pytest.raises(ConflictError) as caught:
        bring_up(around)
    assert caught.value.code == "locked"
    assert "tgi-deploy up demo" in caught.value.message


def test_several_held_locks_are_a_conflict(around):
    for name in ("demo", "other"):
        bring_up(around, name=name)
    locks = (around.store.lock("demo", command="up"), around.store.lock("other", command="up"))
    with locks[0], locks[1], pytest.raises(ConflictError) as caught:
        take_down(around, "demo", "other")
    assert "'demo'" in caught.value.message
    assert "'other'" in caught.value.message


@pytest.mark.parametrize("name", ["x", "Upper", "a;rm -rf", "-a", "a" * 41, "ends-"])
def test_bad_names_are_rejected_first(around, name):
    with pytest.raises(InputError) as caught:
        bring_up(around, name=name)
    assert caught.value.code == "bad_name"
    assert around.world.calls == []


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama3-13b", "llama3-13b"),
        ("meta-llama/Meta-Llama-3-8B", "meta-llama-3-8b"),
        ("org/7b_chat.v2", "m-7b-chat-v2"),
        ("x", "xx"),
    ],
)
def test_the_default_name_comes_from_the_model(model, name):
    assert default_name(model) == name


def test_resuming_keeps_the_ttl(around):
    settings = {"ttl_s": 3600}
    first = bring_up(around, settings=settings).deployment
    around.clock.sleep(600)
    second = bring_up(around, wait=True, settings=settings).deployment
    assert first.ends.expires_at == second.ends.expires_at


def end_by_itself(around):
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)


def test_a_replacement_machine_gets_a_new_ttl(around):
    """With the old one's end in its tags it would look as if it were past its time, and be collected."""
    settings = {"ttl_s": 3600}
    bring_up(around, settings=settings)
    around.clock.sleep(3700)
    end_by_itself(around)
    again = bring_up(around, settings=settings).deployment
    (machine,) = around.world.running()
    assert machine.tags[TAG_EXPIRES] == again.ends.expires_at.isoformat() == "2026-01-09T02:01:40+00:00"


def test_an_unsettled_launch_is_not_repeated_with_an_expired_ttl(around):
    def kill(name, _properties):
        if name == "create instance":
            raise KilledError

    settings = {"ttl_s": 3600}
    around.world.on_call = kill
    with pytest.raises(KilledError):
        bring_up(around, settings=settings)
    around.world.on_call = None
    around.clock.sleep(7200)
    bring_up(around, settings=settings)
    (machine,) = around.world.running()
    assert machine.tags[TAG_EXPIRES] == "2026-01-09T03:00:00+00:00"


def count_calls(home):
    around = FakeComputer(home=home)
    bring_up(around)
    take_down(around, "demo")
    return len(around.world.calls)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_after_a_kill_at_any_call_up_has_one_machine_and_down_leaves_none(tmp_path, moment):
    """Kill `up` at each call it makes, run it again, then `down`."""
    total, killed = count_calls(tmp_path / "count"), 0
    for point in range(total):
        around = FakeComputer(home=tmp_path / f"{moment}-{point}")
        if kill_at(around, point, moment):
            killed += 1
        around.world.on_call = around.world.after_call = None
        bring_up(around)
        assert len(around.world.running()) == 1, point
        assert len(around.world.left()) == 3, point
        take_down(around, "demo")
        assert around.world.left() == [], point
        assert around.store.names() == ()
    assert killed >= 15


def kill_at(around, point, moment):
    seen = [0]

    def strike(*_):
        seen[0] += 1
        if seen[0] > point:
            raise KilledError

    if moment == "before":
        around.world.on_call = strike
    else:
        around.world.after_call = strike
    try:
        bring_up(around)
    except KilledError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_down_is_finished_by_the_next(tmp_path, moment):
    killed = True
    for point in range(99):
        around = FakeComputer(home=tmp_path / f"{moment}-{point}", world=FakeWorld(slow_to_end=2))
        bring_up(around)
        killed = strike_down(around, point, moment)
        if not killed:
            assert point > 10
            break
        around.world.on_call = around.world.after_call = None
        take_down(around, "demo")
        assert around.world.left() == [], point
        assert around.store.names() == ()
    assert not killed


def strike_down(around, point, moment):
    seen = [0]

    def strike(*_):
        seen[0] += 1
        if seen[0] > point:
            raise KilledError

    around.world.on_call = strike if moment == "before" else None
    around.world.after_call = strike if moment == "after" else None
    try:
        take_down(around, "demo")
    except KilledError:
        return True
    return False


def test_every_error_of_up_is_a_deploy_error(around):
    around.world.zones = ()
    with pytest.raises(DeployError) as caught:
        bring_up(around)
    assert caught.value.code == "no_capacity"
