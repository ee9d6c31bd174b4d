"""A command that ends early for any reason reports what it changed, what runs, its cost, and how to remove it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.computer import request

from tgi_deploy.cli import outcome
from tgi_deploy.errors import ConflictError, DefectError, DeployError, LeftBehindError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.down_all import down_all
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.reconcile.errors import PermissionDeniedError, ThrottledError
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.resource import TAG_ID

PRICE = "$1.861 an hour"
DOWN = "'tgi-deploy down demo'"


def bring_up(around, **changes):
    return up(around.context(), request(**changes))


def take_down(around, *names):
    return down(around.context(), names or ("demo",), lambda _removals: True)


def break_at(around, call, error):
    def fail(name, _properties):
        if name == call:
            raise error

    around.world.on_call = fail


def machine_of(around):
    (machine,) = around.world.running()
    return machine


@pytest.mark.parametrize("call", ["machine", "update security-group", "create launch-template", "create instance"])
def test_an_unexpected_error_after_the_first_change_lists_what_exists(around, call):
    break_at(around, call, KeyError("Instances"))
    with pytest.raises(DefectError) as caught:
        bring_up(around)
    error = caught.value
    assert (error.code, error.exit_code) == ("internal_error", 1)
    assert error.message == "an unexpected error occurred: KeyError: 'Instances'"
    assert isinstance(error.__cause__, KeyError)
    assert DOWN in error.hint
    if call in {"machine", "create instance"}:
        assert PRICE in error.hint
        assert error.data["still_billed"]["ends_with"] == "tgi-deploy down demo"
    else:
        assert "security-group" in error.hint
        assert "are not billed by the hour" in error.hint


def test_an_unexpected_error_while_waiting_names_the_machine(around, monkeypatch):
    def defect(*_args, **_kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr("tgi_deploy.operations.deploying.up.wait", defect)
    with pytest.raises(DefectError) as caught:
        bring_up(around, wait=True)
    machine = machine_of(around)
    assert f"the machine {machine.id} is running and costs {PRICE}" in caught.value.hint
    assert caught.value.data["still_billed"]["machine"] == machine.id


def test_an_unexpected_error_before_the_first_change_is_unchanged(around):
    break_at(around, "find instance", KeyError("Instances"))
    with pytest.raises(KeyError):
        bring_up(around)


def test_credentials_that_expire_after_the_group_is_created_name_it(around):
    ended = DeployError("bad_credentials", "expired", hint="run 'aws sso login'")
    break_at(around, "create launch-template", ended)
    with pytest.raises(DeployError) as caught:
        bring_up(around)
    (group,) = around.world.left()
    assert caught.value.code == "bad_credentials"
    assert f"security-group {group.id}" in caught.value.hint
    assert DOWN in caught.value.hint
    assert caught.value.data["exists"] == [
        {"kind": "security-group", "id": group.id, "region": "us-east-1", "phase": "created"},
        {"kind": "launch-template", "id": "", "region": "us-east-1", "phase": "intent"},
    ]


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("delete instance", ["instance", "launch-template", "security-group"]),
        ("delete launch-template", ["launch-template", "security-group"]),
        ("delete security-group", ["security-group"]),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        ThrottledError("too fast"),
        PermissionDeniedError("no", action="x"),
        DeployError("cloud_unreachable", "no answer", hint="check the network"),
    ],
)
def test_an_interrupted_removal_lists_what_is_left(around, call, left, error):
    bring_up(around)
    break_at(around, call, error)
    with pytest.raises(LeftBehindError) as caught:
        take_down(around)
    assert caught.value.code == error.code
    assert error.message in caught.value.message
    named = {item["kind"]: item["id"] for item in caught.value.data["not_removed"]}
    assert sorted(named) == left
    assert all(found.id in caught.value.message for found in around.world.left())
    assert DOWN in caught.value.hint
    assert ("instance" in left) == (PRICE in caught.value.hint)


def test_an_unexpected_error_in_a_removal_lists_what_is_left(around):
    bring_up(around)
    machine = machine_of(around)
    break_at(around, "delete instance", KeyError("Return"))
    with pytest.raises(DefectError) as caught:
        take_down(around)
    assert machine.id in caught.value.hint
    assert PRICE in caught.value.hint
    assert DOWN in caught.value.hint
    assert machine.id in {item["id"] for item in caught.value.data["not_removed"]}


def test_a_failed_removal_does_not_block_the_next_one(around):
    for name in ("demo", "other"):
        bring_up(around, name=name)
    first = next(item for item in around.world.running() if item.tags["tgi-deploy:deployment"] == "demo")

    def fail(call, properties):
        if call == "delete instance" and properties["id"] == first.id:
            raise ThrottledError("too fast")

    around.world.on_call = fail
    with pytest.raises(LeftBehindError) as caught:
        take_down(around, "demo", "other")
    assert around.world.running() == [first]
    assert first.id in caught.value.message
    assert around.store.names() == ("demo",)


def test_a_conflict_in_a_removal_is_reported_unchanged(around):
    bring_up(around)
    with around.store.lock("demo", command="up"), pytest.raises(ConflictError):
        take_down(around)


def test_down_all_lists_what_is_left_when_the_cloud_is_unreachable(around):
    for name in ("demo", "other"):
        bring_up(around, name=name)
    looks = []

    def fail(call, _properties):
        looks.append(call)
        if call == "find instance" and looks.count("delete_many instance"):
            raise DeployError("cloud_unreachable", "no answer")

    around.world.on_call = fail
    with pytest.raises(LeftBehindError) as caught:
        down_all(around.context(), lambda _removals: True)
    assert caught.value.code == "cloud_unreachable"
    assert {item["kind"] for item in caught.value.data["not_removed"]} == {
        "instance",
        "launch-template",
        "security-group",
    }
    assert around.store.names() == ("demo", "other")


@pytest.mark.parametrize("recorded", [True, False])
def test_gc_lists_what_is_left_and_continues(around, recorded):
    for name in ("demo", "other"):
        bring_up(around, name=name, settings={"ttl_s": 60})
        if not recorded:
            around.store.remove(name)
    around.clock.seconds += 7200
    first = next(item for item in around.world.running() if item.tags["tgi-deploy:deployment"] == "demo")
    owner = first.tags[TAG_ID]

    def fail(call, properties):
        if call == "delete security-group" and around.world.things[properties["id"]].tags[TAG_ID] == owner:
            raise DeployError("cloud_unreachable", "no answer", hint="check the network")

    around.world.on_call = fail
    with pytest.raises(LeftBehindError) as caught:
        gc(around.context(), GcRequest(older_than_s=600, confirm=lambda _groups: True))
    (group,) = around.world.left()
    assert group.id in {item["id"] for item in caught.value.data["not_removed"]}
    assert group.id in caught.value.message


@pytest.mark.parametrize("recorded", [True, False])
def test_a_failed_renewal_reports_what_still_runs(around, recorded):
    bring_up(around, settings={"lease_s": 3600})
    machine = machine_of(around)
    if not recorded:
        around.store.remove("demo")
    break_at(around, "update instance", DeployError("cloud_unreachable", "no answer", hint="check the network"))
    with pytest.raises(DeployError) as caught:
        extend(around.context(), "demo", WantedEnds())
    assert caught.value.hint.startswith("check the network; ")
    assert f"the machine {machine.id} is running and costs {PRICE}" in caught.value.hint
    assert DOWN in caught.value.hint


def test_a_defect_is_one_line_with_its_file_and_existing_resources(around, capsys):
    break_at(around, "machine", KeyError("State"))
    with pytest.raises(DefectError) as caught:
        bring_up(around)
    result = outcome.crash(caught.value)
    (item,) = result.errors
    assert (result.exit_code, item.code) == (1, "internal_error")
    assert PRICE in item.hint
    assert "please report this defect with the file" in item.hint
    assert result.data["still_billed"]["machine"] == machine_of(around).id
    assert "KeyError: 'State'" in Path(result.data["crash_file"]).read_text(encoding="utf-8")
