"""Another spec under the same name is an update: never two machines, proved first, rolled back on failure."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest
from builders import updates
from builders.plans import candidate
from builders.samples import SPARSE
from builders.updates import NEW, OLD, THIRD, fails_for
from fakes.cloud import KilledError
from fakes.computer import FakeComputer, FakeEngine, on, plan

from tgi_deploy.cli.views.deployment import up_text
from tgi_deploy.cli.views.status import status_text
from tgi_deploy.errors import ConflictError, DeployError, InputError
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.results.changing import up_data
from tgi_deploy.operations.results.watching import status_data
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.operations.watching.status import status
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import NoCapacityError
from tgi_deploy.values.base import plain, replaced
from tgi_deploy.values.resource import revision_of

LARGER = plan(chosen=on("p4d.24xlarge"), concurrency=64)
bring_up = partial(updates.bring_up, strategy="recreate")
roll_back = partial(updates.roll_back, strategy="recreate")


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path / "state")


def only_one_machine(around):
    """Fail the test at any moment with two machines."""
    around.world.after_call = lambda _call: pytest.fail("two machines") if len(around.world.running()) > 1 else None


def numbers(around):
    return [(item.number, item.origin, item.state) for item in around.store.load("demo").revisions]


def test_recreate_removes_the_old_machine_first_and_keeps_the_claim(around):
    bring_up(around)
    (group,) = around.world.there("security-group")
    (old,) = around.world.running()
    only_one_machine(around)
    outcome = bring_up(around, NEW)
    (new,) = around.world.running()
    assert new.id != old.id
    assert [item.id for item in around.world.there("security-group")] == [group.id]
    deployment = around.store.load("demo")
    assert deployment == outcome.deployment
    assert (deployment.active, deployment.rollout, deployment.status) == (2, None, "ready")
    assert numbers(around) == [(1, "up", "retired"), (2, "up", "serving")]


def test_changes_are_confirmed_first(around):
    bring_up(around)
    asked = []
    outcome = bring_up(around, NEW, confirm=lambda proposal: asked.append(proposal) or False)
    assert outcome.declined
    assert numbers(around) == [(1, "up", "serving")]
    (proposal,) = asked
    text = up_text(replaced_outcome(outcome))
    assert "revision 1 -> 2" in text
    assert "scheme    none -> awq" in text
    assert "downtime  about" in text
    assert "in-flight ones have 2 min to finish" in text
    update = up_data(outcome).update
    assert plain(update.changes) == [{"what": "scheme", "before": "none", "after": "awq"}]
    assert (update.usd_per_hour_before, update.drain_s) == (proposal.candidate.cost.usd_per_hour, 120)


def replaced_outcome(outcome):
    """The same outcome, as a dry run prints it."""
    return replace(outcome, declined=False)


def test_a_failed_revision_is_removed_and_the_old_one_restored(around):
    bring_up(around)
    fails_for(around, "awq")
    only_one_machine(around)
    with pytest.raises(DeployError) as caught:
        bring_up(around, NEW)
    deployment = around.store.load("demo")
    assert caught.value.code == "wrong_model"
    assert caught.value.data["restored"] == {"revision": 3, "endpoint": deployment.endpoint}
    assert "revision 1 was restored as revision 3 and serves at" in caught.value.hint
    assert numbers(around) == [(1, "up", "retired"), (2, "up", "failed"), (3, "rollback", "serving")]
    assert (deployment.rollout, deployment.revision.spec) == (None, deployment.revisions[0].spec)
    assert len(around.world.running()) == 1
    assert not bring_up(around).changed


def test_without_capacity_for_the_new_machine_the_old_one_is_restored(around):
    bring_up(around)

    def refuse(call, properties):
        if call == "create instance" and properties["request"]["InstanceType"] == "p4d.24xlarge":
            raise NoCapacityError("no capacity")

    around.world.on_call = refuse
    with pytest.raises(NoCapacityError) as caught:
        bring_up(around, LARGER, exact=True)
    assert caught.value.data["restored"]["revision"] == 3
    assert around.store.load("demo").status == "ready"


@pytest.mark.parametrize("then", ["on", "back"])
def test_an_unclear_launch_failure_suggests_up_and_rollback(around, then):
    bring_up(around)

    def lose(call, _properties):
        if call == "create instance":
            raise DeployError("cloud_unreachable", "no answer")

    around.world.on_call = lose
    with pytest.raises(DeployError) as caught:
        bring_up(around, NEW)
    assert "the same 'up' resumes it, 'tgi-deploy rollback demo' goes back" in caught.value.hint
    around.world.live_on()
    serving = bring_up(around, NEW) if then == "on" else roll_back(around)
    assert serving.deployment.plan.chosen.quantize == {"on": "awq", "back": "none"}[then]
    assert (serving.deployment.rollout, len(around.world.running())) == (None, 1)
    assert {item.state for item in serving.deployment.resources} == {"created"}


@pytest.mark.parametrize("launched", [False, True])
def test_an_aborted_launch_is_settled_before_the_rollback_finishes(around, launched):
    bring_up(around)

    def kill(call, *_properties):
        if call == "create instance":
            raise KilledError

    around.world.time, around.world.shows_after_s = around.clock.monotonic, 20.0
    around.world.on_call, around.world.after_call = (None, kill) if launched else (kill, None)
    with pytest.raises(KilledError):
        bring_up(around, NEW)
    around.world.live_on()
    serving = roll_back(around).deployment
    assert {item.state for item in serving.resources} == {"created"}
    assert len(around.world.running()) == 1


def test_both_failures_are_named_if_the_rollback_fails(around):
    bring_up(around)
    around.engine.model_id = "someone/else"
    with pytest.raises(DeployError) as caught:
        bring_up(around, NEW)
    assert caught.value.data["restored"] is None
    assert "could not be restored" in caught.value.hint
    assert "'tgi-deploy rollback demo' tries again" in caught.value.hint
    assert around.world.running() == []
    around.engine.model_id = FakeEngine.model_id
    assert roll_back(around).deployment.active == 3


def test_a_kept_machine_can_be_rolled_back(around):
    bring_up(around)
    fails_for(around, "awq")
    with pytest.raises(DeployError) as caught:
        bring_up(around, NEW, on_failure=lambda _error: "keep")
    assert caught.value.data["outcome"] == "kept"
    assert "an update to 2 is not finished" in status_text(status(around.context(), "demo"))
    only_one_machine(around)
    assert roll_back(around).deployment.revision.plan.chosen.quantize == "none"
    assert numbers(around)[-1] == (3, "rollback", "serving")


def test_rolling_back_twice_returns_to_the_start(around):
    bring_up(around)
    bring_up(around, NEW)
    only_one_machine(around)
    assert roll_back(around).deployment.plan.chosen.quantize == "none"
    assert roll_back(around).deployment.plan.chosen.quantize == "awq"
    assert numbers(around)[2:] == [(3, "rollback", "retired"), (4, "rollback", "serving")]


def test_a_first_revision_cannot_be_rolled_back(around):
    bring_up(around)
    with pytest.raises(ConflictError) as caught:
        roll_back(around)
    assert caught.value.code == "no_previous_revision"


def test_replan_switches_to_a_better_choice(around):
    bring_up(around)
    wanted = replaced(plan(candidate(), chosen=NEW.chosen))
    assert not bring_up(around, wanted).changed
    only_one_machine(around)
    assert bring_up(around, wanted, exact=True).deployment.plan.chosen.quantize == "awq"
    assert not bring_up(around, wanted, exact=True).changed


def test_an_unrestorable_revision_is_a_warning(around):
    def gone(_revision):
        raise InputError("unknown_model", "there is no model of that name")

    bring_up(around)
    outcome = bring_up(around, NEW, plan_revision=gone, dry_run=True)
    assert "cannot_restore" in {item.code for item in outcome.proposal.warnings}


def test_both_revisions_count_toward_max_spend(around):
    bring_up(around, settings={"max_spend_usd": Decimal(9)})
    around.clock.seconds += 3600
    outcome = bring_up(around, NEW, settings={"max_spend_usd": Decimal(9)})
    assert outcome.deployment.ends.spent_before_usd == pytest.approx(Decimal("1.923"), abs=Decimal("0.01"))
    around.clock.seconds += 3600
    spent = spent_by(around.context(), around.store.load("demo"))
    assert (spent.usd, spent.machines) == (pytest.approx(Decimal("3.722"), abs=Decimal("0.02")), 2)


def test_a_reached_max_spend_is_rejected_before_anything_is_removed(around):
    bring_up(around)
    around.clock.seconds += 2 * 3600
    (old,) = around.world.running()
    with pytest.raises(InputError) as caught:
        bring_up(around, NEW, settings={"max_spend_usd": Decimal(3)})
    assert caught.value.code == "max_spend_reached"
    assert around.world.running() == [old]


@pytest.mark.slow
@pytest.mark.parametrize(("then", "every"), [("on", 1), ("back", 2), ("elsewhere", 3), ("down", 4)])
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
            only_one_machine(around)
            finish(around, then)
        else:
            break
    assert 15 < ordinal < 490


def finish(around, then):
    if then == "down":
        down(around.context(), ["demo"], lambda _removals: True)
        assert around.world.left() == []
        return
    unfinished = around.store.load("demo").rollout is not None
    if then == "back" and not unfinished:
        bring_up(around)
    elif then == "back":
        roll_back(around)
    else:
        bring_up(around, {"on": NEW, "elsewhere": THIRD}[then])
    deployment = around.store.load("demo")
    wanted = {"on": NEW, "back": OLD, "elsewhere": THIRD}[then].chosen
    assert deployment.rollout is None
    assert (deployment.status, deployment.active) == ("ready", deployment.revision.number)
    assert deployment.plan.chosen.quantize == wanted.quantize
    assert len(around.world.running()) == 1
    assert [item.state for item in deployment.revisions].count("serving") == 1
    assert {revision_of(item.key) for item in deployment.resources} <= {None, deployment.active}


def test_revision_numbers_survive_a_lost_record_in_tags(around):
    bring_up(around)
    bring_up(around, NEW)
    keys = sorted(found.key for found in around.world.left())
    assert keys == ["instance@2.1", "launch-template@2", "security-group"]
    around.store.remove("demo")
    around.clock.seconds += 3600
    outcome = bring_up(around, NEW)
    assert (outcome.deployment.active, outcome.deployment.machine.key) == (2, "instance@2.1")
    assert len(around.world.running()) == 1


def test_an_unfinished_update_is_shown(around):
    bring_up(around)

    def kill(call, _properties):
        if call == "delete instance":
            raise KilledError

    around.world.on_call = kill
    with pytest.raises(KilledError):
        bring_up(around, NEW)
    around.world.live_on()
    found = status(around.context(), "demo")
    begun = {"source": 1, "destination": 2, "stage": "ending", "strategy": "recreate"}
    assert plain(status_data(found).recorded.rollout) == begun
    assert [item.state for item in status_data(found).recorded.revisions] == ["serving", "pending"]
    text = status_text(found)
    assert "an update to 2 is not finished" in text
    assert "'tgi-deploy rollback demo' goes back to 1" in text


def test_an_update_whose_engine_never_answers_is_rolled_back(around):
    bring_up(around)
    newest = lambda: around.store.load("demo").revision.plan.chosen.quantize  # noqa: E731 -- one word of the record
    context = around.context
    refused = Probe(outcome="refused")
    around.context = lambda **changes: context(
        **{"probe": lambda _url: refused if newest() == "awq" else around.probe} | changes
    )
    with pytest.raises(DeployError) as caught:
        bring_up(around, NEW)
    assert caught.value.exit_code == 5
    assert caught.value.data["restored"]["revision"] == 3
