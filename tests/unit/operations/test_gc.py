from __future__ import annotations

from dataclasses import replace

import pytest
from builders.records import is_untouched, moved
from fakes.cloud import KINDS
from fakes.computer import request

from tgi_deploy.errors import DeployError, LeftBehindError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.reconcile.clocks import CLOCKS_APART
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_CREATED, TAG_EXPIRES, TAG_ID, TAG_KEY, TAG_NAME, Found

OLD_S = 3600
APART_S = CLOCKS_APART.total_seconds()


def bring_up(around, **changes):
    deployment = up(around.context(), request(**changes)).deployment
    around.clock.sleep(OLD_S)
    return deployment


def collect(around, *, context=None, confirm=lambda _groups: True, older_than_s=60, **changes):
    return gc(context or around.context(), GcRequest(older_than_s=older_than_s, confirm=confirm, **changes))


def elsewhere(around, tmp_path):
    """The same cloud seen from a computer without the records."""
    return replace(around, home=tmp_path / "elsewhere")


def plant(around, kind, *, name="lost", region="us-east-1", age_s=OLD_S, **changes):
    """Create a resource of ours without a record."""
    created_at = around.clock.now().timestamp() - age_s
    tags = {TAG_NAME: name, TAG_ID: f"id-{name}", TAG_KEY: kind}
    tags[TAG_CREATED] = type(around.clock.now()).fromtimestamp(created_at, around.clock.now().tzinfo).isoformat()
    values = {
        "key": kind,
        "kind": kind,
        "place": region,
        "attributes": {"id": f"{kind}-of-{name}", "name": name},
        "tags": tags | changes.pop("tags", {}),
        "state": "running" if kind == "instance" else "available",
        "attached": kind not in {"security-group", "launch-template", "instance"},
    }
    found = Found(**({"is_machine": kind == "instance"} | values | changes))
    around.world.things[found.id] = found
    around.world.properties[found.id] = {}
    return found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "instance"])
def test_orphans_of_each_kind_are_removed_with_a_receipt(around, kind):
    found = plant(around, kind)
    outcome = collect(around)
    assert around.world.left() == []
    (receipt,) = outcome.receipts
    assert [line.id for line in receipt.lines] == [found.id]
    assert is_untouched(receipt.document())


def test_orphans_are_removed_in_dependency_order(around):
    for kind in KINDS:
        if kind != "instance":
            plant(around, kind)
    collect(around)
    deleted = [name.removeprefix("delete ") for name, _ in around.world.calls if name.startswith("delete")]
    assert deleted == [kind for kind in reversed(KINDS) if kind != "instance"]


def test_resources_younger_than_a_minute_are_kept(around):
    """A tag is by the clock of the computer that wrote it: one that runs behind makes what is new look old."""
    plant(around, "security-group", age_s=60 + APART_S)
    outcome = collect(around)
    assert len(around.world.left()) == 1
    assert "may be younger than the limit" in outcome.kept[0].reason
    around.clock.sleep(1)
    collect(around)
    assert around.world.left() == []


def test_older_than_zero_disables_the_age_check(around):
    plant(around, "security-group", age_s=-APART_S)
    collect(around, older_than_s=0)
    assert around.world.left() == []


def test_one_young_resource_protects_its_whole_deployment(around):
    plant(around, "security-group", age_s=9000)
    plant(around, "launch-template", age_s=5)
    collect(around)
    assert len(around.world.left()) == 2


def test_older_than_sets_the_minimum_age(around):
    plant(around, "security-group", age_s=3600)
    assert collect(around, older_than_s=3600).orphans == ()


def test_resources_without_our_tags_are_ignored(around):
    foreign = plant(around, "volume", tags={TAG_ID: ""})
    around.world.things[foreign.id] = replaced(foreign, tags={"Name": "somebody's", "team": "ml"})
    assert collect(around).receipts == ()
    assert len(around.world.left()) == 1


@pytest.mark.parametrize("tags", [{TAG_NAME: "../../etc"}, {TAG_NAME: ""}, {TAG_ID: "a b;rm"}, {TAG_NAME: "X" * 300}])
def test_resources_with_foreign_tags_are_kept(around, tags):
    plant(around, "volume", tags=tags)
    outcome = collect(around, include_unrecorded=True)
    assert outcome.orphans == ()
    assert len(around.world.left()) == 1


def test_a_live_deployment_is_kept(around):
    bring_up(around)
    outcome = collect(around)
    assert (outcome.orphans, len(around.world.left())) == ((), 3)
    assert "recorded here" in outcome.kept[0].reason


def test_a_young_live_deployment_is_kept_because_it_is_recorded(around):
    bring_up(around)
    outcome = collect(around, older_than_s=3600)
    assert "recorded here" in outcome.kept[0].reason


@pytest.mark.parametrize("kinds", [{"instance"}, set(KINDS)], ids=["of the machine", "of everything"])
def test_a_recorded_machine_without_tags_is_kept(around, kinds):
    bring_up(around)
    for found in around.world.left():
        if found.kind in kinds:
            around.world.things[found.id] = replaced(found, tags={})
    outcome = collect(around)
    assert any("recorded here" in group.reason for group in outcome.kept)
    assert len(around.world.left()) == 3


def test_a_machine_recorded_on_another_computer_is_kept(around, tmp_path):
    bring_up(around)
    outcome = collect(elsewhere(around, tmp_path))
    assert (outcome.orphans, len(around.world.left())) == ((), 3)
    assert "another computer" in outcome.kept[0].reason


@pytest.mark.parametrize("state", ["pending", "running", "stopping", "stopped"])
def test_a_machine_in_any_live_state_protects_its_resources(around, state):
    plant(around, "instance", state=state, alive=state in {"pending", "running"})
    plant(around, "security-group")
    assert collect(around).orphans == ()


def test_include_unrecorded_removes_unrecorded_machines(around, tmp_path):
    bring_up(around)
    outcome = collect(elsewhere(around, tmp_path), include_unrecorded=True)
    assert around.world.left() == []
    (receipt,) = outcome.receipts
    assert receipt.seconds == OLD_S + 1  # seen to be gone at the second look
    assert receipt.usd is not None


def test_include_unrecorded_keeps_recorded_machines(around):
    bring_up(around)
    collect(around, include_unrecorded=True)
    assert len(around.world.running()) == 1


def test_expired_resources_are_removed_from_any_computer(around, tmp_path):
    bring_up(around, settings={"ttl_s": OLD_S})
    other = elsewhere(around, tmp_path)
    around.clock.sleep(APART_S)
    assert collect(other).orphans == (), "its end may be past by the clock here alone"
    around.clock.sleep(1)
    assert "its end was 2026-01-09T01:00:00" in collect(other).orphans[0].reason
    assert around.world.left() == []


def test_an_extended_limit_is_respected(around, tmp_path):
    bring_up(around, settings={"ttl_s": 600})
    machine = around.world.running()[0]
    later = {**machine.tags, TAG_EXPIRES: "2026-01-09T02:00:00+00:00"}
    around.world.things[machine.id] = replaced(machine, tags=later)
    assert collect(elsewhere(around, tmp_path)).orphans == ()


def test_leftovers_of_a_terminated_machine_are_removed_with_the_record(around):
    bring_up(around)
    machine = around.world.running()[0]
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    outcome = collect(around)
    assert [group.reason for group in outcome.orphans] == ["it has no machine"]
    assert around.world.left() == []
    assert around.store.names() == ()
    assert len(outcome.receipts[0].machines) == 1


def test_a_record_without_resources_is_deleted(around):
    bring_up(around)
    around.world.things.clear()
    outcome = collect(around)
    assert [group.reason for group in outcome.orphans] == ["only its record is left"]
    assert around.store.names() == ()


def test_an_unreadable_record_protects_its_deployment(around):
    bring_up(around)
    (around.home / "deployments" / "demo" / "deployment.json").write_text("{")
    outcome = collect(around, include_unrecorded=True)
    assert outcome.orphans == ()
    assert len(around.world.left()) == 3


def test_an_unfinished_removal_is_finished(around):
    bring_up(around)
    record = around.store.load("demo")
    around.store.save(replaced(record, status="deleting"), expected_serial=record.serial)
    around.clock.sleep(OLD_S)
    collect(around)
    assert around.world.left() == []


def test_another_deployment_of_the_same_name_is_not_touched(around):
    bring_up(around)
    plant(around, "security-group", name="demo")
    outcome = collect(around)
    assert [group.id for group in outcome.orphans] == ["id-demo"]
    assert len(around.world.left()) == 3
    assert around.store.load("demo") is not None


def test_a_locked_deployment_is_skipped(around):
    plant(around, "security-group", name="busy")
    with around.store.lock("busy", command="tgi-deploy up busy"):
        outcome = collect(around)
    assert [name for name, _ in outcome.skipped] == ["busy"]
    assert len(around.world.left()) == 1


def test_deployments_resumed_since_they_were_shown_are_skipped(around):
    plant(around, "security-group")

    def meanwhile(_groups):
        plant(around, "instance", age_s=0)
        return True

    outcome = collect(around, confirm=meanwhile)
    assert outcome.receipts == ()
    assert len(outcome.skipped) == 1
    assert len(around.world.left()) == 2


def test_nothing_is_done_without_confirmation(around):
    plant(around, "volume")
    outcome = collect(around, confirm=lambda _groups: False)
    assert outcome.declined
    assert len(around.world.left()) == 1


def test_without_orphans_nothing_is_asked(around):
    outcome = collect(around, confirm=lambda _groups: pytest.fail("asked"))
    assert outcome.orphans == ()


def test_regions_in_records_are_searched_by_default(around):
    bring_up(around)
    plant(around, "volume", region="eu-west-1")
    record = around.store.load("demo")
    around.store.save(moved(record, "eu-west-1"), expected_serial=record.serial)
    collect(around)
    assert {found.place for found in around.world.left()} == {"us-east-1"}


def broken_in(around, *regions):
    def cloud(region):
        if region in regions:
            raise DeployError("bad_credentials", f"{region} is switched off")
        return around.world.cloud(region)

    return around.context(regions=("us-east-1", "me-south-1"), cloud=cloud)


def test_an_unreachable_region_is_named(around):
    plant(around, "volume")
    outcome = collect(around, context=broken_in(around, "me-south-1"))
    assert outcome.unseen == (("me-south-1", "me-south-1 is switched off"),)
    assert outcome.regions == ("us-east-1",)
    assert around.world.left() == []


def test_a_deployment_with_an_unreachable_region_is_kept(around):
    """Its machine may be just there."""
    bring_up(around)
    machine = around.world.running()[0]
    del around.world.things[machine.id]
    record = around.store.load("demo")
    around.store.save(moved(record, "me-south-1"), expected_serial=record.serial)
    around.clock.sleep(3600)
    outcome = collect(around, context=broken_in(around, "me-south-1"))
    assert outcome.orphans == ()
    assert "me-south-1 could not be searched" in outcome.kept[0].reason
    assert len(around.world.left()) == 2


def test_without_any_reachable_region_it_fails(around):
    with pytest.raises(DeployError, match="us-east-1 is switched off"):
        collect(around, context=broken_in(around, "us-east-1", "me-south-1"))


def test_a_leftover_exits_6_with_its_command(around):
    plant(around, "instance", tags={TAG_EXPIRES: "2026-01-08T00:00:00+00:00"})
    plant(around, "volume", name="other")
    around.world.slow_to_end = 10**9
    with pytest.raises(LeftBehindError) as caught:
        collect(around)
    (item,) = caught.value.data["not_removed"]
    assert item["command"].startswith("aws ec2 terminate-instances --instance-ids instance-of-lost")
    assert [found.kind for found in around.world.left()] == ["instance"]
