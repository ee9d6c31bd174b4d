"""`costs`: every dollar counts once, whoever started the machine and whether or not it is still there."""

from __future__ import annotations

import json
from decimal import Decimal

import click
import pytest
from builders.plans import candidate
from fakes.computer import FakeComputer, plan, request

from tgi_deploy.cli.views.costs import costs_text
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.deploying.pausing import SwitchRequest, stop
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.results.watching import costs_result
from tgi_deploy.operations.watching.costs import costs
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Cost
from tgi_deploy.values.resource import TAG_PRICE
from tgi_deploy.values.supply import ROOT_VOLUME, CostLine

HOUR_S = 3600


@pytest.fixture
def ann(tmp_path):
    made = FakeComputer(home=tmp_path / "ann")
    up(made.context(), request(name="chat"))
    return made


@pytest.fixture
def bob(ann, tmp_path):
    """Another person on another computer, in the same account."""
    made = FakeComputer(home=tmp_path / "bob", world=ann.world, clock=ann.clock, owner="bob@desk", ids=50)
    up(made.context(), request(name="search"))
    return made


def test_an_hour_of_a_deployment_costs_its_price(ann):
    price = ann.store.load("chat").usd_per_hour
    ann.clock.sleep(HOUR_S)
    found, _ = costs(ann.context())
    [row] = found.deployments
    assert (row.name, row.owner, row.location, row.machines, row.recorded) == (
        "chat", "ann@laptop", "us-east-1", 1, True,
    )  # fmt: skip
    assert row.accrued_usd == spent_by(ann.context(), ann.store.load("chat")).usd
    assert row.accrued_usd == pytest.approx(price, rel=Decimal("0.1"))
    assert row.usd_per_hour == price
    assert row.usd_per_month == (price * 730).quantize(Decimal("0.01"))


def test_a_stopped_machine_costs_its_disk_seen_from_any_computer(tmp_path):
    disk = CostLine(item=ROOT_VOLUME, usd_per_hour=Decimal("0.0108"))
    chosen = candidate(cost=Cost(lines=(CostLine(item="instance", usd_per_hour=Decimal("1.861")), disk)))
    ann = FakeComputer(home=tmp_path / "ann")
    up(ann.context(), request(plan(chosen=chosen), name="chat"))
    stop(ann.context(), SwitchRequest(name="chat"))
    bob = FakeComputer(home=tmp_path / "bob", world=ann.world, clock=ann.clock, owner="bob@desk", ids=50)
    ann.clock.sleep(100 * HOUR_S)
    for around in (ann, bob):
        [row] = costs(around.context())[0].deployments
        assert (row.machines, row.usd_per_hour) == (0, disk.usd_per_hour)
        assert row.accrued_usd == pytest.approx(100 * disk.usd_per_hour, rel=Decimal("0.1"))


def test_deployments_from_other_computers_are_counted_by_tags(ann, bob):
    ann.clock.sleep(HOUR_S)
    (mine, _), (theirs, _) = costs(ann.context()), costs(bob.context())
    assert [(row.name, row.recorded) for row in mine.deployments] == [("chat", True), ("search", False)]
    assert [row.usd_per_hour for row in mine.deployments] == [row.usd_per_hour for row in theirs.deployments]
    assert mine.total == theirs.total
    assert [(item.owner, item.deployments) for item in mine.owners] == [("ann@laptop", 1), ("bob@desk", 1)]
    assert sum(item.accrued_usd for item in mine.owners) == mine.total.accrued_usd


def test_a_removed_deployment_counts_once(ann):
    ann.clock.sleep(HOUR_S)
    before = costs(ann.context())[0].total.accrued_usd
    down(ann.context(), ["chat"], lambda _removals: True)
    up(ann.context(), request(name="chat"))
    ann.clock.sleep(HOUR_S)
    found, _ = costs(ann.context())
    assert found.removed.deployments == 1
    assert found.removed.accrued_usd == pytest.approx(before, rel=Decimal("0.1"))
    assert found.deployments[0].accrued_usd == spent_by(ann.context(), ann.store.load("chat")).usd
    assert found.total.accrued_usd == found.removed.accrued_usd + found.deployments[0].accrued_usd


def test_a_launch_that_up_removed_counts_with_its_deployment(ann):
    """Its receipt is there, and the name lives on."""
    machine = ann.store.load("chat").machine.attributes["id"]
    line = {"id": machine, "usd": "3.5", "kind": "instance"}
    document = {
        "deployment": "chat",
        "id": "x",
        "given_up": True,
        "at": ann.clock.now().isoformat(),
        "resources": [line],
    }
    ann.store.save_receipt("chat-x.json", json.dumps(document))
    found, _ = costs(ann.context())
    assert found.deployments[0].accrued_usd == Decimal("3.5")
    assert (found.removed.deployments, found.removed.accrued_usd) == (0, 0)


def test_a_terminated_machine_costs_nothing_now(ann):
    (machine,) = ann.world.running()
    ann.clock.sleep(HOUR_S)
    ann.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    [row] = costs(ann.context())[0].deployments
    assert (row.machines, row.usd_per_hour) == (0, 0)
    assert row.accrued_usd > 0


def test_an_unknown_price_is_not_zero(ann, bob):
    machine = next(
        found for found in ann.world.running() if found.id != ann.store.load("chat").machine.attributes["id"]
    )
    tags = {key: value for key, value in machine.tags.items() if key != TAG_PRICE}
    ann.world.things[machine.id] = replaced(machine, tags=tags)
    found, _ = costs(ann.context())
    theirs = found.deployments[1]
    assert (theirs.accrued_usd, theirs.usd_per_hour, theirs.usd_per_month) == (None, None, None)
    assert found.total.usd_per_hour == found.deployments[0].usd_per_hour
    assert "  -" in click.unstyle(costs_text(found)).splitlines()[2]


def test_an_unreachable_location_is_a_warning(ann):
    def no_cloud(_place):
        raise DeployError("cloud_unreachable", "no answer", hint="later")

    found, warnings = costs(ann.context(cloud=no_cloud))
    assert [problem.code for problem in warnings] == ["cloud_unreachable"]
    assert found.deployments[0].usd_per_hour == ann.store.load("chat").usd_per_hour


def test_without_deployments_the_cost_is_zero(tmp_path):
    found, _ = costs(FakeComputer(home=tmp_path).context())
    assert (found.deployments, found.owners) == ((), ())
    assert (found.total.accrued_usd, found.total.usd_per_hour) == (0, 0)
    assert click.unstyle(costs_text(found)).splitlines()[1].split() == ["total", "$0.00", "$0.00", "$0.00"]


def test_the_table_has_a_line_per_deployment_and_totals_by_owner(ann, bob):
    ann.clock.sleep(HOUR_S)
    found, _ = costs(ann.context())
    lines = click.unstyle(costs_text(found)).splitlines()
    assert [line.split()[0] for line in lines if line] == [
        "NAME", "chat", "search", "total", "OWNER", "ann@laptop", "bob@desk",
    ]  # fmt: skip
    assert costs_result(ann.context()).data.deployments[1].owner == "bob@desk"
