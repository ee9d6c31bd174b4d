"""Two computers, one name: one deployment; the other backs off and removes only its own resources."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from builders.plans import candidate, engine
from builders.samples import SPARSE
from fakes.cloud import FakeWorld, KilledError
from fakes.computer import FakeComputer, on, plan, request

from tgi_deploy.errors import ConflictError, DeployError, NotHealthyError
from tgi_deploy.operations.deploying.claim import FRESH
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.errors import BadRequestError, ClaimedError, LostReplyError, NoCapacityError
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_CREATED, TAG_ID, TAG_KEY, TAG_NAME, TAG_OWNER, Found


class Office:
    """Computers, each with its own records, that share a clock and a cloud."""

    def __init__(self, folder):
        self.folder = folder
        self.world = FakeWorld()
        self.ann = self.computer("ann@laptop", 0)
        self.bob = self.computer("bob@desk", 500)

    def computer(self, owner, first_id):
        around = FakeComputer(home=self.folder / owner, world=self.world, owner=owner, ids=first_id)
        if owner != "ann@laptop":
            around.clock = self.ann.clock
        return around

    def ids(self):
        return {found.tags[TAG_ID] for found in self.world.left()}


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path)


def bring_up(around, wanted=None, **changes):
    """Return the outcome or the error."""
    try:
        return up(around.context(), request(wanted, **changes))
    except DeployError as error:
        return error


def meanwhile(world, at, run, *, after=False):
    """Call `run` once, before or after the `at`th call to the world."""
    said = []

    def arrive(*_call):
        if len(world.calls) == at and not said:
            said.append(None)
            said[0] = run()

    setattr(world, "after_call" if after else "on_call", arrive)
    return said


def calls_of_one_up(tmp_path):
    office = Office(tmp_path / "count")
    bring_up(office.ann)
    return len(office.world.calls)


def check_one_deployment(office, results):
    won = [result for result in results if not isinstance(result, DeployError)]
    lost = [result for result in results if isinstance(result, DeployError)]
    assert len(won) == 1, results
    assert all(isinstance(error, ClaimedError) and error.code == "name_taken" for error in lost), lost
    assert len(office.world.running()) == 1
    assert office.ids() == {won[0].deployment.id}
    assert sorted(found.kind for found in office.world.left()) == ["instance", "launch-template", "security-group"]
    return won[0], lost


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_competitor_at_any_call_leaves_one_deployment(tmp_path, after):
    calls = calls_of_one_up(tmp_path)
    assert calls > 10
    for at in range(1, calls + 1):
        office = Office(tmp_path / str(at))
        bobs = meanwhile(office.world, at, lambda office=office: bring_up(office.bob), after=after)
        anns = bring_up(office.ann)
        won, _ = check_one_deployment(office, [anns, *bobs])
        winner, loser = (office.ann, office.bob) if won is anns else (office.bob, office.ann)
        assert loser.store.load("demo") is None, "a loser's record would have its 'down' remove the winner's"
        down(winner.context(), ["demo"], lambda _removals: True)
        assert office.world.left() == []


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["rolling", "recreate"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("knows", ["the record", "nothing"])
def test_of_two_concurrent_updates_one_wins_and_the_other_names_its_owner(tmp_path, strategy, after, knows):
    """The other arrives at any call, with a copy of the record or without one."""
    old, anns, bobs = plan(), _scheme("awq"), _scheme("gptq")
    plans = {"none": old, "awq": anns, "gptq": bobs}
    how = {"wait": True, "strategy": strategy, "plan_revision": lambda item: (plans[item.plan.chosen.quantize], ())}
    for at in range(1, 99, SPARSE if knows == "the record" else 3):
        office = Office(tmp_path / str(at))
        bring_up(office.ann, old, wait=True)
        if knows == "the record":
            shutil.copytree(office.ann.home, office.bob.home)
        office.ann.clock.seconds += 3600
        begun = len(office.world.calls)
        second = meanwhile(office.world, begun + at, lambda o=office: bring_up(o.bob, bobs, **how), after=after)
        first = bring_up(office.ann, anns, **how)
        if not second:
            break
        (won,) = [item for item in (first, *second) if not isinstance(item, DeployError)]
        (lost,) = [item for item in (first, *second) if isinstance(item, DeployError)]
        winner = "ann@laptop" if won is first else "bob@desk"
        assert (lost.code, lost.exit_code) == ("name_taken", 4), at
        assert f"'demo' belongs to {winner}" in lost.message, at
        (machine,) = office.world.running()
        assert machine.id == won.deployment.machine.attributes["id"], at
        down((office.ann if won is first else office.bob).context(), ["demo"], lambda _removals: True)
        assert office.world.left() == [], at
    assert 15 < at < 98


def _scheme(name):
    return plan(chosen=candidate(engine=engine(quantize=name)), quantize=name)


def test_a_competitor_from_another_network_leaves_one_deployment(tmp_path):
    calls = calls_of_one_up(tmp_path)
    for at in range(1, calls + 1, 2):
        office = Office(tmp_path / str(at))
        elsewhere = {"subnet": "subnet-of-bob"}
        bobs = meanwhile(office.world, at, lambda o=office: bring_up(o.bob, settings=elsewhere))  # noqa: B023 -- used at once
        check_one_deployment(office, [bring_up(office.ann), *bobs])


def test_a_competitor_during_a_failover_to_another_region_leaves_one_deployment(tmp_path):
    wanted = plan(on("p4d.24xlarge", region="eu-west-1"))

    def no_capacity_here(name, properties):
        if name == "create instance" and "us-east-1" in str(properties["request"]["Placement"]) and not full:
            raise NoCapacityError("none")

    for at in range(1, 60, 3):
        office, full = Office(tmp_path / str(at)), []
        said = []

        def arrive(name, properties, office=office, at=at, said=said, full=full):
            if len(office.world.calls) == at:
                full.append(True)  # capacity comes back just for the second
                said.append(bring_up(office.bob, wanted))
                return
            no_capacity_here(name, properties)

        office.world.on_call = arrive
        check_one_deployment(office, [bring_up(office.ann, wanted), *said])


def test_the_loser_sees_who_owns_the_name(office):
    won = bring_up(office.ann)
    lost = bring_up(office.bob)
    assert isinstance(lost, ClaimedError)
    assert lost.exit_code == 4
    (machine,) = office.world.running()
    assert "'demo' belongs to ann@laptop, created 2026-01-09T00:00:00+00:00" in lost.message
    assert machine.id in lost.message
    assert "tgi-deploy down demo" in lost.hint
    assert lost.data["claim"] == {
        "owner": "ann@laptop",
        "begun": "2026-01-09T00:00:00+00:00",
        "deployment_id": won.deployment.id,
        "kind": "instance",
        "id": machine.id,
        "region": "us-east-1",
    }
    assert won.deployment.owner == "ann@laptop"


def test_a_running_machine_of_somebody_else_is_never_taken_over(office):
    bring_up(office.ann)
    office.ann.clock.seconds += 10 * FRESH.total_seconds()
    assert isinstance(bring_up(office.bob), ClaimedError)


def killed_at_the_launch(office):
    def kill(name, _properties):
        if name == "create instance":
            raise KilledError

    office.world.on_call = kill
    with pytest.raises(KilledError):
        bring_up(office.ann)
    office.world.on_call = None


def test_a_claim_of_a_crashed_run_is_waited_for_and_then_resumed(office):
    killed_at_the_launch(office)
    refused = bring_up(office.bob)
    assert isinstance(refused, ClaimedError)
    assert "after 00:25 UTC the same command resumes it" in refused.hint
    office.ann.clock.seconds += FRESH.total_seconds()
    second = bring_up(office.bob)
    assert second.deployment.id == office.ids().pop()
    assert len(office.world.running()) == 1
    assert {step.action for step in second.proposal.changes.steps} == {"adopt", "create"}


def test_a_claim_of_a_crashed_run_is_cleared_by_down_from_anywhere(office):
    killed_at_the_launch(office)
    down(office.bob.context(), ["demo"], lambda _removals: True)
    assert bring_up(office.bob).changed
    assert office.ann.store.load("demo") is not None
    assert isinstance(bring_up(office.ann), ClaimedError), "a computer that comes back finds its name taken"
    assert len(office.ids()) == 1


def test_the_first_computer_resumes_its_own_claim_at_once(office):
    killed_at_the_launch(office)
    assert bring_up(office.ann).changed
    assert len(office.world.running()) == 1


def test_a_failed_engine_removes_nothing_of_another_deployment(office):
    """Two deployments of one name are possible only without a common region."""
    bring_up(office.ann)
    mine = office.ids()
    office.bob.probe = Probe(outcome="refused")
    elsewhere = plan(chosen=on("p4d.24xlarge", region="eu-west-1"))
    with pytest.raises(NotHealthyError):
        up(office.bob.context(regions=("eu-west-1",)), request(elsewhere, wait=True))
    assert office.ids() == mine


def test_a_group_with_that_name_but_without_our_tags_is_left_alone(office):
    foreign = Found(
        key="security-group", kind="security-group", place="us-east-1",
        attributes={"id": "sg-foreign", "name": "tgi-deploy-demo", "version": "1"}, state="available",
    )  # fmt: skip
    office.world.things[foreign.id] = foreign
    office.world.properties[foreign.id] = {"network": "vpc-1"}
    refused = bring_up(office.ann)
    assert isinstance(refused, ClaimedError)
    assert "security-group of 'demo' is in use in us-east-1" in refused.message
    assert office.world.left() == [foreign]
    assert office.ann.store.load("demo") is None


def machine_of_eve(region, launched):
    return Found(
        key="instance", kind="instance", place=region, state="running", is_machine=True,
        attributes={"id": f"i-{region}", "launched": launched, "zone": "a", "instance_type": "x", "market": "spot"},
        tags={TAG_NAME: "demo", TAG_ID: "of-eve", TAG_KEY: "instance", TAG_OWNER: "eve@far"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("region", "launched", "stays"),
    [
        ("eu-west-1", "2026-01-08T23:00:00+00:00", "eu-west-1"),
        ("eu-west-1", "2026-01-09T01:00:00+00:00", "us-east-1"),
        ("us-west-2", "2026-01-08T23:00:00+00:00", "us-east-1"),
    ],
    ids=["older", "younger", "where this plan never goes"],
)
def test_of_two_machines_in_two_planned_regions_the_older_stays(office, region, launched, stays):
    """Names don't collide there, so both check again after their launch."""
    eves = machine_of_eve(region, launched)

    def launch_elsewhere(name):
        if name == "create instance":
            office.world.things[eves.id] = eves

    office.world.after_call = launch_elsewhere
    result = bring_up(office.ann, plan(on("p4d.24xlarge", region="eu-west-1")))
    anns = [found.place for found in office.world.running() if found.id != eves.id]
    assert anns == ([] if stays == region else [stays])
    assert isinstance(result, ClaimedError) == (stays == region)
    assert eves.id in {found.id for found in office.world.running()}


def test_an_owner_who_lost_the_record_waits_and_resumes(office):
    first = bring_up(office.ann).deployment
    office.ann.store.remove("demo")
    assert isinstance(bring_up(office.ann), ConflictError)
    office.ann.clock.seconds += FRESH.total_seconds()
    assert bring_up(office.ann).deployment.id == first.id


@pytest.mark.parametrize("recorded", [False, True])
def test_a_run_of_the_same_owner_is_not_described_as_another_owner(office, recorded):
    """A run of the same owner, with records elsewhere: another state folder, a CI job, a disk that is lost."""
    bring_up(office.ann)
    again = replace(office.ann, home=office.folder / "elsewhere", ids=900)
    if recorded:
        deployment = office.ann.store.load("demo")
        again.store.save(replaced(deployment, id="another", resources=(), serial=0), expected_serial=0)
    (machine,) = office.world.running()
    refused = bring_up(again)
    assert isinstance(refused, ClaimedError)
    assert "belongs to" not in refused.message
    assert "'demo' is in use by another of your runs (ann@laptop, created 2026-01-09T00:00:00+00:00)" in refused.message
    assert machine.id in refused.message
    assert "'tgi-deploy down demo' removes what it left" in refused.hint
    assert "--name" not in refused.hint


@pytest.mark.parametrize("anns_s", [-300, 0, 300])
@pytest.mark.parametrize("bobs_s", [-300, 0, 300])
def test_a_claim_holds_for_fifteen_minutes_despite_clock_skew(office, anns_s, bobs_s):
    """The group says when it was made by the clock of the computer that made it."""
    office.ann.clock.ahead_s = anns_s
    killed_at_the_launch(office)
    office.ann.clock.ahead_s = bobs_s  # the two share a clock: bob's turn
    office.ann.clock.seconds += 15 * 60 - 1
    assert isinstance(bring_up(office.bob), ClaimedError)
    office.ann.clock.seconds += 20 * 60 + 1
    assert bring_up(office.bob).changed


def test_a_claim_from_a_clock_years_ahead_prints_no_time(office):
    killed_at_the_launch(office)
    for found in office.world.left():
        office.world.things[found.id] = replaced(found, tags={**found.tags, TAG_CREATED: "9999-12-31T23:59:59+00:00"})
    refused = bring_up(office.bob)
    assert isinstance(refused, ClaimedError)
    assert "UTC" not in refused.hint
    assert "'tgi-deploy down demo' removes" in refused.hint


@pytest.mark.parametrize("shows_after_s", [4, 12, 55])
def test_a_group_whose_reply_was_lost_is_adopted(office, shows_after_s):
    office.world.time, office.world.shows_after_s = office.ann.clock.monotonic, shows_after_s
    lost = []

    def lose(name):
        if name == "create security-group" and not lost:
            lost.append(name)
            raise LostReplyError("the reply got lost")

    office.world.after_call = lose
    assert bring_up(office.ann).changed
    assert len(office.world.left()) == 3


def test_a_rejected_launch_removes_its_resources_before_they_are_visible(office):
    office.world.time, office.world.shows_after_s = office.ann.clock.monotonic, 40

    def refuse(name, _properties):
        if name == "create launch-template":
            raise BadRequestError("no such thing")

    office.world.on_call = refuse
    assert isinstance(bring_up(office.ann), BadRequestError)
    office.ann.clock.sleep(60)
    assert office.world.left() == []
    assert office.ann.store.load("demo") is None


def test_anyone_may_adopt_resources_without_an_owner(office):
    bring_up(office.ann)
    for found in office.world.left():
        tags = {name: value for name, value in found.tags.items() if name != TAG_OWNER}
        office.world.things[found.id] = replaced(found, tags=tags)
    office.ann.clock.seconds += FRESH.total_seconds()
    assert bring_up(office.bob).changed
    assert len(office.world.running()) == 1
