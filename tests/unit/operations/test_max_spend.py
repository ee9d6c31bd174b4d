"""`--max-spend` is one limit for all machines of a name, from its first `up` until its `down`."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from fakes.cloud import KilledError
from fakes.computer import FakeComputer, on, plan, request

from tgi_deploy.cli.views.status import status_text
from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.results.watching import status_data
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.operations.watching.status import status
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import InUseError, NoCapacityError
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_EXPIRES, TAG_ID, TAG_KEY, TAG_NAME, TAG_OWNER, Found

HOUR_S = 3600


@pytest.fixture
def price(around):
    """Return the hourly price of the plan's machine, leaving nothing behind."""
    probe = FakeComputer(home=around.home / "price")
    return up(probe.context(), request()).deployment.usd_per_hour


def bring_up(around, dollars, **changes):
    settings = {"max_spend_usd": dollars, **changes.pop("settings", {})}
    return up(around.context(), request(settings=settings, **changes)).deployment


def take_down(around):
    return down(around.context(), ["demo"], lambda _removals: True)


def end_by_itself(around):
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)


def test_the_first_machine_gets_all_of_max_spend(around, price):
    assert bring_up(around, price * 2).ends.ttl_s == 2 * HOUR_S


def test_the_next_machine_gets_the_remaining_max_spend(around, price):
    bring_up(around, price * 2)
    around.clock.sleep(HOUR_S)
    end_by_itself(around)
    again = bring_up(around, price * 2)
    assert again.ends.ttl_s == HOUR_S
    assert again.ends.expires_at == around.clock.now().replace(hour=2)
    assert any("is already spent" in line for line in around.recorder.lines)


def test_four_machines_together_stay_within_max_spend(around, price):
    """Spot machines that are reclaimed one after the other."""
    for quarter in range(4):
        deployment = bring_up(around, price * 2)
        assert deployment.ends.ttl_s == 2 * HOUR_S - quarter * 1800
        around.clock.sleep(1800)
        end_by_itself(around)
    with pytest.raises(InputError) as caught:
        bring_up(around, price * 2)
    assert caught.value.code == "max_spend_reached"
    assert around.world.running() == []
    assert len([kind for kind, _, _ in around.world.creations if kind == "instance"]) == 4


def test_a_rejection_has_the_numbers_and_a_remedy(around, price):
    bring_up(around, price)
    around.clock.sleep(HOUR_S)
    end_by_itself(around)
    with pytest.raises(InputError) as caught:
        bring_up(around, price)
    message, hint = caught.value.message, caught.value.hint
    assert f"${price}" in message
    assert "1 machine" in message
    assert "tgi-deploy down demo" in hint
    more = Decimal(hint.partition("--max-spend ")[2].split()[0].rstrip(",;:"))
    assert bring_up(around, more).ends.ttl_s >= 300


def test_a_dry_run_is_rejected_the_same_way(around, price):
    bring_up(around, price)
    around.clock.sleep(HOUR_S)
    end_by_itself(around)
    with pytest.raises(InputError):
        up(around.context(), request(settings={"max_spend_usd": price}, dry_run=True))


def test_a_machine_that_terminated_itself_counts_at_most_until_its_limit(around, price):
    bring_up(around, price)
    around.clock.sleep(10 * HOUR_S)
    end_by_itself(around)
    assert bring_up(around, price * 3).ends.ttl_s == 2 * HOUR_S


def test_a_missing_machine_stops_counting(around, price):
    """It ended when the next one was launched, whatever its limit was."""
    bring_up(around, price * 10)
    around.clock.sleep(HOUR_S)
    end_by_itself(around)
    bring_up(around, price * 10)
    around.clock.sleep(HOUR_S)
    end_by_itself(around)
    assert bring_up(around, price * 10).ends.ttl_s == 8 * HOUR_S


def test_an_earlier_ttl_still_applies(around, price):
    settings = {"ttl_s": 600}
    assert bring_up(around, price, settings=settings).ends.ttl_s == 600


def test_resuming_a_machine_keeps_its_limit(around, price):
    """Its own cost is already part of its limit."""
    first = bring_up(around, price * 4)
    around.clock.sleep(HOUR_S)
    end_by_itself(around)
    second = bring_up(around, price * 4)
    around.clock.sleep(HOUR_S)
    third = bring_up(around, price * 4, wait=True)
    assert third.machine.attributes["id"] == second.machine.attributes["id"] != first.machine.attributes["id"]
    assert (third.ends.expires_at, third.ends.ttl_s) == (second.ends.expires_at, 3 * HOUR_S)
    assert len(around.world.running()) == 1


def test_an_aborted_launch_is_resumed(around, price):
    bring_up(around, price * 4)
    around.clock.sleep(HOUR_S)
    end_by_itself(around)

    def kill(name):
        if name == "create instance":
            raise KilledError

    around.world.after_call = kill
    with pytest.raises(KilledError):
        bring_up(around, price * 4)
    around.world.after_call = None
    around.clock.sleep(30)
    assert bring_up(around, price * 4).ends.ttl_s == 3 * HOUR_S
    assert len(around.world.running()) == 1


def test_a_new_max_spend_changes_the_limit_of_an_unresponsive_machine(around, price):
    fail(around, price * 100, on_failure="keep")
    before = around.store.load("demo")
    around.clock.sleep(HOUR_S)
    moved = bring_up(around, price * 200)
    assert moved.machine.attributes["id"] == before.machine.attributes["id"]
    assert moved.ends.spent_before_usd >= price
    assert moved.ends.ttl_s == int((price * 200 - moved.ends.spent_before_usd) / price * HOUR_S)
    assert len(around.world.running()) == 1


def test_a_failover_counts_the_machines_that_died(around, price):
    def look_slowly(name):
        if name == "find instance" and around.world.there("instance") == [] and around.world.things:
            around.clock.sleep(60)

    around.world.after_call = look_slowly
    around.world.deaths = ["Server.InsufficientInstanceCapacity"]
    deployment = bring_up(around, price, plan=plan(on("g6e.xlarge", region="eu-west-1")))
    (machine,) = around.world.running()
    cost = deployment.ends.spent_before_usd
    assert price / 60 <= cost < price / 10
    assert machine.tags[TAG_EXPIRES] == deployment.ends.expires_at.isoformat()
    assert deployment.ends.ttl_s == int((price - cost) / price * HOUR_S)


def fail(around, dollars, on_failure="remove", **changes):
    around.probe = Probe(outcome="refused")
    settings = {"max_spend_usd": dollars}
    with pytest.raises(DeployError) as caught:
        up(
            around.context(),
            request(wait=True, on_failure=lambda _error: on_failure, settings=settings, **changes),
        )
    around.probe = Probe(outcome="status", status=200)
    return caught.value


def test_a_failed_and_removed_machine_counts(around, price):
    fail(around, price * 100)
    (path,) = (around.home / "receipts").iterdir()
    cost = Decimal(json.loads(path.read_text())["cost"]["usd"])
    assert cost > 0
    left_s = bring_up(around, price * 100).ends.ttl_s
    assert left_s == int((price * 100 - cost) / price * HOUR_S) < 100 * HOUR_S


def test_successive_failures_stay_within_max_spend(around, price):
    """A loop around `up` that never succeeds ends."""
    for _ in range(50):
        error = fail(around, price)
        if error.code == "max_spend_reached":
            break
    else:
        pytest.fail("it would go on for ever")
    spent = sum(Decimal(json.loads(path.read_text())["cost"]["usd"]) for path in (around.home / "receipts").iterdir())
    assert spent <= price + Decimal("0.01")


def test_a_failure_before_the_launch_costs_nothing(around, price):
    def refuse(name, _properties):
        if name == "create instance":
            raise NoCapacityError("none")

    around.world.on_call = refuse
    with pytest.raises(DeployError):
        bring_up(around, price)
    around.world.on_call = None
    around.clock.sleep(HOUR_S)
    assert bring_up(around, price).ends.ttl_s == HOUR_S


def receipts_usd(around):
    paths = (around.home / "receipts").iterdir()
    return sum(Decimal(json.loads(path.read_text())["cost"]["usd"]) for path in paths)


def test_receipts_add_up_to_what_the_name_has_spent(around, price):
    """With one that failed and was removed, a failover, one that terminated itself, and the serving one."""
    fail(around, price * 100)
    around.world.deaths = ["Server.InsufficientInstanceCapacity"]
    bring_up(around, price * 100, plan=plan(on("g6e.xlarge", region="eu-west-1")))
    around.clock.sleep(HOUR_S)
    end_by_itself(around)
    around.clock.sleep(HOUR_S / 4)
    bring_up(around, price * 100)
    around.clock.sleep(HOUR_S / 2)
    spent = status(around.context(), "demo").spent
    take_down(around)
    assert spent.machines == 4
    assert spent.usd > price * Decimal("1.5")
    assert receipts_usd(around) == pytest.approx(spent.usd, abs=Decimal("0.01"))


def test_a_removed_attempt_counts_when_its_id_is_adopted_again(around, price):
    """One of its resources became visible later, and its tags give the next `up` the id."""
    fail(around, price * 100)
    spent = receipts_usd(around)
    (receipt,) = around.store.receipts("demo")
    tags = {TAG_NAME: "demo", TAG_ID: receipt["id"], TAG_KEY: "security-group", TAG_OWNER: "ann@laptop"}
    around.world.things["sg-late"] = Found(
        key="security-group", kind="security-group", place="us-east-1", attributes={"id": "sg-late"}, tags=tags
    )
    around.clock.sleep(HOUR_S)
    deployment = bring_up(around, price * 100)
    assert deployment.id == receipt["id"]
    assert deployment.ends.spent_before_usd == spent > 0
    take_down(around)
    assert len(around.store.receipts("demo")) == 2


def test_status_shows_what_the_name_has_spent(around, price):
    bring_up(around, price * 100, wait=True)
    around.clock.sleep(HOUR_S)
    found = status(around.context(), "demo")
    assert status_data(found).spent_usd == pytest.approx(price, abs=Decimal("0.01"))
    assert f"${price} an hour; $1.87 so far" in status_text(found)


def test_down_resets_the_spending(around, price):
    bring_up(around, price)
    around.clock.sleep(HOUR_S)
    take_down(around)
    assert bring_up(around, price).ends.ttl_s == HOUR_S


def test_down_resets_the_spending_of_failed_attempts(around, price):
    fail(around, price * 100)
    assert take_down(around).absent == ("demo",)
    assert bring_up(around, price).ends.ttl_s == HOUR_S


def test_down_of_an_unknown_name_writes_nothing(around):
    take_down(around)
    assert not (around.home / "receipts").exists()


def test_a_down_that_finishes_a_removal_by_up_resets_the_spending(around, price):
    def kill(name):
        if name == "delete instance":
            raise KilledError

    around.world.after_call = kill
    with pytest.raises(KilledError):
        fail(around, price * 100)
    around.world.after_call = None
    take_down(around)
    assert bring_up(around, price).ends.ttl_s == HOUR_S


def test_an_up_that_finishes_a_removal_by_up_counts_it(around, price):
    def kill(name):
        if name == "delete instance":
            raise KilledError

    around.world.after_call = kill
    with pytest.raises(KilledError):
        fail(around, price * 100)
    around.world.after_call = None
    around.probe = Probe(outcome="status", status=200)
    assert bring_up(around, price * 100).ends.ttl_s < 100 * HOUR_S


def test_a_failed_removal_counts_once(around, price):
    """Its receipt so far has the same machine as its record."""

    def refuse(name, _properties):
        if name == "delete security-group":
            raise InUseError("in use")

    around.world.on_call = refuse
    assert fail(around, price * 100).code == "left_behind"
    around.world.on_call = None
    deployment = around.store.load("demo")
    assert spent_by(around.context(), deployment).machines == 1


def test_of_two_machines_the_remaining_one_keeps_its_limit(around, price):
    bring_up(around, price * 4)
    around.clock.sleep(HOUR_S)
    end_by_itself(around)
    second = bring_up(around, price * 4)
    (machine,) = around.world.running()
    twin = {**machine.attributes, "id": "instance-99"}
    around.world.things["instance-99"] = replaced(machine, attributes=twin)
    around.world.properties["instance-99"] = around.world.properties[machine.id]
    around.clock.sleep(HOUR_S)
    around.probe = Probe(outcome="refused")
    with pytest.raises(DeployError):
        bring_up(around, price * 4, wait=True, on_failure=lambda _error: "keep")
    assert [found.id for found in around.world.running()] == [machine.id]
    assert around.store.load("demo").ends.ttl_s == second.ends.ttl_s


def test_spending_is_counted_per_name(around, price):
    fail(around, price * 100)
    assert bring_up(around, price, name="demo-two").ends.ttl_s == HOUR_S


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"deployment": "demo"}', '{"deployment": "demo", "given_up": true, "cost": 5}', "\xff"]
)
def test_an_unreadable_receipt_is_ignored(around, price, text):
    folder = around.home / "receipts"
    folder.mkdir()
    (folder / "demo-x.json").write_text(text)
    assert bring_up(around, price).ends.ttl_s == HOUR_S


def test_receipts_of_earlier_versions_are_ignored(around, price):
    bring_up(around, price)
    around.clock.sleep(HOUR_S)
    take_down(around)
    (path,) = (around.home / "receipts").iterdir()
    document = json.loads(path.read_text())
    del document["given_up"]
    path.write_text(json.dumps(document))
    assert bring_up(around, price).ends.ttl_s == HOUR_S


def test_without_max_spend_nothing_is_counted(around):
    deployment = up(around.context(), request()).deployment
    assert deployment.ends.ttl_s is None
    assert spent_by(around.context(), deployment).usd == 0
