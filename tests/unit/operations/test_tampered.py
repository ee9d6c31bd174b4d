"""Manual changes: `down` removes everything of ours or reports leftovers, and removes nothing foreign."""

from __future__ import annotations

import json

import pytest
from fakes.computer import FakeComputer, request

from tgi_deploy.errors import DeployError, InputError, LeftBehindError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.down_all import down_all
from tgi_deploy.operations.watching.status import status
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import FOREIGN_RULES, Found


@pytest.fixture
def around(tmp_path):
    around = FakeComputer(home=tmp_path)
    up(around.context(), request())
    return around


def the(around, kind):
    (found,) = around.world.there(kind)
    return found


def put(around, found, **changes):
    around.world.things[found.id] = replaced(found, **changes)


def foreign(around, kind, thing_id, *, uses=""):
    """A thing without our tags."""
    made = Found(
        key=kind,
        kind=kind,
        place="us-east-1",
        attributes={"id": thing_id, "name": thing_id, "version": "1"},
        state="running" if kind == "instance" else "available",
    )
    around.world.things[thing_id] = made
    around.world.properties[thing_id] = {"request": {"Groups": [uses]}}
    return made


def add_rule(around):
    group = the(around, "security-group")
    put(around, group, attributes={**group.attributes, FOREIGN_RULES: "0.0.0.0/0 to tcp 22"})


def end_machine(around):
    put(around, the(around, "instance"), state="terminated", alive=False)


def forget_machine(around):
    del around.world.things[the(around, "instance").id]


def stop_machine(around):
    put(around, the(around, "instance"), state="stopped", alive=False)


def detach_volume(around):
    machine = the(around, "instance")
    volume = replaced(machine, key="volume:v", kind="volume", attributes={"id": "vol-ours"}, state="available")
    around.world.things["vol-ours"] = replaced(volume, attached=True)


def attach_volume(around):
    foreign(around, "volume", "vol-foreign")


def launch_from_template(around):
    foreign(around, "instance", "i-foreign", uses="sg-of-somebody")


def untag(kind):
    def take_tags_away(around):
        put(around, the(around, kind), tags={})

    return take_tags_away


def delete_group_and_template(around):
    end_machine(around)
    for kind in ("security-group", "launch-template"):
        del around.world.things[the(around, kind).id]


def shut_down_strangely(around):
    put(around, the(around, "instance"), state="hibernating", alive=False)


HARMLESS = {
    "a rule added": add_rule,
    "machine terminated": end_machine,
    "machine forgotten by the cloud": forget_machine,
    "machine stopped": stop_machine,
    "volume detached": detach_volume,
    "foreign volume attached": attach_volume,
    "foreign machine from our template": launch_from_template,
    "group untagged": untag("security-group"),
    "template untagged": untag("launch-template"),
    "machine untagged": untag("instance"),
    "everything gone": delete_group_and_template,
    "unknown state": shut_down_strangely,
}


def remove_one(around):
    return down(around.context(), ["demo"], lambda _removals: True)


def remove_all(around):
    return down_all(around.context(), lambda _removals: True)


@pytest.mark.parametrize("remove", [remove_one, remove_all])
@pytest.mark.parametrize("tamper", HARMLESS.values(), ids=HARMLESS.keys())
def test_our_resources_are_removed_and_foreign_ones_kept(around, tamper, remove):
    tamper(around)
    outcome = remove(around)
    assert outcome.removed == ("demo",)
    assert all("foreign" in found.id for found in around.world.left())
    assert {found.id for found in around.world.left()} == {i for i in around.world.things if "foreign" in i}
    assert around.store.load("demo") is None
    assert outcome.receipts[0].left == ()


@pytest.mark.parametrize("remove", [remove_one, remove_all])
def test_a_group_used_by_a_foreign_machine_is_kept(around, remove):
    group = the(around, "security-group")
    foreign(around, "instance", "i-foreign", uses=group.id)
    with pytest.raises(LeftBehindError) as caught:
        remove(around)
    (left,) = caught.value.data["not_removed"]
    assert (left["kind"], left["id"]) == ("security-group", group.id)
    assert left["command"] == f"aws ec2 delete-security-group --group-id {group.id} --region us-east-1"
    assert around.world.things["i-foreign"].state == "running"
    assert around.store.load("demo") is not None
    del around.world.things["i-foreign"]
    assert remove(around).removed == ("demo",)
    assert around.world.left() == []


@pytest.mark.parametrize("remove", [remove_one, remove_all])
def test_a_machine_that_never_terminates_is_reported_with_its_id(around, remove):
    machine = the(around, "instance")
    around.world.slow_to_end = 10**6
    with pytest.raises(LeftBehindError) as caught:
        remove(around)
    assert machine.id in {item["id"] for item in caught.value.data["not_removed"]}
    assert around.store.load("demo").status == "deleting"


def record_path(around):
    return around.home / "deployments" / "demo" / "deployment.json"


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda text: text[: len(text) // 2], "corrupt_record"),
        (lambda _text: "", "corrupt_record"),
        (lambda _text: "[]", "corrupt_record"),
        (lambda text: text.replace('"phase"', '"phrase"'), "corrupt_record"),
        (lambda text: json.dumps({**json.loads(text), "schema": 99}), "record_from_newer_version"),
        (lambda text: json.dumps({**json.loads(text), "schema": 0}), "corrupt_record"),
    ],
    ids=["half", "empty", "a list", "another key", "newer", "older than the first"],
)
def test_an_unreadable_record_is_reported_and_nothing_changes(around, spoil, code):
    path = record_path(around)
    path.write_text(spoil(path.read_text()))
    for remove, failure in ((remove_one, InputError), (remove_all, DeployError)):
        with pytest.raises(failure) as caught:
            remove(around)
        assert caught.value.code == code
        assert str(path) in caught.value.message
        assert caught.value.hint
    assert len(around.world.running()) == 1
    path.unlink()
    assert remove_one(around).removed == ("demo",)
    assert around.world.left() == []


def test_status_and_up_report_an_added_rule(around):
    add_rule(around)
    (drift,) = status(around.context(), "demo").drift
    assert drift.code == "security_group_drift"
    assert "allows 0.0.0.0/0 to tcp 22, by a rule added by hand" in drift.message
    up(around.context(), request())
    assert any(line.startswith("security_group_drift ") for line in around.recorder.lines)


def test_up_replaces_a_terminated_machine(around):
    end_machine(around)
    assert up(around.context(), request()).changed
    assert len(around.world.running()) == 1
