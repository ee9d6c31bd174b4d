from __future__ import annotations

import pytest
from botocore.exceptions import ClientError


def launch(cloud, token, **changes):
    return cloud.run(ClientToken=token, **changes)


def test_a_replay_shows_the_current_state(cloud):
    instance_id = launch(cloud, "t")
    cloud.wait_for_state(instance_id, "running")
    request = {"ImageId": cloud.image(), "InstanceType": "g6e.xlarge", "MinCount": 1, "MaxCount": 1, "ClientToken": "t"}
    assert cloud.ec2.run_instances(**request)["Instances"][0]["State"]["Name"] == "running"
    cloud.ec2.terminate_instances(InstanceIds=[instance_id])
    cloud.wait_for_state(instance_id, "terminated")
    replayed = cloud.ec2.run_instances(**request)["Instances"][0]
    assert (replayed["InstanceId"], replayed["State"]["Name"]) == (instance_id, "terminated")


def test_a_token_belongs_to_one_zone(cloud):
    subnets = cloud.ec2.describe_subnets()["Subnets"]
    by_zone = {one["AvailabilityZone"]: one["SubnetId"] for one in subnets}
    first = launch(cloud, "t", SubnetId=by_zone["us-east-1a"], InstanceType="g4dn.xlarge")
    second = launch(cloud, "t", SubnetId=by_zone["us-east-1b"], InstanceType="g4dn.xlarge")
    assert first != second


def test_a_rejected_call_is_not_remembered(cloud):
    cloud.fault(name="capacity")
    with pytest.raises(ClientError):
        launch(cloud, "t")
    assert launch(cloud, "t")


def test_launch_templates_honor_tokens(cloud):
    def create(**changes):
        request = {"LaunchTemplateName": "n", "LaunchTemplateData": {"InstanceType": "g6.xlarge"}, "ClientToken": "t"}
        return cloud.ec2.create_launch_template(**{**request, **changes})["LaunchTemplate"]["LaunchTemplateId"]

    assert create() == create()
    with pytest.raises(ClientError) as error:
        create(LaunchTemplateName="other")
    assert error.value.response["Error"]["Code"] == "IdempotentParameterMismatch"
