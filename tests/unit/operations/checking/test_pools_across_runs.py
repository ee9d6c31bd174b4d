"""Pools without capacity are skipped for a while, also by later runs, and so are exceeded quotas."""

from __future__ import annotations

import json

import pytest
from fakes.computer import on, plan, request
from fakes.inspection import FakeInspector, survey_of

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.reconcile.errors import NoCapacityError, QuotaError
from tgi_deploy.targets.ec2.pools import MEMORY_S, TOPIC, PoolMemory

G = on("g6e.xlarge", quota="L-DB2E81BA")
P = on("p4d.24xlarge", quota="L-417A185B")
COMMAND = (
    "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-DB2E81BA "
    "--desired-value 4 --region us-east-1"
)


def refuse(around, error, *, when=lambda _request: True):
    def fail(name, properties):
        if name == "create instance" and when(properties["request"]):
            raise error

    around.world.on_call = fail


def zone_of(properties):
    return properties["Placement"]["AvailabilityZone"]


def asked_zones(around):
    return [zone_of(properties["request"]) for kind, properties, _ in around.world.creations if kind == "instance"]


def fail_in(around, zone):
    """A run without capacity in `zone`, of which only the remembered pools remain."""
    refuse(around, NoCapacityError("full", cause="InsufficientInstanceCapacity"), when=lambda r: zone_of(r) == zone)
    up(around.context(), request())
    around.world.on_call = None
    around.world.things.clear()
    around.world.creations.clear()
    around.recorder.lines.clear()
    around.store.remove("demo")


def test_the_next_run_tries_other_pools_first_and_reports_it(around):
    fail_in(around, "us-east-1a")
    around.clock.sleep(60)
    up(around.context(), request())
    assert asked_zones(around) == ["us-east-1b"]
    reported = [line for line in around.recorder.lines if "us-east-1a" in line and "skipped for now" in line]
    assert len(reported) == 1
    assert "InsufficientInstanceCapacity 60 s ago" in reported[0]


def test_after_three_minutes_it_is_forgotten(around):
    fail_in(around, "us-east-1a")
    around.clock.sleep(MEMORY_S + 1)
    up(around.context(), request())
    assert asked_zones(around) == ["us-east-1a"]


def test_if_every_pool_is_remembered_as_full_all_are_tried_anyway(around):
    around.world.zones = ("a",)
    memory = PoolMemory(around.clock, around.store)
    memory.failed("us-east-1/us-east-1a/g6e.xlarge/on-demand", "full")
    assert up(around.context(), request(plan(chosen=G))).changed
    assert asked_zones(around) == ["us-east-1a"]
    assert any("retrying those that had no capacity" in line for line in around.recorder.lines)


def test_remembered_pools_are_tried_last(around):
    fail_in(around, "us-east-1a")
    refuse(around, NoCapacityError("full", cause="Full"), when=lambda r: zone_of(r) == "us-east-1b")
    up(around.context(), request())
    assert asked_zones(around) == ["us-east-1a"]


@pytest.mark.parametrize(
    "garbage",
    [
        "", "{", "[]", "null", '{"schema": 2, "pools": {}}', '{"schema": 1, "pools": 3}',
        '{"schema": 1, "pools": {"p": 1, "q": {"at": 5}, "r": {"at": "when"}, "s": {"at": "2026-01-09T00:00:00"}}}',
        '{"schema": 1, "pools": {"p": {"at": "2036-01-09T00:00:00+00:00", "why": "a clock set back"}}}',
        '{"schema": 1, "pools": {"p": {"at": "2016-01-09T00:00:00+00:00", "why": "long ago"}}}',
        "\x00\xff" * 9,
    ],
)  # fmt: skip
def test_an_invalid_pools_file_is_ignored(around, garbage):
    (around.home / f"{TOPIC}.json").write_text(garbage, encoding="latin-1")
    memory = PoolMemory(around.clock, around.store)
    assert memory.earlier() == {}
    memory.failed("q", "full")
    assert list(PoolMemory(around.clock, around.store).earlier()) == ["q"]


def test_expired_pools_are_removed_from_the_file(around):
    PoolMemory(around.clock, around.store).failed("old", "full")
    around.clock.sleep(MEMORY_S)
    PoolMemory(around.clock, around.store).failed("new", "full")
    document = json.loads((around.home / f"{TOPIC}.json").read_text())
    assert list(document["pools"]) == ["new"]


def test_a_full_disk_does_not_fail_a_launch(around, monkeypatch):
    def full(*_):
        raise DeployError("state_unusable", "the disk is full")

    store = around.store
    monkeypatch.setattr(type(store), "remember", full)
    monkeypatch.setattr(type(store), "recall", full)
    memory = PoolMemory(around.clock, store)
    memory.failed("p", "full")
    assert memory.is_out("p")
    assert memory.earlier() == {}


def test_an_unoffered_type_is_not_remembered_as_full(around):
    around.world.zones = ()
    with pytest.raises(NoCapacityError):
        up(around.context(), request())
    assert not (around.home / f"{TOPIC}.json").exists()


@pytest.mark.parametrize("cause", ["VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"])
def test_an_exceeded_quota_prints_code_limit_usage_and_request(around, cause):
    refuse(around, QuotaError("no", cause=cause))
    context = around.context(targets=around.targets(survey=survey_of(FakeInspector(limit=0.0))))
    with pytest.raises(QuotaError) as caught:
        up(context, request(plan(chosen=G), preflight=False))
    (warned,) = [line for line in around.recorder.lines if line.startswith("quota_exceeded")]
    for reported in (warned, caught.value.hint):
        assert "quota L-DB2E81BA (Running On-Demand G and VT instances) in us-east-1: limit 0, in use 0" in reported
        assert COMMAND in reported
    (numbers,) = caught.value.data["quotas"]
    assert numbers == {
        "quota_code": "L-DB2E81BA",
        "quota_name": "Running On-Demand G and VT instances",
        "region": "us-east-1",
        "limit_vcpus": 0,
        "used_vcpus": 0,
        "needed_vcpus": 4,
        "command": COMMAND,
    }
    assert cause in caught.value.message


@pytest.mark.parametrize("cause", ["VolumeLimitExceeded", "Client.VolumeLimitExceeded", "MaxIOPSLimitExceeded"])
def test_a_volume_quota_does_not_suggest_more_vcpus(around, cause):
    refuse(around, QuotaError("no", cause=cause))
    context = around.context(targets=around.targets(survey=survey_of(FakeInspector(limit=0.0))))
    with pytest.raises(QuotaError) as caught:
        up(context, request(plan(chosen=G), preflight=False))
    assert not any(
        "vCPU" in reported or COMMAND in reported for reported in (*around.recorder.lines, caught.value.hint)
    )
    assert cause in caught.value.message


def test_an_exceeded_quota_skips_the_family_and_is_in_the_final_error(around):
    def fail(name, properties):
        if name == "create instance" and properties["request"]["InstanceType"].startswith("g6e"):
            raise QuotaError("no", cause="VcpuLimitExceeded")
        if name == "create instance":
            raise NoCapacityError("full", cause="InsufficientInstanceCapacity")

    around.world.on_call = fail
    inspector = FakeInspector(limit=DeployError("request_refused", "no such service"))
    context = around.context(targets=around.targets(survey=survey_of(inspector)))
    with pytest.raises(NoCapacityError) as caught:
        up(context, request(plan(on("g6e.2xlarge", quota="L-DB2E81BA"), P, chosen=G), preflight=False))
    asked = [name for name, _ in around.world.calls if name == "create instance"]
    assert len(asked) == 3, "one of the family, then both zones of the other"
    assert "limit unknown, in use 0" in caught.value.hint
    assert COMMAND in caught.value.hint


def test_without_a_quota_lookup_the_request_is_still_printed(around):
    refuse(around, QuotaError("no", cause="VcpuLimitExceeded"))
    with pytest.raises(QuotaError) as caught:
        up(around.context(), request(plan(chosen=G)))
    assert COMMAND in caught.value.hint
