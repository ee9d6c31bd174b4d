"""`status` and `list` for missing machines, hanging engines, and deployments without a record."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import click
import pytest
from builders.records import ending
from fakes.computer import FakeComputer, request

from tgi_deploy.cli.views.deployment import up_text
from tgi_deploy.cli.views.status import none_text, rows_text
from tgi_deploy.cli.views.status import status_text as coloured
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.deploying.up import UpOutcome, up
from tgi_deploy.operations.removing.down import DownOutcome
from tgi_deploy.operations.results.changing import down_result
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.starting import Starting
from tgi_deploy.operations.watching.status import status, statuses
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.values.base import replaced


@pytest.fixture
def around(tmp_path):
    made = FakeComputer(home=tmp_path)
    up(made.context(), request())
    record = made.store.load("demo")
    made.store.save(replaced(record, status="ready"), expected_serial=record.serial)
    return made


def status_text(found):
    return click.unstyle(coloured(found))


def gone(around):
    """Terminate the machine, as by its own timer or by hand."""
    for machine in around.world.running():
        around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)


def test_a_serving_deployment_shows_model_and_machine(around):
    text = status_text(status(around.context(), "demo"))
    assert text.splitlines()[0] == "demo  ready"
    recorded = around.store.load("demo")
    assert recorded.plan.model.id
    assert f"  runs      {recorded.plan.model.id} on {recorded.plan.chosen.instance_type}" in text
    assert f"  cost      ${recorded.usd_per_hour:.4f}".rstrip("0") in text


@pytest.mark.parametrize(
    ("ttl_s", "end"), [(None, "until 'tgi-deploy down demo'"), (7200, "down demo'; ends automatically after 2h")]
)
def test_up_prints_the_limits(around, ttl_s, end):
    record = ending(around.store.load("demo"), ttl_s=ttl_s)
    text = up_text(UpOutcome(deployment=record, proposal=None, ready=None, changed=True))
    assert text.splitlines()[-1].endswith(end)


def test_a_missing_machine_is_not_ready_and_costs_nothing(around):
    gone(around)
    for found in (status(around.context(), "demo"), *statuses(around.context())):
        text = status_text(found)
        assert text.splitlines()[0] == "demo  no running machine; last known state: ready"
        assert "  cost      nothing now: no running machine" in text
        assert "  ends " not in text
        assert "'tgi-deploy diagnose demo' shows why it terminated" in text
        assert "'tgi-deploy down demo' removes the rest" in text


def test_a_hanging_engine_is_not_ready(around):
    around.probe = Probe(outcome="timeout")
    found = replace(
        status(around.context(), "demo"), starting=Starting(phase="ready", detail="KV cache holds 9 tokens")
    )
    text = status_text(found)
    assert text.splitlines()[0] == "demo  not responding; last known state: ready"
    assert "  start " not in text
    assert "'tgi-deploy diagnose demo' finds the cause" in text


def test_a_starting_deployment_shows_its_recorded_status(around):
    around.probe = Probe(outcome="refused")
    record = around.store.load("demo")
    around.store.save(replaced(record, status="running"), expected_serial=record.serial)
    assert status_text(status(around.context(), "demo")).splitlines()[0] == "demo  running"


def test_without_a_record_the_price_comes_from_tags(around):
    price = around.store.load("demo").usd_per_hour
    around.store.remove("demo")
    (row,) = list_deployments(around.context()).rows
    assert (row.usd_per_hour, isinstance(price, Decimal)) == (price, True)
    text = status_text(status(around.context(), "demo"))
    assert f"  cost      ${price:.4f}".rstrip("0") in text


def test_list_shows_no_price_for_a_missing_machine(around):
    gone(around)
    listing = list_deployments(around.context())
    assert listing.rows[0].usd_per_hour is not None
    cells = rows_text(listing.rows).splitlines()[1].split()
    assert cells[:2] == ["demo", "missing"]
    assert "$" not in " ".join(cells)


def test_list_keeps_the_price_if_the_cloud_is_unreachable(around):
    def no_cloud(_region):
        raise DeployError("no_credentials", "there are none")

    text = rows_text(list_deployments(around.context(cloud=no_cloud)).rows)
    assert "$" in text.splitlines()[1]
    assert "missing" not in text


@pytest.mark.parametrize(
    ("places", "asked", "expected"),
    [
        (["us-east-1"], True, "no deployments in us-east-1; --region searches elsewhere"),
        (["a", "b", "c", "d", "e"], True, "no deployments in 5 regions"),
        (["docker"], True, "no deployments in docker"),
        (["us-east-1"], False, "no recorded deployments"),
    ],
)
def test_no_deployments_names_the_searched_regions(places, asked, expected):
    assert none_text(places, asked=asked) == expected


@pytest.mark.parametrize(("name", "suggested"), [("demos", ["demo"]), ("quite-another", [])])
def test_a_removal_of_nothing_suggests_similar_names(around, name, suggested):
    notices = down_result(around.context(), DownOutcome(removals=(), removed=(), absent=(name,))).warnings
    assert [notice.code for notice in notices] == ["unknown_deployment"] * len(suggested)
    assert all(name in notice.message and notice.message.endswith(suggested[0]) for notice in notices)


def test_prices_of_running_deployments_have_their_date(around):
    record = around.store.load("demo")
    chosen = replaced(record.plan.chosen, price_date="2026-07-20")
    plan = replaced(record.plan, chosen=chosen)
    record = record.with_revision(replaced(record.current, plan=plan))
    around.store.save(record, expected_serial=record.serial)
    assert " an hour (listed 2026-07-20)" in status_text(status(around.context(), "demo"))
    (row,) = list_deployments(around.context()).rows
    assert rows_text([row]).splitlines()[-1] == "prices listed 2026-07-20"
