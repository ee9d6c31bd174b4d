"""Limits of a machine that runs: set, moved, lifted, refused, renewed while waiting, shown, and honored by `gc`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from fakes.computer import on, plan, request

from tgi_deploy.errors import ConflictError, DeployError, InputError, LeftBehindError
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.operations.watching.limits import LeaseKeeper
from tgi_deploy.operations.watching.listing import list_deployments
from tgi_deploy.operations.watching.status import status
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.clocks import CLOCKS_APART
from tgi_deploy.reconcile.ends import (
    READS_TAGS,
    TAG_IDLE_S,
    TAG_LEASE,
    TAG_LEASE_S,
    TAG_MAX_SPEND,
    certain_end,
    ends_of,
    stamp,
)
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.resource import RECLAIMED, TAG_EXPIRES, MachineState

HOUR = {"lease_s": 3600}
RENEW = WantedEnds()
APART_S = CLOCKS_APART.total_seconds()
START = datetime(2026, 1, 9, tzinfo=UTC)


def bring_up(around, **settings):
    return up(around.context(), request(settings=settings)).deployment


def tag(around):
    (machine,) = around.world.running()
    return machine.tags[TAG_LEASE].partition(" ")[0]


def test_limits_are_in_record_and_tags(around):
    deployment = bring_up(around, idle_s=900, **HOUR)
    assert (deployment.ends.idle_s, deployment.ends.lease_s) == (900, 3600)
    assert around.store.load("demo") == deployment
    for found in around.world.left():
        assert (found.tags[TAG_IDLE_S], found.tags[TAG_LEASE_S]) == ("900", "3600")
    assert tag(around) == stamp(deployment.ends.lease_until)


def test_renewing_updates_tag_and_record(around):
    bring_up(around, **HOUR)
    around.clock.sleep(1800)
    found = extend(around.context(), "demo", RENEW)
    assert found.lease.at == around.clock.now() + timedelta(seconds=3600)
    assert tag(around) == stamp(found.lease.at)
    assert around.store.load("demo").ends.lease_until == found.lease.at
    assert [end.reason for end in found.ends] == ["lease"]
    assert found.machine_id == around.world.running()[0].id


def test_a_lease_can_be_renewed_with_another_length(around):
    bring_up(around, **HOUR)
    assert extend(around.context(), "demo", WantedEnds(lease_s=7200)).lease.at == around.clock.now() + timedelta(
        seconds=7200
    )


def test_renewing_a_lease_keeps_an_earlier_limit(around):
    bring_up(around, ttl_s=1800, **HOUR)
    found = extend(around.context(), "demo", WantedEnds(lease_s=7200))
    assert [end.reason for end in found.ends] == ["ttl", "lease"]


def test_renew_from_a_computer_without_the_record(around, tmp_path):
    bring_up(around, **HOUR)
    around.clock.sleep(600)
    other = replace(around, home=tmp_path / "other")
    found = extend(other.context(), "demo", RENEW)
    assert tag(around) == stamp(found.lease.at) == stamp(around.clock.now() + timedelta(seconds=3600))
    assert other.store.load("demo") is None


def test_a_renewal_from_another_computer_overrides_an_older_record(around, tmp_path):
    bring_up(around, **HOUR)
    around.clock.sleep(3000)
    extend(replace(around, home=tmp_path / "other").context(), "demo", RENEW)
    around.clock.sleep(3000)
    assert extend(around.context(), "demo", RENEW).lease.at > around.clock.now()


def refused(around, name="demo"):
    with pytest.raises(DeployError) as caught:
        extend(around.context(), name, RENEW)
    assert caught.value.hint
    return caught.value


def test_a_deployment_without_a_lease_cannot_be_renewed(around):
    error = refused(around)
    assert (type(error), error.code) == (InputError, "unknown_deployment")
    bring_up(around)
    error = refused(around)
    assert (type(error), error.code) == (InputError, "no_lease")


def test_an_expired_lease_cannot_be_renewed(around):
    bring_up(around, **HOUR)
    before = tag(around)
    around.clock.sleep(3601 + APART_S)
    error = refused(around)
    assert (type(error), error.code) == (ConflictError, "already_ending")
    assert tag(around) == before


def test_a_lease_expired_only_by_the_local_clock_is_renewed(around):
    """The machine is still alive, and uses its own clock."""
    bring_up(around, **HOUR)
    around.clock.sleep(3500)
    around.clock.ahead_s = 300
    assert extend(around.context(), "demo", RENEW).lease.at == around.clock.now() + timedelta(seconds=3600)


def test_a_terminated_machine_is_not_renewed(around):
    bring_up(around, **HOUR)
    (machine,) = around.world.running()
    around.world.things[machine.id] = replaced(machine, state="shutting-down", alive=False)
    assert refused(around).code == "machine_missing"


def test_a_failed_renewal_does_not_change_the_record(around):
    deployment = bring_up(around, **HOUR)

    def fail(name, _properties):
        if name == "update instance":
            raise DeployError("throttled", "too many calls")

    around.world.on_call = fail
    with pytest.raises(DeployError, match="too many"):
        extend(around.context(), "demo", RENEW)
    assert around.store.load("demo") == deployment


def test_waiting_renews_every_third_of_the_lease(around):
    deployment = bring_up(around, **HOUR)
    keeper = LeaseKeeper.of(around.context(), deployment)
    listener = keeper.kept_by(around.context()).listener
    before = len(moves(around))
    for _ in range(60):
        listener.phase("loading", "", 0, 0)
        around.clock.sleep(60)
    assert len(moves(around)) - before == 3
    assert tag(around) == stamp(keeper.until)
    listener.line("said")
    assert around.recorder.lines[-2:] == ["loading", "said"]


def moves(around):
    return [call for call in around.world.calls if call[0] == "update instance"]


def test_waiting_without_a_lease_makes_no_calls(around):
    keeper = LeaseKeeper.of(around.context(), bring_up(around))
    keeper.beat()
    assert moves(around) == []


def test_waiting_continues_after_a_failed_renewal_and_retries(around):
    deployment = bring_up(around, **HOUR)
    keeper = LeaseKeeper.of(around.context(), deployment)
    left = [1]

    def fail(name, _properties):
        if name == "update instance" and left.pop():
            raise DeployError("throttled", "too many calls")

    around.world.on_call = fail
    keeper.beat()
    assert keeper.until == deployment.ends.lease_until
    assert "lease_not_renewed the lease could not be renewed: too many calls" in around.recorder.lines
    around.world.on_call = None
    around.clock.sleep(401)
    keeper.beat()
    assert keeper.until == around.clock.now() + timedelta(seconds=3600)


def test_up_records_what_waiting_renewed(around):
    outcome = up(around.context(), request(settings=HOUR, wait=True))
    assert outcome.deployment.status == "ready"
    assert stamp(around.store.load("demo").ends.lease_until) == tag(around)
    assert down(around.context(), ("demo",), lambda _removals: True)


def collect(around):
    return gc(around.context(), GcRequest(older_than_s=60, confirm=lambda _groups: True))


@pytest.mark.parametrize(
    ("terms", "passed_s", "collected"),
    [
        (HOUR, 3600 + APART_S, False),
        (HOUR, 3601 + APART_S, True),
        ({"idle_s": 900}, 90_000, False),
        ({"ttl_s": 1800, **HOUR}, 1801 + APART_S, True),
        ({"ttl_s": 7200, **HOUR}, 3601 + APART_S, True),
        ({"ttl_s": 7200, "idle_s": 900}, 3601 + APART_S, False),
    ],
    ids=("lease", "lease-over", "idle", "ttl-first", "lease-first", "idle-is-never-certain"),
)
def test_gc_applies_every_certain_limit(around, terms, passed_s, collected):
    bring_up(around, **terms)
    around.clock.sleep(passed_s)
    collect(around)
    assert (around.world.left() == []) == collected


def test_gc_never_misses_a_renewal(around, tmp_path):
    """The record and the tags of group and template still have the first end."""
    bring_up(around, **HOUR)
    around.clock.sleep(3000)
    extend(replace(around, home=tmp_path / "other").context(), "demo", RENEW)
    around.clock.sleep(1000)
    outcome = collect(around)
    assert around.world.running()
    assert outcome.receipts == ()


def test_status_and_list_show_every_limit(around):
    bring_up(around, ttl_s=1800, idle_s=900, **HOUR)
    found = status(around.context(), "demo").ends
    assert [(end.reason, end.seconds) for end in found] == [("ttl", None), ("lease", 3600), ("idle", 900)]
    (row,) = list_deployments(around.context()).rows
    assert row.ends == found
    assert row.expires == "2026-01-09T00:30:00+00:00"


def test_limits_are_known_from_tags_alone(around, tmp_path):
    bring_up(around, ttl_s=7200, idle_s=900, **HOUR)
    other = replace(around, home=tmp_path / "other")
    assert [end.reason for end in status(other.context(), "demo").ends] == ["lease", "ttl", "idle"]


@pytest.mark.parametrize("text", ["", "soon", "2026-01-09", "2026-01-09T00:00:00"])
def test_impossible_tags_are_ignored(text):
    assert ends_of(None, [{TAG_EXPIRES: text, TAG_LEASE: text, TAG_IDLE_S: text}]) == ()


def test_an_extension_from_anywhere_applies():
    tags = [{TAG_LEASE: stamp(START + timedelta(hours=hours))} for hours in (1, 3, 2)]
    assert certain_end(ends_of(None, tags)) == START + timedelta(hours=3)


def spot_around(around, **answers):
    wanted = plan(chosen=on("g6e.xlarge", market="spot"))
    up(around.context(), request(wanted))
    around.probe = Probe(**answers)
    context = around.context()
    return context, status(context, "demo").spot_notice


def test_the_console_of_a_healthy_spot_machine_is_not_read(around, monkeypatch):
    monkeypatch.setattr("fakes.cloud.FakeCloud.console", lambda *_args: pytest.fail("the console was read"))
    assert spot_around(around, outcome="status", status=200)[1] is None


def test_a_notice_on_the_console_is_shown(around, monkeypatch):
    text = "[tgi-deploy] spot-notice action=terminate time=2026-11-21T12:00:00Z\n"
    monkeypatch.setattr("fakes.cloud.FakeCloud.console", lambda *_args: text)
    shown = spot_around(around, outcome="refused")[1]
    assert shown == "the cloud is reclaiming the spot machine: terminate at 2026-11-21T12:00:00Z"


def test_a_reclaimed_machine_is_shown(around, monkeypatch):
    state = MachineState(state="shutting-down", reclaimed=True, reason_code="Taken", reason="no room")
    context, _ = spot_around(around, outcome="refused")
    monkeypatch.setattr("fakes.cloud.FakeCloud.machine", lambda *_args: state)
    assert status(context, "demo").spot_notice == "the cloud reclaimed the spot machine: no room"


def test_a_marked_spot_request_is_shown(around):
    context, _ = spot_around(around, outcome="refused")
    (machine,) = around.world.running()
    marked = replaced(
        machine,
        key="spot-request:sir-1",
        kind="spot-request",
        attributes={"id": "sir-1", RECLAIMED: "marked-for-termination"},
        attached=True,
    )
    around.world.things[marked.id] = marked
    assert "sir-1 is marked-for-termination" in (status(context, "demo").spot_notice or "")


def test_a_failed_removal_is_not_hidden_by_a_lease(around):
    bring_up(around, **HOUR)
    around.clock.sleep(3601 + APART_S)

    def stuck(name, _properties):
        if name == "delete instance":
            raise LeftBehindError("left_behind", "it stays", data={"not_removed": []})

    around.world.on_call = stuck
    with pytest.raises(LeftBehindError):
        collect(around)


def tags(around):
    (machine,) = around.world.running()
    return machine.tags


def extended(around, name="demo", **limits):
    return extend(around.context(), name, WantedEnds(**limits))


def no_way(around, **limits):
    with pytest.raises(DeployError) as caught:
        extended(around, **limits)
    assert caught.value.hint
    return caught.value.code


def later(around, **passed):
    return around.clock.now() + timedelta(**passed)


def test_a_time_to_live_counts_from_the_command(around):
    bring_up(around, ttl_s=3600)
    around.clock.sleep(1800)
    found = extended(around, ttl_s=7200)
    assert [end.at for end in found.ends] == [later(around, hours=2)]
    assert tags(around)[TAG_EXPIRES] == f"{stamp(later(around, hours=2))} 7200"
    ends = around.store.load("demo").ends
    assert (ends.expires_at, ends.ttl_s, ends.made_with.ttl_s) == (later(around, hours=2), 7200, 3600)


@pytest.mark.parametrize(
    ("made_with", "lifted"),
    [
        ({"ttl_s": 3600}, {"ttl_s": 0}),
        ({"idle_s": 3600}, {"idle_s": 0}),
        ({"lease_s": 3600}, {"lease_s": 0}),
        ({"max_spend_usd": Decimal(9)}, {"max_spend_usd": Decimal(0)}),
    ],
)
def test_a_lifted_limit_terminates_nothing(around, made_with, lifted):
    bring_up(around, **made_with)
    assert extended(around, **lifted).ends == ()
    assert "none" in tags(around).values()
    assert not around.store.load("demo").ends.any
    around.clock.sleep(90_000)
    assert status(around.context(), "demo").ends == ()
    collect(around)
    assert around.world.running()


def test_a_limit_can_be_added_to_a_running_machine(around):
    bring_up(around)
    found = extended(around, ttl_s=7200, idle_s=900, lease_s=3600)
    assert [end.reason for end in found.ends] == ["lease", "ttl", "idle"]
    assert tags(around)[TAG_IDLE_S] == "900"
    assert status(around.context(), "demo").ends == found.ends


def test_max_spend_terminates_the_machine_when_it_is_spent(around):
    price = bring_up(around).usd_per_hour
    around.clock.sleep(3600)
    extended(around, max_spend_usd=price * 3)
    assert around.store.load("demo").ends.expires_at == later(around, hours=2)
    assert no_way(around, max_spend_usd=price) == "max_spend_reached"


@pytest.mark.parametrize("written", ["a lot", "sNaN", "-3", ""])
def test_an_invalid_max_spend_tag_does_not_break_extend(around, written):
    bring_up(around, max_spend_usd=Decimal(90))
    (machine,) = around.world.running()
    tampered = replaced(machine, tags={**machine.tags, TAG_MAX_SPEND: written})
    around.world.things = {**around.world.things, machine.id: tampered}
    assert extended(around, ttl_s=7200).ends[0].at == later(around, hours=2)
    assert around.store.load("demo").ends.max_spend_usd == Decimal(90)


def test_the_earlier_of_ttl_and_max_spend_applies(around):
    price = bring_up(around, ttl_s=36_000).usd_per_hour
    begun = around.clock.now()
    around.clock.sleep(3600)
    extended(around, max_spend_usd=price * 3)
    assert extended(around, ttl_s=36_000).ends[0].at == later(around, hours=2)
    assert extended(around, max_spend_usd=Decimal(0)).ends[0].at == begun + timedelta(hours=11)


def test_another_computer_can_change_the_limits_it_can_compute(around, tmp_path):
    price = bring_up(around, ttl_s=36_000).usd_per_hour
    around.clock.sleep(3600)
    elsewhere = replace(around, home=tmp_path / "other")
    assert extended(elsewhere, max_spend_usd=price * 30).ends[0].at == later(around, hours=9), "--ttl stays"
    assert no_way(elsewhere, max_spend_usd=price * 3) == "limit_unknown", "--ttl or the ceiling"
    extended(elsewhere, max_spend_usd=price * 3, ttl_s=0)
    assert tags(around)[TAG_EXPIRES] == f"{stamp(later(around, hours=2))} 7200"
    assert extended(around, ttl_s=36_000).ends[0].at == later(around, hours=2), "the ceiling is not forgotten here"


def test_max_spend_keeps_a_ttl_moved_on_another_computer(around, tmp_path):
    price = bring_up(around, ttl_s=3600).usd_per_hour
    extended(replace(around, home=tmp_path / "other"), ttl_s=36_000)
    assert extended(around, max_spend_usd=price * 30).ends[0].at == later(around, hours=10)


def test_limits_changed_elsewhere_override_an_older_record(around, tmp_path):
    bring_up(around, ttl_s=36_000)
    extended(replace(around, home=tmp_path / "other"), ttl_s=600, lease_s=0)
    assert [end.at for end in status(around.context(), "demo").ends] == [later(around, seconds=600)]


def test_waiting_does_not_renew_a_lease_lifted_elsewhere(around, tmp_path):
    keeper = LeaseKeeper.of(around.context(), bring_up(around, **HOUR))
    extended(replace(around, home=tmp_path / "other"), lease_s=0)
    keeper.beat()
    assert tag(around) == "none"


@pytest.fixture
def older(around):
    """A machine of a version that read only the tag of its lease."""
    bring_up(around, ttl_s=36_000, **HOUR)
    (machine,) = around.world.running()
    kept = {name: value for name, value in machine.tags.items() if (name, value) != READS_TAGS}
    around.world.things[machine.id] = replaced(machine, tags=kept)
    return around


@pytest.mark.parametrize("limits", [{"ttl_s": 600}, {"idle_s": 600}, {"lease_s": 0}, {"ttl_s": 0, "lease_s": 600}])
def test_limits_that_an_earlier_version_ignores_are_rejected(older, limits):
    before = tags(older)
    assert no_way(older, **limits) == "limits_fixed"
    assert tags(older) == before


def test_the_lease_tag_of_an_earlier_version_keeps_its_format(older):
    until = extended(older, lease_s=7200).lease.at
    assert tags(older)[TAG_LEASE] == stamp(until)
    LeaseKeeper.of(older.context(), older.store.load("demo")).beat()
    assert " " not in tags(older)[TAG_LEASE]


def test_up_keeps_a_machine_of_an_earlier_version_with_its_limits(older):
    outcome = up(older.context(), request(settings={"ttl_s": 600, **HOUR}))
    assert [item.code for item in outcome.remarks] == ["limits_kept"]


def test_up_changes_limits_of_an_unresponsive_machine_in_place(around):
    before = bring_up(around, ttl_s=3600, max_spend_usd=Decimal(90))
    extended(around, idle_s=600)
    around.store.save(
        replaced(around.store.load("demo"), status="failed"), expected_serial=around.store.load("demo").serial
    )
    after = bring_up(around, ttl_s=7200, max_spend_usd=Decimal(80))
    assert after.machine.attributes["id"] == before.machine.attributes["id"]
    assert (after.ends.asked_ttl_s, after.ends.max_spend_usd, after.ends.idle_s) == (7200, Decimal(80), 600)
    assert len(around.world.running()) == 1


def test_a_receipt_counts_a_machine_until_its_extended_limit(around):
    price = bring_up(around, ttl_s=3600).usd_per_hour
    extended(around, ttl_s=7200)
    around.clock.sleep(90_000)
    (machine,) = around.world.running()
    del around.world.things[machine.id]
    (receipt,) = down(around.context(), ("demo",), lambda _removals: True).receipts
    assert receipt.usd == price * 2
