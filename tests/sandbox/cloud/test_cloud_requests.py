from __future__ import annotations

import base64
import urllib.request
from urllib.error import HTTPError

import pytest
from botocore.exceptions import ClientError

UBUNTU = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
ECS = "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id"


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    return error.value.response["Error"]["Code"]


@pytest.mark.parametrize(("parameter", "root_device"), [(UBUNTU, "/dev/sda1"), (ECS, "/dev/xvda")])
@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_image_parameters_lead_to_images(cloud, parameter, root_device, region):
    value = cloud.client("ssm", region).get_parameter(Name=parameter)["Parameter"]["Value"]
    image = cloud.client("ec2", region).describe_images(ImageIds=[value])["Images"][0]
    assert (image["RootDeviceName"], image["Architecture"], image["State"]) == (root_device, "x86_64", "available")


def test_an_unknown_image_parameter_is_not_found(cloud):
    with pytest.raises(ClientError) as error:
        cloud.client("ssm").get_parameter(Name="/aws/service/deeplearning/ami/x86_64/no-such/latest/ami-id")
    assert code_of(error) == "ParameterNotFound"


def test_get_parameters_combines_built_in_and_user_parameters(cloud):
    ssm = cloud.client("ssm")
    ssm.put_parameter(Name="/mine", Value="1", Type="String")
    found = ssm.get_parameters(Names=[UBUNTU, "/mine", "/absent"])
    assert {one["Name"] for one in found["Parameters"]} == {UBUNTU, "/mine"}
    assert found["InvalidParameters"] == ["/absent"]


def test_an_instance_of_another_region_is_not_seen(cloud):
    instance_id = cloud.run()
    with pytest.raises(ClientError) as error:
        cloud.client("ec2", "eu-west-1").describe_instances(InstanceIds=[instance_id])
    assert code_of(error) == "InvalidInstanceID.NotFound"
    assert cloud.client("ec2", "eu-west-1").describe_instances()["Reservations"] == []


def test_two_regions_at_once(cloud):
    west = cloud.client("ec2", "us-west-2").run_instances(
        ImageId=cloud.image("us-west-2"), InstanceType="g6.xlarge", MinCount=1, MaxCount=1
    )["Instances"][0]
    east = cloud.instance(cloud.run())
    assert west["Placement"]["AvailabilityZone"].startswith("us-west-2")
    assert east["Placement"]["AvailabilityZone"].startswith("us-east-1")


def test_a_region_that_does_not_exist(cloud):
    with pytest.raises(ClientError) as error:
        cloud.client("ec2", "mars-north-1").describe_instances()
    assert code_of(error) == "InvalidRegion"


def test_an_instant_fleet_boots_machines_too(cloud):
    data = {"ImageId": cloud.image(), "InstanceType": "g6.xlarge", "UserData": base64.b64encode(b"#!/bin/sh").decode()}
    cloud.ec2.create_launch_template(LaunchTemplateName="fleet", LaunchTemplateData=data)
    answer = cloud.ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": {"LaunchTemplateName": "fleet", "Version": "1"}}],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
    )
    (instance_id,) = answer["Instances"][0]["InstanceIds"]
    cloud.wait_for_line(instance_id, "finished at")


def test_addresses_are_loopback_and_distinct(cloud):
    first, second = (cloud.instance(cloud.run()) for _ in range(2))
    for found in (first, second):
        assert found["PublicIpAddress"].startswith("127.")
        assert found["PublicIpAddress"] == found["PrivateIpAddress"] == found["PublicDnsName"]
    if first["PublicIpAddress"] != "127.0.0.1":
        assert first["PublicIpAddress"] != second["PublicIpAddress"]


def test_without_a_public_address_there_is_only_the_private_one(cloud):
    subnet = cloud.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    nic = {"DeviceIndex": 0, "AssociatePublicIpAddress": False, "SubnetId": subnet}
    found = cloud.instance(cloud.run(NetworkInterfaces=[nic], InstanceType="g4dn.xlarge"))
    assert "PublicIpAddress" not in found
    assert found["PrivateIpAddress"].startswith("127.")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
        ({"ImageId": "resolve:ssm:/no/such"}, "InvalidParameterValue"),
        ({"InstanceType": "g99.xlarge"}, "InvalidInstanceType.NotFound"),
        ({"InstanceType": "p5e.48xlarge", "Placement": {"AvailabilityZone": "us-east-1f"}}, "Unsupported"),
        ({"KeyName": "absent"}, "InvalidKeyPair.NotFound"),
        ({"SecurityGroupIds": ["sg-00000000"]}, "InvalidGroup.NotFound"),
        ({"SubnetId": "subnet-00000000"}, "InvalidSubnetID.NotFound"),
        ({"IamInstanceProfile": {"Name": "absent"}}, "InvalidParameterValue"),
        ({"UserData": "x" * (16 * 1024 + 1)}, "InvalidParameterValue"),
    ],
)
def test_invalid_requests_are_rejected_like_ec2(cloud, changes, code):
    with pytest.raises(ClientError) as error:
        cloud.run(**changes)
    assert code_of(error) == code
    assert cloud.ec2.describe_instances()["Reservations"] == []


def test_user_data_of_exactly_16_kib_is_accepted(cloud):
    assert cloud.run("#" + "x" * (16 * 1024 - 1))


def test_a_launch_template_with_too_much_user_data_is_refused(cloud):
    data = {"UserData": base64.b64encode(b"x" * 16385).decode()}
    with pytest.raises(ClientError) as error:
        cloud.ec2.create_launch_template(LaunchTemplateName="big", LaunchTemplateData=data)
    assert code_of(error) == "InvalidParameterValue"


def test_an_error_for_a_missing_type_names_the_zones_that_have_it(cloud):
    offers = cloud.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g6e.xlarge"]}]
    )["InstanceTypeOfferings"]
    having = {one["Location"] for one in offers}
    zones = {one["ZoneName"] for one in cloud.ec2.describe_availability_zones()["AvailabilityZones"]}
    lacking = min(zones - having)
    with pytest.raises(ClientError) as error:
        cloud.run(Placement={"AvailabilityZone": lacking})
    assert code_of(error) == "Unsupported"
    assert all(zone in error.value.response["Error"]["Message"] for zone in having)


def test_without_a_zone_one_that_has_the_type_is_chosen(cloud):
    found = cloud.instance(cloud.run(InstanceType="g6e.xlarge"))
    offers = cloud.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g6e.xlarge"]}]
    )["InstanceTypeOfferings"]
    assert found["Placement"]["AvailabilityZone"] in {one["Location"] for one in offers}


def test_a_launch_template_is_applied_completely(cloud):
    group = cloud.ec2.create_security_group(GroupName="g", Description="d")["GroupId"]
    cloud.ec2.create_launch_template(
        LaunchTemplateName="whole",
        LaunchTemplateData={
            "ImageId": f"resolve:ssm:{UBUNTU}",
            "InstanceType": "g6e.xlarge",
            "InstanceInitiatedShutdownBehavior": "terminate",
            "InstanceMarketOptions": {"MarketType": "spot"},
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
            "BlockDeviceMappings": [
                {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 120, "VolumeType": "gp3", "Encrypted": True}}
            ],
            "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": True, "Groups": [group]}],
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "k", "Value": "v"}]}],
        },
    )
    launched = cloud.ec2.run_instances(LaunchTemplate={"LaunchTemplateName": "whole"}, MinCount=1, MaxCount=1)
    found = cloud.instance(launched["Instances"][0]["InstanceId"])
    behavior = cloud.ec2.describe_instance_attribute(
        InstanceId=found["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
    )
    assert behavior["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
    assert found["InstanceLifecycle"] == "spot"
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    assert found["MetadataOptions"]["HttpPutResponseHopLimit"] == 2
    assert found["ImageId"] == cloud.image()
    assert {"Key": "k", "Value": "v"} in found["Tags"]
    assert [nic["Groups"][0]["GroupId"] for nic in found["NetworkInterfaces"]] == [group]
    volumes = cloud.ec2.describe_volumes()["Volumes"]
    assert [(one["Size"], one["VolumeType"], one["Encrypted"]) for one in volumes] == [(120, "gp3", True)]


def test_requests_from_web_pages_are_rejected(cloud):
    request = urllib.request.Request(  # noqa: S310 -- our own loopback server
        f"{cloud.url}/", data=b"Action=RunInstances", headers={"Origin": "https://example.org"}
    )
    with pytest.raises(HTTPError) as error:
        urllib.request.urlopen(request)  # noqa: S310 -- as above
    with error.value:
        assert error.value.code == 403


def test_no_user_data_means_no_machine(cloud):
    instance_id = cloud.run()
    cloud.wait_for_state(instance_id, "running")
    (machine,) = cloud.control("GET", "machines")["machines"]
    assert machine["booted"] is False
    assert cloud.console(instance_id) == ""
