"""Requests that name deleted resources get EC2's errors, whatever moto answers."""

from __future__ import annotations

import threading

import pytest
from botocore.exceptions import ClientError

ANY = {"TotalTargetCapacity": 1}
GROUP, TEMPLATE = "sg-0123456789abcdef0", "lt-0123456789abcdef0"
TARGET = {
    "Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances",
    "RoleArn": "arn:aws:iam::123456789012:role/none",
}


def refused(ask, **parameters):
    with pytest.raises(ClientError) as caught:
        ask(**parameters)
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"], response["Error"]["Message"]


@pytest.mark.parametrize("version", [{}, {"Version": "1"}, {"Version": "$Latest"}])
def test_a_launch_from_a_deleted_template(cloud, version):
    template = {"LaunchTemplateId": TEMPLATE, **version}
    status, code, message = refused(cloud.ec2.run_instances, LaunchTemplate=template, MinCount=1, MaxCount=1)
    assert (status, code) == (400, "InvalidLaunchTemplateId.NotFound")
    assert TEMPLATE in message


@pytest.mark.parametrize(
    "data",
    [{"SecurityGroupIds": [GROUP]}, {"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [GROUP]}]}],
    ids=["of-the-machine", "of-its-interface"],
)
def test_a_launch_with_a_deleted_group(cloud, data):
    wanted = {"ImageId": cloud.image(), "InstanceType": "g6e.xlarge", **data}
    template = cloud.ec2.create_launch_template(LaunchTemplateName="demo", LaunchTemplateData=wanted)["LaunchTemplate"]
    named = {"LaunchTemplateId": template["LaunchTemplateId"]}
    status, code, message = refused(cloud.ec2.run_instances, LaunchTemplate=named, MinCount=1, MaxCount=1)
    assert (status, code) == (400, "InvalidGroup.NotFound")
    assert GROUP in message
    assert refused(cloud.run, SecurityGroupIds=[GROUP])[1] == "InvalidGroup.NotFound"
    assert cloud.ec2.describe_instances()["Reservations"] == []


def test_an_existing_group_is_accepted(cloud):
    group = cloud.ec2.create_security_group(GroupName="demo", Description="d")["GroupId"]
    machine = cloud.instance(cloud.run(SecurityGroupIds=[group]))
    assert [item["GroupId"] for item in machine["SecurityGroups"]] == [group]


def test_a_missing_spot_request(cloud):
    asked = {"SpotInstanceRequestIds": ["sir-abc12345"]}
    status, code, _ = refused(cloud.ec2.cancel_spot_instance_requests, **asked)
    assert (status, code) == (400, "InvalidSpotInstanceRequestID.NotFound")


def test_a_schedule_in_a_deleted_group(cloud):
    status, code, _ = refused(
        cloud.client("scheduler").create_schedule, Name="demo", GroupName="gone", Target=TARGET,
        ScheduleExpression="at(2090-01-01T00:00:00)", FlexibleTimeWindow={"Mode": "OFF"},
    )  # fmt: skip
    assert (status, code) == (404, "ResourceNotFoundException")


def test_a_role_removed_from_its_instance_profile(cloud):
    iam = cloud.client("iam")
    iam.create_instance_profile(InstanceProfileName="demo")
    iam.create_role(RoleName="machine", AssumeRolePolicyDocument="{}")
    asked = {"InstanceProfileName": "demo", "RoleName": "machine"}
    iam.add_role_to_instance_profile(**asked)
    iam.remove_role_from_instance_profile(**asked)
    status, code, _ = refused(iam.remove_role_from_instance_profile, **asked)
    assert (status, code) == (404, "NoSuchEntity")
    iam.delete_instance_profile(InstanceProfileName="demo")
    iam.delete_role(RoleName="machine")


def test_a_moto_failure_is_an_internal_error(cloud):
    """A fleet from a missing template crashes moto."""
    status, code, message = refused(cloud.ec2.create_fleet, LaunchTemplateConfigs=[], TargetCapacitySpecification=ANY)
    assert (status, code) == (500, "InternalError")
    assert "<" not in message


def test_eight_callers_at_once_are_all_answered(cloud):
    """Reading the call log while other calls are appended to it must be safe."""
    problems, rounds = [], 12

    def ask(number):
        client = cloud.client("ec2", "us-west-2")
        for turn in range(rounds):
            try:
                client.create_security_group(GroupName=f"demo-{number}-{turn}", Description="d")
                cloud.control("GET", "calls")
                cloud.control("GET", "machines")
            except (ClientError, OSError, ValueError) as problem:
                problems.append(problem)

    cloud.client("ec2", "us-west-2")  # created before, because boto3 does not create clients thread-safely
    callers = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert problems == []
    assert len(cloud.calls("CreateSecurityGroup")) == 8 * rounds
