"""Many deployments: searched together, terminated by the hundred, each with its own proof."""

from __future__ import annotations

from collections import Counter

import pytest
from fakes.computer import request

from tgi_deploy.errors import ConflictError, DeployError, LeftBehindError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down_all import down_all
from tgi_deploy.operations.watching.status import statuses
from tgi_deploy.reconcile.errors import InUseError
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_NAME


def bring_up(around, *names):
    for name in names:
        up(around.context(), request(name=name))
    around.world.calls.clear()


def all_down(around):
    return down_all(around.context(), lambda _removals: True)


def counted(around):
    return Counter(name for name, _ in around.world.calls)


def names(number):
    return [f"demo-{n:03d}" for n in range(number)]


def end_at_look(world, number):
    """Terminate stopping machines by the `number`th search."""
    looks = []

    def end(name):
        looks.extend([name] if name == "find instance" else [])
        for found in world.there("instance") if len(looks) == number else ():
            world.things[found.id] = replaced(found, state="terminated")

    return end


def test_all_are_removed_with_a_receipt_each(around):
    bring_up(around, *names(3))
    outcome = all_down(around)
    assert around.world.left() == []
    assert around.store.names() == ()
    assert outcome.removed == tuple(names(3))
    assert [receipt.name for receipt in outcome.receipts] == names(3)
    for receipt in outcome.receipts:
        kinds = sorted(line.kind for line in receipt.lines)
        assert kinds == ["instance", "launch-template", "security-group"]
        assert all(line.removed_at is not None and line.exact for line in receipt.lines)
        assert receipt.usd is not None


def test_the_number_of_searches_does_not_grow_with_deployments(around):
    bring_up(around, *names(2))
    all_down(around)
    few = counted(around)
    bring_up(around, *names(12))
    all_down(around)
    many = counted(around)
    for kind in ("instance", "security-group", "launch-template"):
        assert many[f"find {kind}"] == few[f"find {kind}"]
        assert many[f"read {kind}"] == 0
    assert many["delete_many instance"] == 1
    assert many["delete instance"] == 0


def test_slow_machines_are_polled_together(around):
    bring_up(around, *names(4))
    around.world.slow_to_end = 9
    around.world.after_call = end_at_look(around.world, 4)
    all_down(around)
    assert around.world.left() == []
    assert counted(around)["delete security-group"] == 4, "a group is not asked for while its machine is there"


def test_deployments_known_only_by_tags_are_removed(around):
    bring_up(around, *names(3))
    around.store.remove("demo-001")
    assert len(all_down(around).receipts) == 3
    assert around.world.left() == []


def test_unusual_deployments_are_removed_one_by_one(around):
    bring_up(around, *names(3))
    record = around.store.load("demo-001")
    for item in record.resources:
        found = around.world.things[item.attributes["id"]]
        if found.kind == "launch-template":
            around.world.things[found.id] = replaced(found, tags={})
    outcome = all_down(around)
    assert around.world.left() == []
    assert len(outcome.receipts) == 3


def test_a_machine_that_is_not_visible_yet_is_terminated_anyway(around):
    bring_up(around, *names(3))
    around.world.hidden.add(around.store.load("demo-001").machine.attributes["id"])
    outcome = all_down(around)
    assert around.world.left() == []
    assert {len(receipt.machines) for receipt in outcome.receipts} == {1}


def test_a_resource_that_cannot_be_removed_is_named_and_the_others_are_removed(around):
    bring_up(around, *names(3))
    stuck = around.store.load("demo-001").record("security-group").attributes["id"]

    def hold(name, properties):
        if name == "delete security-group" and properties["id"] == stuck:
            raise InUseError("an interface of somebody's holds it")

    around.world.on_call = hold
    with pytest.raises(LeftBehindError) as caught:
        all_down(around)
    assert [item["id"] for item in caught.value.data["not_removed"]] == [stuck]
    assert "delete-security-group" in caught.value.data["not_removed"][0]["command"]
    assert around.store.names() == ("demo-001",)
    assert [found.id for found in around.world.left()] == [stuck]


def test_progress_is_reported_once_per_removed_deployment(around):
    bring_up(around, *names(4))
    around.world.slow_to_end = 9
    around.world.after_call = end_at_look(around.world, 4)
    all_down(around)
    assert [line for line in around.recorder.lines if line.startswith("removed")] == ["removed 4 of 4"]


def test_many_deletions_may_take_longer_than_one(around):
    bring_up(around, *names(6))
    deadline_s = around.context().pace.deletion.deadline_s

    def take_long(name, _properties):
        if name.startswith("delete"):
            around.clock.seconds += deadline_s / 2

    around.world.on_call = take_long
    assert len(all_down(around).receipts) == 6
    assert around.world.left() == []


def test_the_wait_without_progress_is_as_long_as_for_one_removal(around):
    bring_up(around, *names(2))

    def hold(name, _properties):
        if name == "delete security-group":
            raise InUseError("an interface of somebody's holds it")

    around.world.on_call = hold
    started, deadline_s = around.clock.seconds, around.context().pace.deletion.deadline_s
    with pytest.raises(LeftBehindError):
        all_down(around)
    assert deadline_s <= around.clock.seconds - started < deadline_s + 60


def test_a_rejected_removal_does_not_block_the_others(around):
    bring_up(around, *names(3))
    protected = around.store.load("demo-002").machine.attributes["id"]

    def protect(name, properties):
        if name == "delete instance" and properties["id"] == protected:
            raise DeployError("protected", "termination protection is on")

    around.world.on_call = protect
    around.world.refuses_batches = True
    with pytest.raises(DeployError) as caught:
        all_down(around)
    assert caught.value.code == "protected"
    assert around.store.names() == ("demo-002",)


def test_a_locked_deployment_is_reported_and_the_others_are_removed(around):
    bring_up(around, *names(3))
    with around.store.lock("demo-001", command="tgi-deploy up demo-001"), pytest.raises(ConflictError) as caught:
        all_down(around)
    assert caught.value.code == "locked"
    assert around.store.names() == ("demo-001",)
    assert len(around.world.running()) == 1


def spoil(tmp_path, name):
    (tmp_path / "deployments" / name / "deployment.json").write_text("{")


def test_an_unreadable_record_is_reported_and_the_others_are_removed(around, tmp_path):
    bring_up(around, *names(3))
    spoil(tmp_path, "demo-001")
    shown = []
    with pytest.raises(DeployError) as caught:
        down_all(around.context(), lambda removals: shown.extend(removals) or True)
    assert [item.name for item in shown] == ["demo-000", "demo-002"]
    assert (caught.value.code, caught.value.exit_code) == ("corrupt_record", 1)
    assert caught.value.hint
    (machine,) = around.world.running()
    assert machine.tags[TAG_NAME] == "demo-001"
    assert machine.id in caught.value.message
    assert around.store.names() == ("demo-001",)


def test_every_failure_is_reported(around, tmp_path):
    bring_up(around, *names(4))
    spoil(tmp_path, "demo-000")
    spoil(tmp_path, "demo-001")
    with around.store.lock("demo-003", command="tgi-deploy up demo-003"), pytest.raises(DeployError) as caught:
        all_down(around)
    assert caught.value.exit_code == 1
    assert all(name in caught.value.message for name in ("'demo-000'", "'demo-001'", "'tgi-deploy up demo-003'"))
    assert around.store.names() == ("demo-000", "demo-001", "demo-003")


def test_leftovers_take_precedence_over_unreadable_records(around, tmp_path):
    bring_up(around, *names(2))
    spoil(tmp_path, "demo-000")
    stuck = around.store.load("demo-001").record("security-group").attributes["id"]

    def hold(name, properties):
        if name == "delete security-group" and properties["id"] == stuck:
            raise InUseError("an interface of somebody's holds it")

    around.world.on_call = hold
    with pytest.raises(LeftBehindError) as caught:
        all_down(around)
    assert [item["id"] for item in caught.value.data["not_removed"]] == [stuck]
    assert "'demo-000' was not removed" in caught.value.message


def test_status_reports_an_unreadable_record(around, tmp_path):
    bring_up(around, *names(3))
    spoil(tmp_path, "demo-001")
    found = statuses(around.context())
    assert [item.name for item in found] == names(3)
    assert [len(item.drift) for item in found] == [0, 1, 0]
    (reported,) = found[1].drift
    assert (reported.data["key"], reported.code) == ("record", "corrupt_record")
    assert "deployment.json can't be read" in reported.message
    assert "move it away" in reported.message
    assert found[1].machine.state == "running"


def test_a_killed_down_all_resumes_without_losing_anything(around):
    bring_up(around, *names(3))

    def kill(name, _properties):
        if name == "delete launch-template":
            raise KeyboardInterrupt

    around.world.on_call = kill
    with pytest.raises(KeyboardInterrupt):
        all_down(around)
    around.world.on_call = None
    assert {around.store.load(name).status for name in names(3)} == {"deleting"}
    outcome = all_down(around)
    assert around.world.left() == []
    assert all(len(receipt.lines) == 3 for receipt in outcome.receipts)


def test_nothing_is_done_without_confirmation(around):
    bring_up(around, *names(2))
    assert down_all(around.context(), lambda _removals: False).declined
    assert len(around.world.running()) == 2


def test_without_deployments_nothing_is_asked(around):
    outcome = down_all(around.context(), lambda _removals: pytest.fail("asked"))
    assert (outcome.removed, outcome.declined) == ((), False)


def test_status_of_all_searches_once(around):
    bring_up(around, *names(5))
    found = statuses(around.context())
    assert [item.name for item in found] == names(5)
    assert {item.machine.state for item in found} == {"running"}
    assert all(item.drift == () for item in found)
    assert max(counted(around).values()) == 1
    assert counted(around)["machine"] == 0


def test_status_finds_recorded_resources_without_tags(around):
    bring_up(around, *names(2))
    gone = around.store.load("demo-000").record("launch-template@1").attributes["id"]
    del around.world.things[gone]
    hidden = around.store.load("demo-001").record("security-group").attributes["id"]
    around.world.things[hidden] = replaced(around.world.things[hidden], tags={})
    first, second = statuses(around.context())
    assert [item.code for item in first.drift] == ["resource_missing"]
    assert hidden in {item.id for item in second.seen}
