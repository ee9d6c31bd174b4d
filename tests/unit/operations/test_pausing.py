"""`stop`, `start`, `restart`: the same machine and revision, its disk kept and priced, resumed after any kill."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from builders.plans import candidate
from builders.samples import SPARSE
from fakes.cloud import FakeCloud, KilledError
from fakes.computer import FakeComputer, offer, on, plan, request

from tgi_deploy.cli.views.status import rows_text, status_text
from tgi_deploy.errors import ConflictError, DeployError, InputError, NotHealthyError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.pausing import SwitchRequest, restart, start, stop
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.operations.results.watching import status_data
from tgi_deploy.operations.watching.access import access
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.status import not_serving, status
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.ends import NO_LIMIT, TAG_LEASE
from tgi_deploy.reconcile.errors import NoCapacityError
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.plan import Cost
from tgi_deploy.values.resource import TAG_EXPIRES, MachineState
from tgi_deploy.values.supply import CostLine

HOUR_S = 3600
RUNS, DISK = Decimal("1.881"), Decimal("0.020")
BILL = Cost(
    lines=(
        CostLine(item="instance", usd_per_hour=Decimal("1.856")),
        CostLine(item="root volume, 95 GiB gp3", usd_per_hour=DISK),
        CostLine(item="public IPv4 address", usd_per_hour=Decimal("0.005")),
    )
)
PLAN = plan(chosen=candidate(cost=BILL))
ASKED = SwitchRequest(name="demo")


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path / "state")


def bring_up(around, wanted=PLAN, **changes):
    return up(around.context(), request(wanted, **{"wait": True} | changes))


def halt(around, **changes):
    return stop(around.context(), SwitchRequest(name="demo", **changes))


def begin_again(around, **changes):
    return start(around.context(), SwitchRequest(name="demo", **changes))


def take_down(around):
    (receipt,) = down(around.context(), ["demo"], lambda _removals: True).receipts
    assert around.world.left() == []
    return receipt


def later(around, hours):
    around.clock.seconds += hours * HOUR_S


def the_machine(around):
    (machine,) = around.world.there("instance")
    return machine


def spent(around):
    return spent_by(around.context(), around.store.load("demo"))


def cents(amount):
    return amount.quantize(Decimal("0.01"))


def test_a_stopped_machine_keeps_its_revision_and_has_no_endpoint(around):
    bring_up(around)
    before = the_machine(around)
    outcome = halt(around)
    recorded = around.store.load("demo")
    assert outcome.changed
    assert (recorded.status, recorded.endpoint, recorded.active) == ("stopped", None, 1)
    assert (recorded.machine.state, recorded.machine.attributes["id"]) == ("stopped", before.id)
    assert the_machine(around).state == "stopped"
    assert not halt(around).changed


def test_a_stopped_deployment_is_reached_only_after_start(around):
    bring_up(around)
    halt(around)
    with pytest.raises(NotHealthyError, match="its machine is stopped") as caught:
        access(around.context(), "demo")
    assert caught.value.code == "stopped"
    assert "'tgi-deploy start demo'" in caught.value.hint


def test_stop_waits_until_the_machine_is_stopped(around):
    around.world.slow_to_stop = 5
    bring_up(around)
    halt(around)
    assert the_machine(around).state == "stopped"


def test_a_start_finds_the_new_address_waits_and_proves(around):
    bring_up(around)
    halt(around)
    outcome = begin_again(around)
    recorded = around.store.load("demo")
    assert (recorded.status, recorded.endpoint) == ("ready", "http://127.0.0.2:8080")
    assert outcome.endpoint == recorded.endpoint
    assert outcome.proof.level == "full"
    assert (recorded.machine.state, recorded.active) == ("created", 1)
    assert not begin_again(around).changed


def test_the_cost_of_a_stopped_machine_is_shown(around):
    bring_up(around)
    later(around, 1)
    halt(around)
    (row,) = list_deployments(around.context()).rows
    assert (row.phase, row.machine, row.usd_per_hour) == ("stopped", "stopped", DISK)
    assert "$0.02" in rows_text([row])
    seen = status(around.context(), "demo")
    assert status_data(seen).drift == ()
    text = status_text(seen)
    assert "$0.02 an hour for its disk; $1.8" in text
    assert not_serving(seen).code == "stopped"
    assert "'tgi-deploy start demo' starts it again" in not_serving(seen).hint


def test_a_stopped_machine_is_priced_from_tags_alone(around):
    bring_up(around)
    halt(around)
    around.store.remove("demo")
    (row,) = list_deployments(around.context()).rows
    assert (row.recorded, row.machine, row.usd_per_hour) == (False, "stopped", DISK)


def test_the_receipt_has_a_line_per_run_and_matches_the_ledger(around):
    bring_up(around)
    later(around, 1)
    halt(around)
    later(around, 10)
    begin_again(around)
    later(around, 2)
    counted = spent(around)
    assert counted.machines == 1
    receipt = take_down(around)
    billed = [line for line in receipt.document()["resources"] if line["usd"] is not None]
    assert [(line["kind"], Decimal(line["usd_per_hour"])) for line in billed] == [
        ("instance", RUNS), ("disk", DISK), ("instance", RUNS)
    ]  # fmt: skip
    assert cents(receipt.usd) == cents(sum(Decimal(line["usd"]) for line in billed)) == cents(counted.usd)
    assert cents(receipt.usd) == cents(3 * RUNS + 10 * DISK)
    assert receipt.seconds == pytest.approx(3 * HOUR_S, abs=60)


def test_a_stopped_machine_is_removed_with_a_receipt_of_its_disk(around):
    bring_up(around)
    later(around, 1)
    halt(around)
    later(around, 100)
    assert cents(take_down(around).usd) == cents(RUNS + 100 * DISK)


def test_max_spend_counts_the_price_of_the_disk_while_stopped(around):
    bring_up(around, settings={"max_spend_usd": Decimal(4)})
    later(around, 1)
    halt(around)
    assert around.store.load("demo").ends.expires_at - around.clock.now() > timedelta(hours=100)
    later(around, 10)
    begin_again(around)
    left_h = (Decimal(4) - RUNS - 10 * DISK) / RUNS
    ends = around.store.load("demo").ends
    assert (ends.expires_at - around.clock.now()).total_seconds() == pytest.approx(float(left_h) * HOUR_S, abs=60)
    assert ends.max_spend_usd == 4
    assert the_machine(around).tags[TAG_EXPIRES].startswith(ends.expires_at.isoformat())


def test_a_machine_is_not_started_after_max_spend_is_reached(around):
    bring_up(around, settings={"max_spend_usd": Decimal("2.1")})
    later(around, 1)
    halt(around)
    later(around, 8)
    with pytest.raises(InputError) as caught:
        begin_again(around)
    assert caught.value.code == "max_spend_reached"
    assert the_machine(around).state == "stopped"
    assert around.store.load("demo").status == "stopped"


def test_a_limit_that_passed_while_stopped_blocks_start_until_extended(around):
    bring_up(around, settings={"ttl_s": 4 * HOUR_S})
    halt(around)
    later(around, 5)
    with pytest.raises(ConflictError) as caught:
        begin_again(around)
    assert caught.value.code == "limit_reached"
    assert "extend demo --ttl" in caught.value.hint
    extend(around.context(), "demo", WantedEnds(ttl_s=2 * HOUR_S))
    later(around, 1)
    begin_again(around)
    moment, _, seconds = the_machine(around).tags[TAG_EXPIRES].partition(" ")
    assert moment == around.store.load("demo").ends.expires_at.isoformat()
    assert int(seconds) == pytest.approx(HOUR_S, abs=60)


def test_gc_removes_a_stopped_machine_past_its_limit(around):
    bring_up(around, settings={"ttl_s": 4 * HOUR_S})
    halt(around)
    asked = GcRequest(older_than_s=0, confirm=lambda _groups: True)
    assert gc(around.context(), asked).orphans == ()
    later(around, 5)
    gc(around.context(), asked)
    assert around.world.left() == []


def test_a_lease_pauses_while_stopped_and_restarts(around):
    bring_up(around, settings={"lease_s": HOUR_S})
    halt(around)
    assert the_machine(around).tags[TAG_LEASE] == NO_LIMIT
    later(around, 50)
    assert gc(around.context(), GcRequest(older_than_s=0, confirm=lambda _groups: True)).orphans == ()
    begin_again(around)
    assert the_machine(around).tags[TAG_LEASE].endswith(f" {HOUR_S}")
    assert around.store.load("demo").ends.lease_until > around.clock.now()


def test_without_capacity_it_stays_stopped_and_the_next_command_is_printed(around):
    bring_up(around)
    halt(around)

    def refuse(call, _properties):
        if call == "start instance":
            raise NoCapacityError("there is no capacity for g6.xlarge")

    around.world.on_call = refuse
    with pytest.raises(DeployError) as caught:
        begin_again(around)
    assert (caught.value.code, caught.value.exit_code) == ("not_started", 1)
    assert "'tgi-deploy start demo' tries again" in caught.value.hint
    assert "$0.02" in caught.value.hint
    recorded = around.store.load("demo")
    assert (recorded.status, recorded.machine.state) == ("stopped", "stopped")
    later(around, 10)
    assert spent(around).usd == pytest.approx(10 * DISK, abs=Decimal("0.02"))
    around.world.on_call = None
    assert begin_again(around).proof


def test_a_spot_machine_is_not_stopped(around):
    spot = candidate(cost=BILL, offer=offer(market="spot"))
    bring_up(around, plan(chosen=spot, markets=("spot",)))
    with pytest.raises(InputError) as caught:
        halt(around)
    assert caught.value.code == "spot_not_stoppable"
    assert "down demo" in caught.value.hint
    assert the_machine(around).alive


def test_nothing_happens_without_confirmation(around):
    bring_up(around)
    asked = []
    assert halt(around, confirm=lambda question: asked.append(question) or False).declined
    assert the_machine(around).alive
    (question,) = asked
    assert (question.usd_per_hour, question.grace_s, question.emptied) == (DISK, 120, True)


def test_a_deployment_that_is_being_updated_or_removed_is_not_stopped(around):
    bring_up(around)
    around.engine.model_id = "someone/else"
    with pytest.raises(DeployError):
        bring_up(around, plan(chosen=on("p4d.24xlarge"), concurrency=64), exact=True, on_failure=lambda _e: "keep")
    with pytest.raises(ConflictError) as caught:
        halt(around)
    assert caught.value.code == "update_unfinished"


def test_up_starts_a_stopped_machine(around):
    bring_up(around)
    before = the_machine(around)
    halt(around)
    asked = []
    outcome = bring_up(around, confirm=lambda proposal: asked.append(proposal) or True)
    assert [step.action for step in asked[0].changes.steps] == ["start"]
    assert (outcome.changed, outcome.deployment.status) == (True, "ready")
    assert outcome.proof
    assert the_machine(around).id == before.id
    assert not bring_up(around).changed


def test_up_with_another_spec_replaces_a_stopped_machine(around):
    bring_up(around)
    before = the_machine(around)
    halt(around)
    larger = plan(chosen=on("p4d.24xlarge"), concurrency=64)
    assert bring_up(around, larger, exact=True).deployment.active == 2
    assert the_machine(around).id != before.id


def test_up_does_not_replace_a_stopped_machine_recorded_elsewhere(around):
    bring_up(around)
    halt(around)
    around.store.remove("demo")
    later(around, 1)
    with pytest.raises(ConflictError) as caught:
        bring_up(around)
    assert "'tgi-deploy start demo' starts it" in caught.value.hint
    assert begin_again(around).deployment is None
    assert the_machine(around).alive


def test_a_machine_stopped_by_hand_is_started(around):
    bring_up(around)
    around.world.cloud("us-east-1").handler("instance").stop({"id": the_machine(around).id})
    assert begin_again(around).deployment.status == "ready"


def test_a_stale_read_after_start_does_not_count_as_stopped(around, monkeypatch):
    bring_up(around)
    halt(around)
    stopped = MachineState(state="stopped", reason_code="Client.UserInitiatedShutdown")
    shown = iter((stopped, MachineState(state="running", address="127.0.0.2"), stopped))
    truth = FakeCloud.machine
    monkeypatch.setattr(FakeCloud, "machine", lambda *asked: next(shown, None) or truth(*asked))
    assert begin_again(around).deployment.status == "ready"


def test_an_engine_that_fails_to_restart_is_diagnosed_and_kept(around):
    bring_up(around)
    halt(around)
    around.probe = Probe(outcome="refused")
    with pytest.raises(NotHealthyError) as caught:
        begin_again(around)
    assert caught.value.data["outcome"] == "kept"
    assert around.store.load("demo").status == "failed"
    assert the_machine(around).alive


def test_a_restart_waits_for_the_old_engine_to_exit_and_proves_the_new_one(around):
    bring_up(around)
    outcome = restart(around.context(), ASKED)
    assert around.world.silent_looks == 0
    assert (outcome.deployment.status, outcome.proof.level) == ("ready", "full")
    assert spent(around).machines == 1


def test_a_restart_that_never_begins_is_an_error(around):
    bring_up(around)

    def ignore(call):
        if call == "restart instance":
            around.world.silent_looks = 0

    around.world.after_call = ignore
    with pytest.raises(NotHealthyError) as caught:
        restart(around.context(), ASKED)
    assert caught.value.code == "not_restarted"


def test_a_stopped_machine_is_not_restarted(around):
    bring_up(around)
    halt(around)
    with pytest.raises(DeployError) as caught:
        restart(around.context(), ASKED)
    assert "start demo" in caught.value.hint


def finish(around, then):
    around.world.on_call = around.world.after_call = None
    if then == "stop":
        halt(around)
        assert (around.store.load("demo").status, the_machine(around).state) == ("stopped", "stopped")
    elif then == "down":
        assert take_down(around).usd is not None
        return
    else:
        (bring_up if then == "up" else begin_again)(around)
        assert (around.store.load("demo").status, the_machine(around).state) == ("ready", "running")
        assert around.store.load("demo").machine.state == "created"
    later(around, 1)
    before, price = spent(around).usd, DISK if then == "stop" else RUNS
    later(around, 1)
    assert spent(around).usd - before == pytest.approx(price, abs=Decimal("0.001"))


@pytest.mark.slow
@pytest.mark.parametrize(("then", "every"), [("stop", 1), ("start", 2), ("up", 3), ("down", 4)])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("killed", [stop, start], ids=["stop", "start"])
def test_after_a_kill_at_any_call_the_next_command_finishes(tmp_path, killed, after, then, every):
    for ordinal in range(1, 100, every * SPARSE):
        around = FakeComputer(home=tmp_path / str(ordinal))
        around.world.slow_to_stop = 2
        bring_up(around, settings={"max_spend_usd": Decimal(9), "lease_s": HOUR_S})
        if killed is start:
            halt(around)
        around.world.kill_at(ordinal, after=after)
        try:
            killed(around.context(), ASKED)
        except KilledError:
            finish(around, then)
        else:
            break
    assert 10 < ordinal < 90
