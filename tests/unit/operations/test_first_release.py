"""A deployment of the first release: its record, its history and its running machine."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from fakes.cloud import BEGINNING
from fakes.computer import FakeComputer, request

from tgi_deploy.errors import ConflictError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.rollout import former, not_planned_again
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.launching.launch import spec_of
from tgi_deploy.operations.planning.option_texts import OptionTexts
from tgi_deploy.operations.planning.plan import judged, plan
from tgi_deploy.operations.planning.recorded import plan_of_revision
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.status import status
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.resource import Found
from tgi_deploy.wiring import open_catalog

CASES = Path(__file__).parents[2] / "cases" / "records" / "first-release-ec2"
NAME = "llama3-13b"
DOCUMENT = json.loads((CASES / "deployment.json").read_text())


@pytest.fixture
def around(tmp_path):
    """An hour after it was brought up, from the computer that did."""
    around = FakeComputer(home=tmp_path / "state", owner=DOCUMENT["owner"])
    shutil.copytree(CASES, around.home / "deployments" / NAME)
    around.clock.seconds = (datetime.fromisoformat(DOCUMENT["created"]) - BEGINNING).total_seconds() + 1800
    for resource in DOCUMENT["resources"]:
        found = running(resource)
        around.world.things[found.id] = found
    return around


def running(resource):
    """A resource as the world shows it, with the tags that the first release gave."""
    tags = {
        "deployment": NAME, "id": DOCUMENT["id"], "key": resource["key"], "spec": resource["spec"],
        "owner": DOCUMENT["owner"], "expires": DOCUMENT["expires"], "usd-per-hour": str(DOCUMENT["usd_per_hour"]),
        "idle-s": str(DOCUMENT["idle_s"]), "lease-s": str(DOCUMENT["lease_s"]),
        "lease-until": DOCUMENT["lease_until"],
    }  # fmt: skip
    is_machine = resource["kind"] == "instance"
    return Found(
        key=resource["key"],
        kind=resource["kind"],
        place=resource["place"],
        attributes=resource["attributes"],
        tags={f"tgi-deploy:{name}": value for name, value in tags.items()},
        state="running" if is_machine else "available",
        is_machine=is_machine,
    )


def up_again(
    around, *, confirm=lambda _proposal: pytest.fail("asked"), plan_revision=not_planned_again, wait=True, **options
):
    catalog = open_catalog()
    made = plan(OptionTexts(model=NAME, **options), catalog, {})
    asked = request(
        made, name=NAME, wait=wait, confirm=confirm, plan_revision=plan_revision,
        judge=lambda running: judged(made.request, running, catalog),
    )  # fmt: skip
    return up(around.context(), asked)


def test_a_first_release_record_has_the_same_status(around):
    found = status(around.context(), NAME)
    assert (found.drift, found.healthy, found.machine.state) == ((), True, "running")
    assert [end.reason for end in found.ends] == ["lease", "ttl", "idle"]


def test_it_is_listed_with_its_price_and_end(around):
    (row,) = list_deployments(around.context()).rows
    assert (row.name, row.phase, row.instance_type, str(row.usd_per_hour)) == (NAME, "ready", "g6e.xlarge", "1.8768")
    assert row.expires == DOCUMENT["lease_until"]


def test_its_lease_is_renewed(around):
    found = extend(around.context(), NAME, WantedEnds(lease_s=5400))
    assert around.store.load(NAME).ends.lease_until == found.lease.at
    assert around.world.running()[0].tags["tgi-deploy:lease-until"] == found.lease.at.isoformat()


@pytest.mark.parametrize("budget", ["5", "6"])
def test_the_same_request_and_a_bigger_budget_change_nothing(around, budget):
    """Although today's defaults would choose another machine."""
    outcome = up_again(around, budget=budget)
    assert (outcome.changed, around.world.creations) == (False, [])
    recorded = around.store.load(NAME)
    assert (recorded.schema, recorded.status, recorded.active) == (2, "ready", 1)
    assert recorded.plan.requirements.budget_usd_per_hour == int(budget)
    assert recorded.plan.chosen.instance_type == "g6e.xlarge"


def test_a_different_request_is_an_update_with_rollback(around):
    recorded = around.store.load(NAME)
    again = plan_of_revision(recorded.revision, open_catalog())
    assert again.request.document == recorded.plan.requirements
    assert spec_of(again, again.chosen).container.args == recorded.plan.engine.args
    asked = []
    outcome = up_again(
        around,
        confirm=asked.append,
        plan_revision=lambda _revision: (again, ()),
        context="4096",
        num_shard="4",
        quantize="none",
    )
    assert (outcome.declined, outcome.proposal.update.source) == (True, 1)
    assert "cannot_restore" not in {item.code for item in outcome.proposal.warnings}
    assert around.store.load(NAME).plan.chosen.num_shard == 1


def test_a_first_release_record_cannot_be_rolled_back(around):
    with pytest.raises(ConflictError) as caught:
        former(around.store.load(NAME))
    assert caught.value.code == "no_previous_revision"


def test_an_updated_first_release_deployment_can_be_rolled_back(around):
    def again(revision):
        return plan_of_revision(revision, open_catalog()), ()

    four = {"context": "4096", "num_shard": "4", "quantize": "none"}
    up_again(around, wait=False, confirm=lambda _proposal: True, plan_revision=again, **four)
    (machine,) = around.world.running()
    assert machine.attributes["instance_type"] == "g6.12xlarge"
    source = former(around.store.load(NAME))
    assert (source.number, source.origin) == (1, "schema-1")
    back = request(
        again(source)[0], name=NAME, wait=False, confirm=lambda _proposal: True, plan_revision=again, exact=True,
        origin="rollback",
    )  # fmt: skip
    up(around.context(), back)
    (machine,) = around.world.running()
    assert machine.attributes["instance_type"] == "g6e.xlarge"
    recorded = around.store.load(NAME)
    assert list(recorded.revision.spec.container.args) == DOCUMENT["plan"]["engine"]["args"]
    assert [item.origin for item in recorded.revisions] == ["schema-1", "up", "rollback"]
    (receipt,) = down(around.context(), [NAME], lambda _removals: True).receipts
    assert len(receipt.machines) == 3
    assert around.world.left() == []


def test_a_first_release_deployment_is_removed_with_a_full_receipt(around):
    outcome = down(around.context(), [NAME], lambda _removals: True)
    (receipt,) = outcome.receipts
    assert around.world.left() == []
    assert around.store.load(NAME) is None
    (line,) = receipt.machines
    assert line.created == datetime.fromisoformat("2026-11-22T22:12:03+00:00")
    assert line.seconds == pytest.approx(1800, abs=5)
    assert receipt.exact
