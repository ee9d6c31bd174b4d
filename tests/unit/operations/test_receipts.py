from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from builders.records import is_untouched
from fakes.cloud import KilledError
from fakes.computer import FakeComputer, on, plan, request

from tgi_deploy.errors import LeftBehindError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.watching.ledger import Ledger, Line
from tgi_deploy.operations.watching.lookup import money
from tgi_deploy.reconcile.ends import moment_of
from tgi_deploy.reconcile.errors import NoCapacityError
from tgi_deploy.text import duration
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Event
from tgi_deploy.values.resource import TAG_PRICE
from tgi_deploy.wiring import target_of


def bring_up(around, **changes):
    return up(around.context(), request(**changes)).deployment


def take_down(around, **changes):
    return down(around.context(**changes), ["demo"], lambda _removals: True)


def only(outcome):
    (receipt,) = outcome.receipts
    return receipt


def test_the_amount_is_seconds_times_price_to_the_millionth(around):
    price = bring_up(around).usd_per_hour
    around.clock.sleep(727)
    receipt = only(take_down(around))
    assert receipt.seconds == 727
    assert receipt.usd == (price * 727 / 3600).quantize(Decimal("0.000001"))
    assert receipt.exact


def test_every_resource_is_listed_with_its_times(around):
    deployment = bring_up(around)
    around.clock.sleep(100)
    receipt = only(take_down(around))
    assert {line.kind for line in receipt.lines} == {"security-group", "launch-template", "instance"}
    assert {line.region for line in receipt.lines} == {"us-east-1"}
    assert {line.id for line in receipt.lines} == {item.attributes["id"] for item in deployment.resources}
    for line in receipt.lines:
        assert line.created == around.clock.now() - timedelta(seconds=100)
        assert line.removed_at == around.clock.now()


def test_only_machines_have_a_cost(around):
    bring_up(around)
    around.clock.sleep(100)
    receipt = only(take_down(around))
    assert [line.kind for line in receipt.lines if line.usd is not None] == ["instance"]


def test_the_stored_receipt_matches_the_output_and_its_hash(around):
    bring_up(around)
    receipt = only(take_down(around))
    (path,) = (around.home / "receipts").iterdir()
    assert str(path) == receipt.path
    assert path.name == f"demo-{receipt.id}.json"
    written = json.loads(path.read_text())
    assert written == receipt.document()
    assert is_untouched(written)


def test_a_second_removal_keeps_the_first_receipt(around):
    """A resource that appeared after the removal is removed by its tags, which have the same id."""
    bring_up(around)
    (late,) = around.world.running()
    around.clock.sleep(100)
    first = only(take_down(around))
    around.world.things["i-late"] = replaced(late, attributes={**late.attributes, "id": "i-late"})
    around.clock.sleep(100)
    second = only(take_down(around))
    assert first.id == second.id
    assert json.loads(Path(first.path).read_text()) == first.document()
    assert json.loads(Path(second.path).read_text()) == second.document()
    assert [line.id for line in second.machines] == ["i-late"]


def changed(value):
    if isinstance(value, list):
        return [*value, "more"]
    if isinstance(value, dict):
        return {**value, "usd": "0"}
    return value + 1 if isinstance(value, int) else f"{value}x"


def test_tampering_with_any_part_is_detected(around):
    bring_up(around)
    around.clock.sleep(60)
    good = only(take_down(around)).document()
    for key, value in good.items():
        assert not is_untouched({**good, key: changed(value)}), key
    assert not is_untouched({**good, "added": None})
    assert not is_untouched({key: value for key, value in good.items() if key != "sha256"})


def test_a_leftover_volume_is_on_the_receipt(around):
    bring_up(around)
    around.world.leaves_volume = True
    receipt = only(take_down(around))
    (volume,) = [line for line in receipt.lines if line.kind == "volume"]
    assert volume.removed_at is not None
    assert volume.usd is None


def test_machines_of_earlier_candidates_are_on_the_receipt(around):
    around.world.deaths = ["Server.InsufficientInstanceCapacity"] * 2
    bring_up(around, plan=plan(on("g6e.xlarge", region="eu-west-1")))
    around.clock.sleep(3600)
    receipt = only(take_down(around))
    assert sorted(line.region for line in receipt.machines) == ["eu-west-1", "us-east-1", "us-east-1"]
    assert set(receipt.regions) == {"eu-west-1", "us-east-1"}
    assert receipt.seconds >= 3600


def test_a_self_terminated_machine_costs_at_most_until_its_limit(around):
    deployment = bring_up(around, settings={"ttl_s": 1800})
    machine = around.world.running()[0]
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    around.clock.sleep(7200)
    receipt = only(take_down(around))
    assert receipt.seconds == 1800
    assert not receipt.exact
    assert receipt.usd == (deployment.usd_per_hour / 2).quantize(Decimal("0.000001"))
    assert receipt.document()["cost"]["bound"] == "at_most"
    assert "at most 30 min" in receipt.sentence(target_of)


def test_a_replaced_self_terminated_machine_costs_at_most_until_its_own_limit(around):
    settings = {"ttl_s": 1800}
    bring_up(around, settings=settings)
    machine = around.world.running()[0]
    around.world.things[machine.id] = replaced(machine, state="terminated", alive=False)
    around.clock.sleep(7200)
    bring_up(around, settings=settings)
    around.clock.sleep(600)
    receipt = only(take_down(around))
    assert sorted(line.seconds for line in receipt.machines) == [600, 1800]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_down_killed_at_any_point_loses_no_time_and_no_resource(tmp_path, moment):
    for point in range(40):
        around = FakeComputer(home=tmp_path / str(point))
        bring_up(around)
        around.clock.sleep(600)
        kill_down(around, point, moment)
        around.clock.sleep(60)
        outcome = take_down(around)
        if not outcome.receipts:  # it was finished before it could be killed
            assert point > 10
            break
        receipt = only(outcome)
        assert len(receipt.lines) == 3, point
        assert 600 <= receipt.seconds <= 661, point
    else:
        pytest.fail("the removal never got to its end")


def kill_down(around, point, moment):
    seen = [0]

    def strike(*_):
        seen[0] += 1
        if seen[0] > point:
            raise KilledError

    setattr(around.world, "on_call" if moment == "before" else "after_call", strike)
    with suppress(KilledError):
        take_down(around)
    around.world.on_call = around.world.after_call = None


def test_without_the_record_tags_have_age_and_price(around):
    price = bring_up(around).usd_per_hour
    around.store.remove("demo")
    around.clock.sleep(900)
    receipt = only(take_down(around))
    assert receipt.seconds == 900
    assert receipt.usd == (price / 4).quantize(Decimal("0.000001"))


def test_without_a_price_the_cost_is_unknown_not_zero(around):
    bring_up(around)
    around.store.remove("demo")
    machine = around.world.running()[0]
    around.world.things[machine.id] = replaced(
        machine, tags={name: value for name, value in machine.tags.items() if name != TAG_PRICE}
    )
    around.clock.sleep(900)
    receipt = only(take_down(around))
    assert receipt.usd is None
    assert receipt.document()["cost"]["usd"] is None
    assert "at an unknown price" in receipt.sentence(target_of)


def test_leftovers_are_on_the_receipt_with_their_commands(around):
    bring_up(around)
    around.world.slow_to_end = 10**9
    with pytest.raises(LeftBehindError) as caught:
        take_down(around)
    (item,) = caught.value.data["not_removed"]
    assert item["command"] == f"aws ec2 terminate-instances --instance-ids {item['id']} --region us-east-1"
    (path,) = caught.value.data["receipt_files"]
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 -- a path as text
        written = json.load(file)
    assert (written["status"], written["left"][0]["id"]) == ("incomplete", item["id"])
    assert written["cost"]["usd"] is None
    around.world.slow_to_end = 1
    finished = only(take_down(around))
    assert finished.document()["status"] == "removed"
    assert finished.usd is not None


def test_a_removal_by_a_failed_up_has_a_receipt(around):
    def refuse(name, _properties):
        if name == "create instance":
            raise NoCapacityError("none")

    around.world.on_call = refuse
    with pytest.raises(NoCapacityError):
        bring_up(around)
    (path,) = (around.home / "receipts").iterdir()
    written = json.loads(path.read_text())
    assert {line["kind"] for line in written["resources"]} == {"security-group", "launch-template"}
    assert written["cost"] == {"seconds": 0, "usd": "0", "bound": "exact"}


def kill_at_the_launch(around):
    def kill(name, _properties):
        if name == "create instance":
            raise KilledError

    around.world.on_call = kill
    with pytest.raises(KilledError):
        bring_up(around)
    around.world.on_call = None


def come_to_light(around, after_s):
    """Make the machine of the lost launch visible `after_s` from now; it uses the group."""
    started, world = around.clock.seconds, around.world
    group = world.there("security-group")[0]

    def appear(_name, _properties):
        if around.clock.seconds - started > after_s and "late" not in world.tokens:
            world.tokens["late"] = "late"
            tags = {**group.tags, "tgi-deploy:key": "instance"}
            world.properties["late"] = {"group": group.id}
            world.things["late"] = replaced(
                group,
                key="instance",
                kind="instance",
                is_machine=True,
                state="running",
                attributes={"id": "late"},
                tags=tags,
            )

    world.on_call = appear


def test_a_lost_launch_is_awaited_before_it_counts_as_missing(around):
    """Killed right after asking: the machine becomes visible half a minute later, and `down` must not miss it."""
    kill_at_the_launch(around)
    come_to_light(around, after_s=30)
    receipt = only(take_down(around))
    assert "late" in {line.id for line in receipt.lines}
    assert around.world.left() == []


def test_a_launch_that_becomes_visible_during_the_removal_is_removed(around):
    """It is no longer awaited, but the group that it uses reveals it."""
    kill_at_the_launch(around)
    around.clock.sleep(3600)
    world = around.world
    group = world.there("security-group")[0]

    def appear(name, _properties):
        if name == "delete security-group" and "late" not in world.tokens:
            come_to_light(around, after_s=-1)
            world.on_call("", {})
            world.properties["late"] = {"group": group.id}

    world.on_call = appear
    started = around.clock.seconds
    receipt = only(take_down(around))
    assert "late" in {line.id for line in receipt.lines}
    assert world.left() == []
    assert around.clock.seconds - started < 60


def test_a_machine_that_is_not_visible_yet_is_terminated_anyway(around):
    """It is on record and a second old, so being invisible does not mean that it is missing."""
    made = bring_up(around).machine.attributes["id"]
    around.clock.sleep(1)
    around.world.hidden.add(made)
    receipt = only(take_down(around))
    assert made in {line.id for line in receipt.lines}
    assert around.world.left() == []


def test_an_old_resource_that_is_not_visible_counts_as_missing(around):
    made = bring_up(around).machine.attributes["id"]
    around.clock.sleep(3600)
    del around.world.things[made]
    take_down(around)
    assert ("delete instance", made) not in around.world.calls


def line(**changes):
    values = {"kind": "instance", "id": "i-1", "region": "r", "created": moment_of("2026-01-09T00:00:00+00:00")}
    return Line(**(values | changes))


def test_a_line_without_times_or_price_has_no_cost():
    assert line().seconds is None
    assert line(removed_at=moment_of("2026-01-09T00:00:10+00:00")).usd is None
    assert line(created=None, removed_at=moment_of("2026-01-09T00:00:10+00:00"), usd_per_hour=Decimal(1)).usd is None


def test_a_slow_clock_causes_no_negative_cost():
    early = line(removed_at=moment_of("2026-01-08T23:59:50+00:00"), usd_per_hour=Decimal(1))
    assert (early.seconds, early.usd) == (0, 0)


@pytest.mark.parametrize(("ahead_s", "bound"), [(-300, "at_most"), (0, "exact"), (40, "exact"), (300, "at_most")])
def test_clocks_that_differ_make_an_amount_an_upper_bound(around, ahead_s, bound):
    """The launch time comes from the cloud, the removal time from this computer."""
    around.world.time = around.clock.monotonic
    around.clock.ahead_s = ahead_s
    bring_up(around)
    around.clock.sleep(1800)
    receipt = only(take_down(around))
    assert receipt.document()["cost"]["bound"] == bound
    assert receipt.seconds >= 1800
    assert {line["removed_is"] for line in receipt.document()["resources"]} == {"observed"}


def test_events_without_a_resource_add_no_lines(around):
    events = [Event(at=around.clock.now(), deployment="demo", code="ready", text="it serves")]
    assert Ledger.of(events).lines == {}


@pytest.mark.parametrize("code", ["missing", "gone"])
def test_histories_of_both_releases_show_when_a_machine_was_found_missing(around, code):
    data = {"kind": "instance", "id": "i-1", "region": "us-east-1", "is_machine": True}
    created = Event(at=around.clock.now(), deployment="demo", code="created", text="", data=data)
    around.clock.sleep(60)
    missing = Event(at=around.clock.now(), deployment="demo", code=code, text="", data=data)
    machine = Ledger.of([created, missing]).lines["i-1"]
    assert (machine.seconds, machine.exact) == (60, False)


@pytest.mark.parametrize("text", [None, "", "soon", "2026-01-09T00:00:00", 7])
def test_invalid_moments(text):
    assert moment_of(text) is None


@pytest.mark.parametrize("text", [None, "", "free", "NaN", "Infinity", "-1"])
def test_invalid_money(text):
    assert money(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45 s"), (64.6, "65 s"), (727, "12 min"), (7199, "120 min"), (12000, "3 h 20 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_the_summary_line(around):
    bring_up(around)
    around.clock.sleep(727)
    receipt = only(take_down(around))
    assert receipt.sentence(target_of) == "demo ran 12 min, cost about $0.38"
