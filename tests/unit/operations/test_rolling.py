"""A rolling update: the new machine is proved next to the old one, which serves until then, drains and is removed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import pytest
from builders.samples import SPARSE
from builders.updates import NEW, OLD, THIRD, bring_up, fails_for, roll_back
from fakes.cloud import KilledError
from fakes.computer import FakeComputer, on, plan

from tgi_deploy.cli.views.deployment import up_text
from tgi_deploy.cli.views.status import status_text
from tgi_deploy.errors import ConflictError, DeployError, InputError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.pausing import SwitchRequest, restart, start, stop
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.results.changing import up_data
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.operations.watching.status import status
from tgi_deploy.reconcile.errors import NoCapacityError
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.resource import TAG_EXPIRES, TAG_PRICE


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path / "state")


@contextmanager
def killed_before(around, call):
    """Kill the process at its first such call, and revive it after the block."""

    def kill(name, _properties):
        if name == call:
            raise KilledError

    around.world.on_call = kill
    with pytest.raises(KilledError):
        yield
    around.world.live_on()


def states(around):
    return [(item.number, item.state) for item in around.store.load("demo").revisions]


def keys(around):
    return sorted(found.key for found in around.world.left())


def test_the_old_machine_serves_until_the_new_one_is_proved(around):
    old = bring_up(around).deployment
    seen = []

    def look(call):
        recorded = around.store.load("demo")
        if call == "create instance":
            seen.append((recorded.active, recorded.status, recorded.endpoint, recorded.machine.key))
            assert len(around.world.running()) == 2

    around.world.after_call = look
    outcome = bring_up(around, NEW)
    assert seen == [(1, "ready", old.endpoint, "instance@1.1")]
    assert states(around) == [(1, "retired"), (2, "serving")]
    recorded = around.store.load("demo")
    assert recorded == outcome.deployment
    assert (recorded.active, recorded.rollout, recorded.status) == (2, None, "ready")
    assert keys(around) == ["instance@2.1", "launch-template@2", "security-group"]
    assert "the address has changed" in up_text(outcome)


def test_the_old_machine_drains_before_it_is_deleted(around):
    bring_up(around)
    (old,) = around.world.running()
    bring_up(around, NEW)
    ended = [call for call, thing in around.world.calls if thing == old.id and call.split()[0] in {"update", "delete"}]
    assert ended == ["update instance", "delete instance"]
    assert around.world.things[old.id].tags[TAG_EXPIRES].endswith(" 1")


def test_nothing_is_removed_before_the_proof_is_over(around):
    bring_up(around)
    (old,) = around.world.running()
    asked = []
    real = around.engine.ask
    around.engine.ask = lambda probe: asked.append(old in around.world.running()) or real(probe)
    bring_up(around, NEW)
    assert asked
    assert all(asked)


def test_a_failed_revision_is_removed_while_the_old_one_serves(around):
    old = bring_up(around).deployment
    machine = old.machine.attributes["id"]
    fails_for(around, "awq")
    with pytest.raises(DeployError) as caught:
        bring_up(around, NEW)
    assert caught.value.code == "wrong_model"
    assert caught.value.data["serving"] == {"revision": 1, "endpoint": old.endpoint}
    assert f"revision 1 still serves at {old.endpoint}" in caught.value.hint
    recorded = around.store.load("demo")
    assert (recorded.active, recorded.rollout, recorded.status, recorded.ends) == (1, None, "ready", old.ends)
    assert states(around) == [(1, "serving"), (2, "failed")]
    assert [found.id for found in around.world.running()] == [machine]
    assert keys(around) == ["instance@1.1", "launch-template@1", "security-group"]
    assert not bring_up(around).changed
    assert status(around.context(), "demo").healthy


def test_a_failed_removal_of_the_old_machine_still_reports_the_new_one(around):
    bring_up(around)

    def refuse(call, _properties):
        if call == "delete instance":
            raise DeployError("cloud_unreachable", "no answer")

    around.world.on_call = refuse
    with pytest.raises(DeployError) as caught:
        bring_up(around, NEW)
    assert "revision 2 serves at http://127.0.0.1:8080; the old machine still runs" in caught.value.hint
    found = status(around.context(), "demo")
    assert found.healthy
    assert "the machine of revision 1 is still running" in status_text(found)
    around.world.live_on()
    assert not bring_up(around, NEW).changed
    assert keys(around) == ["instance@2.1", "launch-template@2", "security-group"]


LIVING = {
    "extend": lambda context: extend(context, "demo", WantedEnds(ttl_s=3 * 3600)),
    "stop": lambda context: stop(context, SwitchRequest(name="demo")),
    "start": lambda context: start(context, SwitchRequest(name="demo")),
    "restart": lambda context: restart(context, SwitchRequest(name="demo")),
}


@pytest.mark.parametrize("command", LIVING)
def test_after_promotion_every_command_finishes_the_update(around, command):
    bring_up(around)
    with killed_before(around, "update instance"):
        bring_up(around, NEW)
    assert around.store.load("demo").rollout.stage == "promoted"
    LIVING[command](around.context())
    assert around.store.load("demo").rollout is None
    assert keys(around) == ["instance@2.1", "launch-template@2", "security-group"]
    (machine,) = around.world.there("instance")
    if command == "extend":
        assert machine.tags[TAG_EXPIRES].endswith(f" {3 * 3600}")


@pytest.mark.parametrize("command", LIVING)
@pytest.mark.parametrize("changes", [{}, {"strategy": "recreate"}])
def test_before_promotion_other_commands_name_the_ones_that_finish_it(around, command, changes):
    bring_up(around)
    with killed_before(around, "create instance"):
        bring_up(around, NEW, **changes)
    with pytest.raises(ConflictError) as caught:
        LIVING[command](around.context())
    assert caught.value.code == "update_unfinished"
    assert "the same 'up' resumes it, 'tgi-deploy rollback demo' goes back" in caught.value.hint


def test_without_capacity_for_the_new_machine_the_old_one_keeps_serving(around):
    bring_up(around)
    (old,) = around.world.running()

    def refuse(call, properties):
        if call == "create instance" and properties["request"]["InstanceType"] == "p4d.24xlarge":
            raise NoCapacityError("no capacity")

    around.world.on_call = refuse
    with pytest.raises(NoCapacityError) as caught:
        bring_up(around, plan(chosen=on("p4d.24xlarge"), concurrency=64), exact=True)
    assert caught.value.data["serving"]["revision"] == 1
    assert around.world.running() == [old]
    assert around.store.load("demo").rollout is None


def test_cost_and_effects_are_confirmed_first(around):
    bring_up(around)
    outcome = bring_up(around, NEW, confirm=lambda _proposal: False)
    assert outcome.declined
    assert states(around) == [(1, "serving")]
    update = up_data(outcome).update
    price = outcome.proposal.candidate.cost.usd_per_hour
    assert (update.strategy, update.downtime_s, update.drain_s) == ("rolling", 0, 120)
    assert update.extra_usd == price * update.overlap_s / 3600
    text = up_text(replace(outcome, declined=False))
    assert "a second machine for about" in text
    assert "address   changes" in text
    assert "in-flight ones have 2 min to finish" in text


def test_each_machine_is_billed_at_its_own_price(around):
    bring_up(around)
    dearer = on("g6e.2xlarge")
    around.world.after_call = lambda call: pytest.fail("asked") if call == "never" else None
    bring_up(around, plan(chosen=dearer, concurrency=64), exact=True)
    prices = {found.key: found.tags[TAG_PRICE] for found in around.world.things.values() if found.kind == "instance"}
    assert prices == {
        "instance@1.1": str(OLD.chosen.cost.usd_per_hour),
        "instance@2.1": str(dearer.cost.usd_per_hour),
    }


NINE = {"max_spend_usd": Decimal(9)}


def could_cost(around):
    """Return what a name will cost if it is abandoned: each machine terminates by its own tag."""
    now, usd = around.clock.now(), spent_by(around.context(), around.store.load("demo")).usd
    for found in around.world.running():
        end = datetime.fromisoformat(found.tags[TAG_EXPIRES].split()[0])
        usd += Decimal(found.tags[TAG_PRICE]) * int((end - now).total_seconds()) / 3600
    return usd


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_an_abandoned_update_costs_at_most_max_spend(tmp_path, after):
    both = 0
    for ordinal in range(1, 500, SPARSE):
        around = FakeComputer(home=tmp_path / str(ordinal))
        bring_up(around, settings=NINE)
        around.clock.seconds += 3600
        around.world.kill_at(ordinal, after=after)
        try:
            bring_up(around, NEW, settings=NINE)
        except KilledError:
            both += len(around.world.running()) == 2
            assert could_cost(around) <= Decimal("9.01"), ordinal
        else:
            break
    assert both


@pytest.mark.parametrize(("before", "update"), [(NINE, NINE), (NINE, {}), ({"ttl_s": 7200}, NINE)])
@pytest.mark.parametrize("wanted", [OLD, NEW, THIRD])
def test_a_machine_that_is_alone_again_gets_its_own_limit_back(around, wanted, before, update):
    bring_up(around, settings=before)
    with killed_before(around, "machine"):
        bring_up(around, NEW, settings=update)
    assert len(around.world.running()) == 2
    asked = before if wanted == OLD else update
    bring_up(around, wanted, settings=asked)
    (machine,) = around.world.running()
    ceiling = around.store.load("demo").ends.max_spend_usd
    assert ceiling == asked.get("max_spend_usd")
    assert ceiling is None or could_cost(around) == pytest.approx(9, abs=Decimal("0.05"))
    if "ttl_s" in asked:
        assert machine.tags[TAG_EXPIRES].startswith("2026-01-09T02:00:00+00:00")


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ({"ttl_s": 7200}, ("ends at 2026-01-09T02:00:00+00:00", "--ttl 2h")),
        ({"idle_s": 600}, ("ends after 10m without requests", "--idle-timeout 10m")),
        ({"max_spend_usd": Decimal(9)}, ("ends at ", "--max-spend 9")),
    ],
    ids=["ttl", "idle timeout", "max spend"],
)
@pytest.mark.parametrize("strategy", ["rolling", "recreate"])
def test_an_update_that_names_no_limit_where_one_holds_is_a_warning(around, before, words, strategy):
    bring_up(around, settings=before)
    proposal = bring_up(around, NEW, strategy=strategy, dry_run=True).proposal
    (found,) = (item for item in proposal.warnings if item.code == "limits_dropped")
    assert found.message.startswith("revision 1 of 'demo' ")
    assert [words[0] in found.message, words[1] in found.hint] == [True, True]


@pytest.mark.parametrize(("before", "update"), [({}, {}), ({"ttl_s": 7200}, {"ttl_s": 600}), ({"ttl_s": 7200}, NINE)])
def test_an_update_that_names_a_limit_or_has_none_to_lose_is_no_warning(around, before, update):
    bring_up(around, settings=before)
    proposal = bring_up(around, NEW, settings=update, dry_run=True).proposal
    assert "limits_dropped" not in {item.code for item in proposal.warnings}


def test_a_rollback_keeps_the_limit_so_that_nothing_is_lost(around):
    bring_up(around, settings={"ttl_s": 7200})
    bring_up(around, NEW, settings={"ttl_s": 7200})
    proposal = roll_back(around, settings={"ttl_s": 7200}, dry_run=True).proposal
    assert "limits_dropped" not in {item.code for item in proposal.warnings}


def test_max_spend_counts_both_machines_during_an_update(around):
    bring_up(around, settings=NINE)
    alone = bring_up(around, NEW, settings=NINE, strategy="recreate", dry_run=True)
    beside = bring_up(around, NEW, settings=NINE, dry_run=True)
    assert beside.proposal.ends.ttl_s == pytest.approx(alone.proposal.ends.ttl_s / 2, abs=2)


def test_a_recreated_machine_gets_all_of_max_spend(around):
    bring_up(around, settings=NINE)
    changes = {"settings": {"subnet": "subnet-other", **NINE}, "exact": True, "dry_run": True}
    found, asked = bring_up(around, NEW, **changes), bring_up(around, NEW, strategy="recreate", **changes)
    assert found.proposal.update.strategy == "recreate"
    assert found.proposal.ends == asked.proposal.ends


def test_without_budget_for_two_recreate_is_suggested(around):
    bring_up(around)
    with pytest.raises(InputError) as caught:
        bring_up(around, NEW, settings={"max_spend_usd": Decimal("0.30")})
    assert caught.value.code == "max_spend_reached"
    assert "--strategy recreate" in caught.value.hint
    assert len(around.world.running()) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"wait": False}, "would not be verified"),
        ({"settings": {"subnet": "subnet-other"}, "exact": True}, "security-group"),
        ({"wanted": plan(chosen=on("g6e.xlarge", region="eu-west-1"), regions=("eu-west-1",))}, "eu-west-1"),
    ],
)
def test_an_update_that_cannot_roll_is_recreated_or_rejected(around, changes, why):
    bring_up(around)
    changes = {"wanted": NEW} | changes
    with pytest.raises(ConflictError) as caught:
        bring_up(around, strategy="rolling", **changes)
    assert caught.value.code == "rolling_unavailable"
    assert why in caught.value.message
    assert bring_up(around, dry_run=True, **changes).proposal.update.strategy == "recreate"
    assert len(around.world.running()) == 1


def test_a_machine_that_died_is_not_awaited(around):
    bring_up(around)
    around.world.kill_at(25)
    with pytest.raises(KilledError):
        bring_up(around, NEW)
    around.world.live_on()
    for found in around.world.running():
        if found.key == "instance@1.1":
            around.world.cloud("us-east-1").handler("instance").delete(found.attributes)
    outcome = bring_up(around, NEW)
    assert (outcome.deployment.active, outcome.deployment.rollout) == (2, None)
    assert keys(around) == ["instance@2.1", "launch-template@2", "security-group"]


def test_status_shows_both_machines_of_an_unfinished_update(around):
    bring_up(around)
    fails_for(around, "awq")
    with pytest.raises(DeployError):
        bring_up(around, NEW, on_failure=lambda _error: "keep")
    found = status(around.context(), "demo")
    text = status_text(found)
    assert found.healthy
    assert "an update to 2 is not finished" in text
    assert "'tgi-deploy rollback demo' goes back to 1" in text
    assert [item.code for item in found.drift] == []
    roll_back(around)
    assert keys(around) == ["instance@1.1", "launch-template@1", "security-group"]
    assert around.store.load("demo").active == 1


def test_a_rollback_is_a_rolling_update(around):
    bring_up(around)
    bring_up(around, NEW)
    outcome = roll_back(around)
    assert outcome.proposal.update.strategy == "rolling"
    assert states(around) == [(1, "retired"), (2, "retired"), (3, "serving")]
    assert around.store.load("demo").plan.chosen.quantize == "none"


@pytest.mark.slow
@pytest.mark.parametrize(("then", "every"), [("on", 1), ("back", 1), ("elsewhere", 2), ("down", 3)])
@pytest.mark.parametrize("after", [False, True])
def test_an_update_killed_at_any_call_is_finished_by_the_next_command(tmp_path, then, every, after):
    for ordinal in range(1, 500, every * SPARSE):
        around = FakeComputer(home=tmp_path / str(ordinal))
        bring_up(around)
        around.world.kill_at(ordinal, after=after)
        try:
            bring_up(around, NEW)
        except KilledError:
            around.world.live_on()
            serves_at_every_moment(around)
            finish(around, then)
        else:
            break
    assert 25 < ordinal < 490


def serves_at_every_moment(around):
    """Fail the test if the machine recorded as serving does not run."""

    def look(_call):
        recorded = around.store.load("demo")
        if recorded is None or recorded.status == "deleting":
            return
        serving = {found.id for found in around.world.running()}
        assert recorded.machine.attributes["id"] in serving

    around.world.after_call = look


def finish(around, then):
    if then == "down":
        down(around.context(), ["demo"], lambda _removals: True)
        assert around.world.left() == []
        return
    recorded = around.store.load("demo")
    promoted = recorded.active == 2
    if then == "back" and (promoted or recorded.rollout is not None):
        roll_back(around)
    else:
        bring_up(around, {"on": NEW, "back": OLD, "elsewhere": THIRD}[then])
    deployment = around.store.load("demo")
    wanted = {"on": NEW, "back": OLD, "elsewhere": THIRD}[then].chosen
    assert deployment.rollout is None
    assert (deployment.status, deployment.active) == ("ready", deployment.current.number)
    assert deployment.plan.chosen.quantize == wanted.quantize
    number = deployment.active
    assert keys(around) == [f"instance@{number}.1", f"launch-template@{number}", "security-group"]
    assert [item.state for item in deployment.revisions].count("serving") == 1
    assert "pending" not in [item.state for item in deployment.revisions]
