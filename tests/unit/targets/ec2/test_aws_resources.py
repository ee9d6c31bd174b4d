from __future__ import annotations

import time
from datetime import datetime

import pytest
from fakes.cloud import BEGINNING

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import (
    BadRequestError,
    InUseError,
    LostReplyError,
    NoCapacityError,
    PermissionDeniedError,
    QuotaError,
    StaleTokenError,
    ThrottledError,
)
from tgi_deploy.values.resource import TAG_ID, MachineState

TAGGED = {"Name", "tgi-deploy:deployment", "tgi-deploy:id", "tgi-deploy:spec", "tgi-deploy:key"}
MINE = {TAG_ID: "abc"}


def tags_on_the_wire(params, number=1):
    prefix = f"TagSpecification.{number}.Tag."
    return {value for name, value in params.items() if name.startswith(prefix) and name.endswith(".Key")}


def ended(bench, found, within_s=60.0):
    handler = bench.cloud().handler(found.kind)
    deadline = time.monotonic() + within_s
    while handler.read(found.attributes) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_group_is_tagged_on_creation_and_allows_only_the_caller(bench):
    found = bench.group()
    (created,) = bench.calls("CreateSecurityGroup")
    assert tags_on_the_wire(created) == TAGGED
    assert bench.cloud().handler("security-group").read(found.attributes).attributes["cidrs"] == (
        "2001:db8::7/128 203.0.113.7/32"
    )
    for call in bench.calls("AuthorizeSecurityGroupIngress"):
        assert (call["IpPermissions.1.FromPort"], call["IpPermissions.1.ToPort"]) == ("8080", "8080")


def test_allowing_a_network_twice_is_not_an_error(bench):
    found = bench.group()
    bench.cloud().handler("security-group").update(found.attributes, {"port": 8080, "cidrs": ["203.0.113.7/32"]})


def test_only_rules_of_this_tool_are_revoked(bench):
    found, groups = bench.group(), bench.cloud().handler("security-group")
    rule = {"IpProtocol": "tcp", "FromPort": 8080, "ToPort": 8080, "IpRanges": [{"CidrIp": "192.0.2.0/24"}]}
    api = bench.cloud().api
    api.sessions.client("ec2", api.region).authorize_security_group_ingress(GroupId=found.id, IpPermissions=[rule])
    assert groups.read(found.attributes).attributes["signed_cidrs"] == "2001:db8::7/128 203.0.113.7/32"
    change = {"port": 8080, "cidrs": ["198.51.100.0/24"], "revoked": ["203.0.113.7/32", "2001:db8::7/128"]}
    for _ in range(2):  # to repeat it changes nothing
        groups.update(found.attributes, change)
        assert groups.read(found.attributes).attributes["cidrs"] == "192.0.2.0/24 198.51.100.0/24"


def test_a_duplicate_group_name_means_search_first(bench):
    bench.group()
    with pytest.raises(LostReplyError):
        bench.group()


def test_a_group_in_use_raises_in_use(bench):
    bench.launch()
    (group,) = bench.cloud().handler("security-group").find(MINE)
    with pytest.raises(InUseError):
        bench.cloud().handler("security-group").delete(group.attributes)


@pytest.mark.parametrize("make", ["group", "template", "launch"])
def test_everything_is_found_by_its_tags_and_read_by_its_id(bench, make):
    made = getattr(bench, make)()
    handler = bench.cloud().handler(made.kind)
    assert [found.id for found in handler.find(MINE)] == [made.id]
    assert handler.find({TAG_ID: "another"}) == ()
    assert handler.read(made.attributes).id == made.id
    assert handler.find(MINE)[0].key == made.key


@pytest.mark.parametrize("make", ["group", "template", "launch"])
def test_deleting_twice_is_not_an_error(bench, make):
    made = getattr(bench, make)()
    handler = bench.cloud().handler(made.kind)
    handler.delete(made.attributes)
    ended(bench, made)
    handler.delete(made.attributes)
    assert handler.find(MINE) == ()


@pytest.mark.parametrize(
    ("kind", "unknown"),
    [
        ("security-group", "sg-0123456789abcdef0"),
        ("launch-template", "lt-0123456789abcdef0"),
        ("instance", "i-0123456789abcdef0"),
        ("volume", "vol-0123456789abcdef0"),
    ],
)
def test_an_unknown_id_is_missing(bench, kind, unknown):
    handler = bench.cloud().handler(kind)
    assert handler.read({"id": unknown}) is None
    handler.delete({"id": unknown})


def test_a_launch_request_has_the_required_parameters(bench):
    found = bench.launch(token="the-token")
    (call,) = bench.calls("RunInstances")
    assert call["ClientToken"] == "the-token"
    assert call["MetadataOptions.HttpTokens"] == "required"
    assert call["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert (call["MinCount"], call["MaxCount"]) == ("1", "1")
    assert call["LaunchTemplate.LaunchTemplateId"].startswith("lt-")
    kinds = {call[f"TagSpecification.{number}.ResourceType"] for number in (1, 2, 3)}
    assert kinds == {"instance", "volume", "network-interface"}
    machine = {*TAGGED, "tgi-deploy:limits"}  # what says that it reads its limits from its tags
    assert [tags_on_the_wire(call, number) for number in (1, 2, 3)] == [machine, TAGGED, TAGGED]
    assert found.attributes["zone"] == "us-east-1a"
    assert found.attributes["market"] == "on-demand"


def test_a_spot_launch_tags_its_request_too(bench):
    found = bench.launch(spot=True)
    (call,) = bench.calls("RunInstances")
    assert call["InstanceMarketOptions.MarketType"] == "spot"
    assert call["TagSpecification.4.ResourceType"] == "spot-instances-request"
    assert found.attributes["market"] == "spot"


def test_the_same_request_creates_one_machine(bench):
    handler, wanted, tags = bench.cloud().handler("instance"), bench.request(), {TAG_ID: "abc"}
    first, second = (handler.create(wanted, tags=tags, token="same") for _ in range(2))
    assert first.id == second.id
    assert len(handler.find(MINE)) == 1


def test_a_token_with_another_request_is_stale(bench):
    handler, wanted = bench.cloud().handler("instance"), bench.request()
    handler.create(wanted, tags={TAG_ID: "abc"}, token="same")
    with pytest.raises(StaleTokenError):
        handler.create(wanted, tags={TAG_ID: "xyz"}, token="same")


def test_a_token_of_an_ended_machine_is_stale(bench):
    handler, wanted = bench.cloud().handler("instance"), bench.request()
    first = handler.create(wanted, tags={TAG_ID: "abc"}, token="same")
    handler.delete(first.attributes)
    ended(bench, first)
    with pytest.raises(StaleTokenError):
        handler.create(wanted, tags={TAG_ID: "abc"}, token="same")


def test_a_new_machine_is_not_missing_until_known(bench):
    made = bench.launch()
    bench.fault(action="TerminateInstances", code="InvalidInstanceID.NotFound", times=3)
    bench.cloud().handler("instance").delete(made.attributes)
    assert len(bench.calls("TerminateInstances")) == 4
    ended(bench, made)


@pytest.mark.parametrize("ahead_s", [-300, -60, 0, 60, 300])
def test_a_new_machine_is_not_missing_despite_clock_skew(bench, ahead_s):
    """Its launch time is the cloud's. A clock that is a minute ahead made every machine look old."""
    made = bench.launch()
    bench.clock.ahead_s = ahead_s + (datetime.fromisoformat(made.attributes["launched"]) - BEGINNING).total_seconds()
    bench.fault(action="TerminateInstances", code="InvalidInstanceID.NotFound", times=3)
    bench.cloud().handler("instance").delete(made.attributes)
    assert len(bench.calls("TerminateInstances")) == 4
    ended(bench, made)


def test_a_machine_without_a_launch_time_is_not_missing_at_once(bench):
    made = bench.launch()
    bench.fault(action="TerminateInstances", code="InvalidInstanceID.NotFound", times=1)
    bench.cloud().handler("instance").delete({"id": made.id})
    ended(bench, made)


def test_an_old_unknown_machine_is_missing(bench):
    bench.clock.sleep(3600)
    bench.cloud().handler("instance").delete({"id": "i-0123456789abcdef0", "launched": "2026-01-08T23:58:00+00:00"})
    assert len(bench.calls("TerminateInstances")) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"name": "capacity"}, NoCapacityError),
        ({"name": "quota"}, QuotaError),
        ({"name": "spot-quota"}, QuotaError),
        ({"action": "RunInstances", "code": "Unsupported"}, NoCapacityError),
        ({"action": "RunInstances", "code": "InsufficientVolumeCapacity", "status": 500}, NoCapacityError),
        ({"action": "RunInstances", "code": "VolumeLimitExceeded"}, QuotaError),
        ({"action": "RunInstances", "code": "InvalidParameterValue"}, BadRequestError),
        ({"action": "RunInstances", "code": "Whatever"}, BadRequestError),
        ({"name": "lost-reply"}, LostReplyError),
    ],
)
def test_rejections_are_not_retried(bench, fault, error):
    wanted = bench.request()
    bench.fault(**fault)
    with pytest.raises(error):
        bench.cloud().handler("instance").create(wanted, tags={TAG_ID: "abc"}, token="t")
    assert len(bench.calls("RunInstances")) == 1


def test_a_denied_action_is_named(bench):
    wanted = bench.request()
    bench.fault(name="unauthorized")
    with pytest.raises(PermissionDeniedError) as caught:
        bench.cloud().handler("instance").create(wanted, tags={TAG_ID: "abc"}, token="t")
    assert caught.value.action == "ec2:RunInstances"
    assert "ec2:RunInstances" in caught.value.hint


def test_a_throttled_launch_is_the_same_request_again(bench):
    wanted = bench.request()
    bench.fault(name="throttle", action="RunInstances", times=3)
    bench.cloud().handler("instance").create(wanted, tags={TAG_ID: "abc"}, token="t")
    calls = bench.calls("RunInstances")
    assert len(calls) == 4
    assert all(call == calls[0] for call in calls)
    assert bench.clock.seconds > 0
    assert len(bench.cloud().handler("instance").find(MINE)) == 1


def test_endless_throttling_gives_up(bench):
    wanted = bench.request()
    bench.fault(name="throttle", action="RunInstances", times=99)
    with pytest.raises(ThrottledError):
        bench.cloud().handler("instance").create(wanted, tags={TAG_ID: "abc"}, token="t")


def test_a_rejection_after_a_server_error_leaves_the_result_open(bench):
    wanted = bench.request()
    bench.fault(name="unauthorized", action="RunInstances", skip=1)
    bench.fault(action="RunInstances", code="InternalError", status=500, after=True)
    with pytest.raises(LostReplyError):
        bench.cloud().handler("instance").create(wanted, tags={TAG_ID: "abc"}, token="t")
    assert len(bench.cloud().handler("instance").find(MINE)) == 1


def test_a_profile_that_is_not_visible_yet_is_awaited(bench):
    wanted = bench.request()
    message = "Value (x) for parameter iamInstanceProfile.name is invalid"
    bench.fault(action="RunInstances", code="InvalidParameterValue", message=message, times=2)
    bench.cloud().handler("instance").create(wanted, tags={TAG_ID: "abc"}, token="t")
    assert len(bench.calls("RunInstances")) == 3


def test_a_machine_has_a_state_an_address_and_a_console(bench):
    found, cloud = bench.launch(), bench.cloud()
    deadline = time.monotonic() + 60
    while (state := cloud.machine(found.id)).state != "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert state.address.startswith("127.")
    assert isinstance(cloud.console(found.id), str)
    assert cloud.machine("i-0123456789abcdef0") == MachineState(state="missing")


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("Server.InsufficientInstanceCapacity", NoCapacityError),
        ("Server.SpotInstanceTermination", NoCapacityError),
        ("Server.InternalError", NoCapacityError),
        ("Client.VolumeLimitExceeded", QuotaError),
        ("Client.InternalError", BadRequestError),
        ("Client.InstanceInitiatedShutdown", BadRequestError),
        (None, DeployError),
    ],
)
def test_a_termination_has_the_class_of_its_reason(bench, reason, error):
    dead = MachineState(state="terminated", reason_code=reason, reason="it ended")
    with pytest.raises(error, match="the machine in p terminated"):
        bench.cloud().check_death(dead, pool="p")


def test_a_running_machine_has_no_termination(bench):
    bench.cloud().check_death(MachineState(state="pending"), pool="p")


def test_volumes_of_a_machine_carry_its_tags_and_are_attached(bench):
    bench.launch()
    found = bench.cloud().find(MINE)
    assert [item.kind for item in found if not item.attached] == ["security-group", "launch-template", "instance"]
    assert all(item.attached for item in found if item.kind == "volume")
    volume = next(item for item in found if item.kind == "volume")
    with pytest.raises(InUseError):
        bench.cloud().handler("volume").delete(volume.attributes)


def test_find_without_tags_finds_everything_of_this_tool_in_the_region(bench):
    bench.group()
    assert [item.kind for item in bench.cloud().find({})] == ["security-group"]
    assert bench.cloud("eu-west-1").find({}) == ()
