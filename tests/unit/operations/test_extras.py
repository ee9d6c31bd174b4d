"""Stored secrets and the external limit in `up` and `down`, killed at any point; services that can't be searched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.cloud import KINDS, FakeWorld, KilledError
from fakes.computer import FakeComputer, on, plan, request

from tgi_deploy.errors import InputError
from tgi_deploy.operations.deploying.service import prove_known
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.status import status
from tgi_deploy.reconcile.errors import NoCapacityError

SIDE = ("parameter", "role", "instance-profile", "schedule")
SECRETS = {"hub_token_from_env": True, "api_key_from_env": "TGI_KEY"}
ENVIRON = {"HF_TOKEN": "hf_planted", "TGI_KEY": "sekret-key-1"}
EXTRAS = {**SECRETS, "external_ttl": True, "ttl_s": 3600}


@pytest.fixture
def world():
    return FakeWorld(kinds=(*SIDE, *KINDS))


@pytest.fixture
def around(tmp_path, world):
    return FakeComputer(home=tmp_path / "state", world=world)


def requested(**settings):
    return request(settings={**EXTRAS, **settings}, environ=ENVIRON)


def bring_up(around, request=None):
    return up(around.context(), request or requested())


def take_down(around, **context):
    return down(around.context(**context), ["demo"], lambda _removals: True)


def kinds_of(world):
    return sorted(found.kind for found in world.left())


def test_resources_are_created_in_order_and_removed_in_reverse(around, world):
    bring_up(around)
    made = [kind for kind, _, _ in world.creations]
    assert made == [
        *("security-group", "launch-template", "parameter", "parameter", "role", "instance-profile"),
        *("instance", "role", "schedule"),
    ]
    outcome = take_down(around)
    assert world.left() == []
    gone = [name.partition(" ")[2] for name, _ in world.calls if name.startswith("delete ")]
    assert gone.index("instance") < gone.index("schedule") < gone.index("instance-profile") < gone.index("role")
    (receipt,) = outcome.receipts
    assert {line.kind for line in receipt.lines} >= set(SIDE)


def test_the_machine_gets_references_but_no_secret(around, world):
    bring_up(around)
    (machine,) = world.running()
    asked = world.properties[machine.id]["request"]
    identity = machine.tags["tgi-deploy:id"]
    assert asked["IamInstanceProfile"] == {"Name": f"tgi-deploy-{identity}-us-east-1"}
    values = [properties["value"] for kind, properties, _ in world.creations if kind == "parameter"]
    assert values == ["env:HF_TOKEN", "env:TGI_KEY"]


def test_the_schedule_fires_after_the_machines_own_limit(around, world):
    outcome = bring_up(around)
    (machine,) = world.running()
    (schedule,) = world.there("schedule")
    asked = world.properties[schedule.id]
    assert asked["instance"] == machine.id
    assert outcome.deployment.ends.expires_at is not None
    assert asked["at"] == "2026-01-09T01:05:00"
    assert asked["role"].endswith("-end")


def changing(world):
    return [name for name, _ in world.calls if name.startswith(("create", "update"))]


def killed_at(around, world, point, *, after):
    """Kill the caller before or right after its `point`-th changing call."""

    def kill(*_about):
        if len(changing(world)) == point + 1:
            raise KilledError

    world.on_call, world.after_call = (None, kill) if after else (kill, None)
    with pytest.raises(KilledError):
        bring_up(around)
    world.on_call = world.after_call = None


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_after_a_kill_at_any_change_up_has_one_of_each_and_down_leaves_none(tmp_path, after):
    """With everything that a deployment can have. The number of points is checked, so that none is lost."""
    rehearsed = FakeWorld(kinds=(*SIDE, *KINDS))
    bring_up(FakeComputer(home=tmp_path / "rehearsal", world=rehearsed))
    points = len(changing(rehearsed))
    assert points >= 15
    whole = kinds_of(rehearsed)
    for point in range(points):
        world = FakeWorld(kinds=(*SIDE, *KINDS))
        around = FakeComputer(home=tmp_path / str(point), world=world)
        killed_at(around, world, point, after=after)
        bring_up(around)
        assert kinds_of(world) == whole, point
        take_down(around)
        assert world.left() == [], point


def test_down_finds_everything_without_the_record(around, world):
    bring_up(around)
    around.store.remove("demo")
    take_down(around)
    assert world.left() == []


def test_gc_removes_what_a_lost_run_left(around, world):
    bring_up(around)
    around.store.remove("demo")
    for found in [found for found in world.left() if found.kind not in SIDE]:
        del world.things[found.id]
    around.clock.sleep(7200)
    outcome = gc(around.context(), GcRequest(older_than_s=60, confirm=lambda _groups: True))
    assert [group.reason for group in outcome.orphans] != []
    assert world.left() == []


def test_a_plain_deployment_calls_other_services_only_to_verify_its_removal(around, world):
    bring_up(around, request())
    assert not [name for name, _ in world.calls if name.partition(" ")[2] in SIDE]
    status(around.context(), "demo")
    assert not [name for name, _ in world.calls if name.partition(" ")[2] in SIDE]
    take_down(around)
    asked = [name for name, _ in world.calls if name.partition(" ")[2] in SIDE]
    assert 4 <= len(asked) <= 12
    assert {name.partition(" ")[0] for name in asked} == {"find"}


def test_adding_an_api_key_is_an_update(around):
    bring_up(around, request())
    bring_up(around)
    assert [item.number for item in around.store.load("demo").revisions] == [1, 2]
    assert len(around.world.running()) == 1


def test_external_ttl_needs_a_limit(around, world):
    with pytest.raises(InputError) as caught:
        bring_up(around, requested(ttl_s=None))
    assert caught.value.code == "external_ttl_without_end"
    assert world.creations == []


def test_open_names_the_variable_with_the_key(around):
    bring_up(around)
    found = access(around.context(), "demo")
    assert '-H "Authorization: Bearer $TGI_KEY"' in found.curl
    assert "token=os.environ['TGI_KEY']" in found.python
    compile(found.python, "python", "exec")


def test_a_recorded_deployment_is_probed_with_its_key(around):
    bring_up(around)
    asked = []

    def client(url, variable):
        asked.append((url, variable))
        return around.engine

    proof = prove_known(around.context(keyed_engine_client=client), around.store.load("demo"), "fast")
    assert (proof.level, [variable for _, variable in asked]) == ("fast", ["TGI_KEY"])


def test_open_without_a_key_does_not_mention_one(around):
    bring_up(around, request())
    assert "Authorization" not in access(around.context(), "demo").curl


DENIED = {("us-east-1", "role"): "looking for roles failed: AccessDenied"}


def test_an_unsearched_kind_is_in_the_receipt_without_a_record(around):
    bring_up(around, request())
    around.store.remove("demo")
    (receipt,) = take_down(around, unsearched=DENIED).receipts
    document = json.loads(Path(receipt.path).read_text(encoding="utf-8"))
    assert document["unsearched"] == [{"region": "us-east-1", "kind": "role", "why": DENIED["us-east-1", "role"]}]


def test_an_unsearched_kind_that_was_never_recorded_is_not_reported(around):
    bring_up(around, request())
    (receipt,) = take_down(around, unsearched=DENIED).receipts
    assert receipt.unsearched == ()


def test_an_unsearched_kind_that_was_used_is_reported(around):
    bring_up(around)
    (receipt,) = take_down(around, unsearched=DENIED).receipts
    assert [item.kind for item in receipt.unsearched] == ["role"]


def test_gc_reports_what_it_could_not_search(around):
    outcome = gc(replace(around.context(), unsearched=DENIED), GcRequest(older_than_s=60, confirm=lambda _groups: True))
    assert ("us-east-1", DENIED["us-east-1", "role"]) in outcome.unseen


def test_a_failover_recreates_the_secrets_in_the_other_region(around, world):
    def refuse(name, properties):
        if name == "create instance" and "us-east-1" in str(properties["request"]["Placement"]):
            raise NoCapacityError("none", cause="InsufficientInstanceCapacity")

    world.on_call = refuse
    wanted = plan(on("g6.xlarge", region="eu-west-1"), regions=("us-east-1", "eu-west-1"))
    bring_up(around, request(wanted, settings=EXTRAS, environ=ENVIRON))
    assert {found.place for found in world.left()} == {"eu-west-1"}
    take_down(around)
    assert world.left() == []
