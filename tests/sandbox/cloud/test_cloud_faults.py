from __future__ import annotations

import time

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tgi_deploy.sandbox import api
from tgi_deploy.sandbox.faults import NAMES, CallFault, FaultTable, MachineFault, read_fault
from tgi_deploy.sandbox.wire import BadRequestError

ECHO = "#!/bin/sh\necho the machine is up\n"


def failure(action):
    with pytest.raises(ClientError) as error:
        action()
    return error.value.response["Error"]["Code"], error.value.response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize(
    ("name", "code", "status"),
    [
        ("capacity", "InsufficientInstanceCapacity", 500),
        ("throttle", "RequestLimitExceeded", 503),
        ("quota", "VcpuLimitExceeded", 400),
        ("spot-quota", "MaxSpotInstanceCountExceeded", 400),
        ("unauthorized", "UnauthorizedOperation", 403),
    ],
)
def test_a_launch_fails_as_often_as_configured(cloud, name, code, status):
    image = cloud.image()
    cloud.fault(name=name, times=2, action="RunInstances")
    for _ in range(2):
        assert failure(lambda: cloud.run(ImageId=image)) == (code, status)
    assert cloud.run(ImageId=image)


def test_a_fault_applies_to_its_target(cloud):
    subnets = {one["AvailabilityZone"]: one["SubnetId"] for one in cloud.ec2.describe_subnets()["Subnets"]}
    cloud.fault(name="capacity", times=9, when={"SubnetId": subnets["us-east-1a"]})
    code, _ = failure(lambda: cloud.run(SubnetId=subnets["us-east-1a"], InstanceType="g4dn.xlarge"))
    assert code == "InsufficientInstanceCapacity"
    assert cloud.run(SubnetId=subnets["us-east-1b"], InstanceType="g4dn.xlarge")


def test_a_fault_can_have_any_code_and_action(cloud):
    cloud.fault(action="DescribeSubnets", code="InternalError", status=500, message="sorry")
    with pytest.raises(ClientError, match="sorry"):
        cloud.ec2.describe_subnets()
    assert cloud.ec2.describe_subnets()["Subnets"]


def test_a_fault_of_a_json_service(cloud):
    cloud.fault(action="GetParameter", code="ThrottlingException")
    assert failure(cloud.image) == ("ThrottlingException", 400)


def test_a_lost_reply_has_taken_effect_and_replays(cloud):
    image = cloud.image()
    cloud.fault(name="lost-reply")
    with pytest.raises(ConnectionClosedError):
        cloud.run(ImageId=image, ClientToken="t")
    (reservation,) = cloud.ec2.describe_instances()["Reservations"]
    assert cloud.run(ImageId=image, ClientToken="t") == reservation["Instances"][0]["InstanceId"]
    assert len(cloud.ec2.describe_instances()["Reservations"]) == 1


def test_not_found_yet(cloud):
    instance_id = cloud.run()
    cloud.fault(name="not-found-yet", times=2)
    assert cloud.ec2.describe_instances()["Reservations"], "only calls that name the instance are hit"
    for _ in range(2):
        assert failure(lambda: cloud.instance(instance_id)) == ("InvalidInstanceID.NotFound", 400)
    assert cloud.instance(instance_id)


def test_not_found_yet_of_a_group(cloud):
    group = cloud.ec2.create_security_group(GroupName="g", Description="d")["GroupId"]
    cloud.fault(name="not-found-yet", action="DescribeSecurityGroups")
    assert failure(lambda: cloud.ec2.describe_security_groups(GroupIds=[group]))[0] == "InvalidGroup.NotFound"
    assert cloud.ec2.describe_security_groups(GroupIds=[group])


def test_not_found_yet_of_a_machine_to_terminate(cloud):
    instance_id = cloud.run()
    cloud.fault(name="not-found-yet", action="TerminateInstances")
    end = cloud.ec2.terminate_instances
    assert failure(lambda: end(InstanceIds=[instance_id])) == ("InvalidInstanceID.NotFound", 400)
    assert end(InstanceIds=[instance_id])


def test_a_slow_reply(cloud):
    cloud.fault(name="slow-reply", action="DescribeSubnets", delay_s=0.3)
    started = time.monotonic()
    assert cloud.ec2.describe_subnets()["Subnets"]
    assert time.monotonic() - started >= 0.3


def test_faults_are_listed_and_cleared(cloud):
    cloud.fault(name="capacity")
    assert [one["code"] for one in cloud.control("GET", "faults")["faults"]] == ["InsufficientInstanceCapacity"]
    cloud.control("DELETE", "faults")
    assert cloud.run()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("dead-host", "Server.InternalError"), ("spot-reclaim", "Server.SpotInstanceTermination")],
)
def test_a_machine_dies_during_boot(cloud, name, reason):
    cloud.fault(name=name, after_s=0.2, when={"InstanceType": "g6e.xlarge"})
    ending, other = cloud.run(ECHO), cloud.run(ECHO, InstanceType="g6e.2xlarge")
    assert cloud.wait_for_state(ending, "terminated")["StateReason"]["Code"] == reason
    assert cloud.state(other) == "running"


def test_a_running_machine_is_reclaimed(cloud):
    instance_id, _ = cloud.booted(ECHO)
    cloud.fault(name="spot-reclaim", instance_id=instance_id, after_s=0)
    found = cloud.wait_for_state(instance_id, "terminated")
    assert found["StateReason"]["Code"] == "Server.SpotInstanceTermination"


def test_capacity_runs_out_after_the_launch_was_accepted(cloud):
    cloud.fault(name="insufficient-after-accept")
    found = cloud.wait_for_state(cloud.run(ECHO), "terminated")
    assert found["StateReason"]["Code"] == "Server.InsufficientInstanceCapacity"


def test_a_slow_boot(cloud):
    cloud.fault(name="slow-boot", boot_s=1.0)
    instance_id = cloud.run(ECHO)
    cloud.wait_for_state(instance_id, "running")
    started = time.monotonic()
    assert "the machine is up" not in cloud.console(instance_id)
    cloud.wait_for_line(instance_id, "the machine is up")
    assert time.monotonic() - started > 0.5


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"name": "no-such"},
        {"name": "capacity", "colour": "red"},
        {"name": "capacity", "times": "often"},
        {"name": "dead-host", "status": 500},
        {"name": "lost-reply", "after": "false"},
        {"name": "dark", "dark": 1},
    ],
)
def test_invalid_faults_are_rejected(cloud, document):
    with pytest.raises(api.ApiError) as error:
        cloud.fault(**document)
    assert error.value.code == "400"
    with pytest.raises(BadRequestError):
        read_fault(document)


def test_a_signal_to_an_unknown_process_is_rejected(cloud):
    with pytest.raises(api.ApiError) as error:
        cloud.fault(name="dead-host", instance_id="i-0")
    assert error.value.code == "404"


@pytest.mark.parametrize("name", sorted({*NAMES} - {"storm"}))
def test_every_named_fault_can_be_injected(name):
    assert isinstance(read_fault({"name": name, "times": 3}), CallFault | MachineFault)


def test_the_table_uses_faults_up_in_order():
    table = FaultTable()
    for engine in ("first", "second"):
        table.add(read_fault({"name": "engine", "engine": engine, "when": {"InstanceType": "a"}}))
    assert table.take_for_machine({"InstanceType": "b"}) == ()
    assert [fault.engine for fault in table.take_for_machine({"InstanceType": "a"})] == ["first", "second"]
    assert table.pending() == ()
