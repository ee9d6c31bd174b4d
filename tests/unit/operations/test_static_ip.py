"""A static IP address belongs to the deployment: successive machines have it, and the URL stays."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import pytest
from builders.samples import quick
from builders.updates import NEW, OLD, THIRD, bring_up, fails_for, roll_back
from fakes.cloud import STATIC, KilledError
from fakes.computer import FakeComputer

from tgi_deploy.cli.views.deployment import proposal_text, up_text
from tgi_deploy.errors import ConflictError, DeployError
from tgi_deploy.operations.deploying.pausing import SwitchRequest, start, stop
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.costs import costs
from tgi_deploy.values.base import replaced
from tgi_deploy.values.plan import Cost
from tgi_deploy.values.supply import PUBLIC_ADDRESS, ROOT_VOLUME, CostLine

URL = f"http://{STATIC}:8080"
ASKED = {"static_ip": True}
PRICE, DISK = Decimal("0.005"), Decimal("0.02")
LINES = (CostLine(item=ROOT_VOLUME, usd_per_hour=DISK), CostLine(item=PUBLIC_ADDRESS, usd_per_hour=PRICE))
TURNING_POINTS = (
    ("create instance", True),
    ("update instance", False),
    ("update instance", True),
    ("update address", False),
    ("update address", True),
    ("delete instance", False),
)
PRICED = replaced(OLD, chosen=replaced(OLD.chosen, cost=Cost(lines=(*OLD.chosen.cost.lines, *LINES))))


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path / "state")


def up(around, wanted=OLD, **changes):
    return bring_up(around, wanted, **{"settings": ASKED} | changes)


def holder(around):
    """The machine that has the one address."""
    (address,) = around.world.there("address")
    return around.world.holder_of(address)


def serving(around):
    return around.store.load("demo").machine.attributes["id"]


def remove(around):
    return down(around.context(), ["demo"], lambda _removals: True)


def test_the_url_uses_the_static_address_after_the_proof(around):
    had = []
    real = around.engine.ask
    around.engine.ask = lambda probe: had.append(holder(around)) or real(probe)
    outcome = up(around)
    assert outcome.deployment.endpoint == URL
    assert set(had) == {None}
    assert holder(around).id == serving(around)
    assert not up(around).changed


def test_an_update_drains_the_old_machine_before_the_address_moves(around):
    up(around)
    old = serving(around)
    around.world.calls.clear()
    outcome = up(around, NEW)
    update = outcome.proposal.update
    assert (update.strategy, update.stable, update.downtime_s) == ("rolling", True, update.drain_s)
    assert (outcome.deployment.endpoint, holder(around).id) == (URL, serving(around))
    assert outcome.refused_s is not None
    (address,) = around.world.there("address")
    acted = [call for call, thing in around.world.calls if thing in {old, address.id} and "read" not in call]
    assert [call for call in acted if call != "machine"] == ["update instance", "update address", "delete instance"]
    assert "new requests are refused for up to" in proposal_text(outcome.proposal)
    assert "the address has changed" not in up_text(outcome)


def test_an_update_to_tls_changes_the_protocol_of_the_address(around):
    up(around)
    around.world.reported = f"[tgi-deploy] certificate sha256={'5a' * 32} public-key={'A' * 43}=\n"
    deployment = up(around, NEW, settings=ASKED | {"tls": True}).deployment
    assert (deployment.endpoint, deployment.rollout) == (URL.replace("http:", "https:"), None)
    assert deployment.machine.notes["certificate"] == "5a" * 32


def test_after_a_failed_revision_the_old_machine_keeps_the_address(around):
    up(around)
    old = serving(around)
    fails_for(around, "awq")
    with pytest.raises(DeployError):
        up(around, NEW)
    assert (serving(around), holder(around).id) == (old, old)
    assert around.store.load("demo").endpoint == URL


def test_heal_rollback_and_recreate_keep_the_address(around):
    up(around)
    assert up(around, NEW, strategy="recreate").deployment.endpoint == URL
    assert roll_back(around, settings=ASKED).deployment.endpoint == URL
    assert holder(around).id == serving(around)
    assert len(around.world.there("address")) == 1


def test_the_address_is_billed_separately_while_no_machine_runs(around):
    up(around, PRICED)
    outcome = stop(around.context(), SwitchRequest(name="demo"))
    assert outcome.usd_per_hour == DISK + PRICE
    around.clock.sleep(3600)
    start(around.context(), SwitchRequest(name="demo"))
    assert around.store.load("demo").endpoint == URL
    around.clock.sleep(3600)
    (receipt,) = remove(around).receipts
    (line,) = [line for line in receipt.lines if line.kind == "address"]
    assert (line.usd_per_hour, line.seconds) == (PRICE, pytest.approx(3600, abs=60))
    assert receipt.usd == sum(line.usd for line in receipt.lines if line.usd_per_hour is not None)
    assert around.world.left() == []


def test_the_address_is_billed_until_down_after_termination(around):
    up(around, PRICED)
    around.world.cloud("us-east-1").handler("instance").delete({"id": serving(around)})
    data, _ = costs(around.context())
    assert data.total.usd_per_hour == PRICE


def test_adding_or_dropping_static_ip_recreates(around):
    bring_up(around)
    added = up(around)
    assert (added.proposal.update.strategy, added.deployment.endpoint) == ("recreate", URL)
    dropped = bring_up(around)
    assert (dropped.proposal.update.strategy, around.world.there("address")) == ("recreate", [])
    assert dropped.deployment.endpoint != URL
    with pytest.raises(ConflictError, match="can't run two machines side by side"):
        up(around, strategy="rolling")


def test_a_promoted_machine_that_dies_before_the_move_is_replaced(around):
    up(around)

    def kill(name, _properties):
        if name == "update address":
            raise KilledError

    around.world.on_call = kill
    with pytest.raises(KilledError):
        up(around, NEW)
    around.world.live_on()
    around.world.cloud("us-east-1").handler("instance").delete({"id": serving(around)})
    assert up(around, NEW).deployment.endpoint == URL
    assert holder(around).id == serving(around)


@pytest.mark.parametrize(("point", "then"), quick(product(TURNING_POINTS, (NEW, OLD, THIRD, None)), 4), ids=str)
def test_an_update_killed_midway_leaves_the_address_with_the_serving_machine(around, point, then):
    call, after = point
    up(around)

    def kill(name, _properties=None):
        if name == call:
            raise KilledError

    setattr(around.world, "after_call" if after else "on_call", kill)
    with pytest.raises(KilledError):
        up(around, NEW)
    around.world.live_on()
    if then is None:
        remove(around)
        assert around.world.left() == []
        return
    assert up(around, then).deployment.endpoint == URL
    assert [machine.id for machine in around.world.running()] == [serving(around)] == [holder(around).id]
