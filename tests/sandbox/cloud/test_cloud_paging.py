"""Describe calls in small pages return everything exactly once; two of moto's truncate their replies."""

from __future__ import annotations

import json

import pytest

NUMBER = 25
PAGE = 5
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})
TAGS = [{"Key": "paged", "Value": "yes"}]
BY_TAG = {"Filters": [{"Name": "tag-key", "Values": ["paged"]}]}


def tagged(kind):
    return [{"ResourceType": kind, "Tags": TAGS}]


def make_groups(cloud):
    for index in range(NUMBER):
        cloud.ec2.create_security_group(
            GroupName=f"paged-{index}", Description="d", TagSpecifications=tagged("security-group")
        )


def make_templates(cloud):
    data = {"ImageId": cloud.image()}
    for index in range(NUMBER):
        cloud.ec2.create_launch_template(
            LaunchTemplateName=f"paged-{index}", LaunchTemplateData=data, TagSpecifications=tagged("launch-template")
        )


def make_versions(cloud):
    data = {"ImageId": cloud.image()}
    cloud.ec2.create_launch_template(LaunchTemplateName="paged", LaunchTemplateData=data)
    for _ in range(NUMBER - 1):
        cloud.ec2.create_launch_template_version(LaunchTemplateName="paged", LaunchTemplateData=data)


def make_machines(cloud):
    kinds = [kind for name in ("instance", "volume") for kind in tagged(name)]
    cloud.run(MinCount=NUMBER, MaxCount=NUMBER, TagSpecifications=kinds)


def make_spot_requests(cloud):
    answer = cloud.ec2.request_spot_instances(
        InstanceCount=NUMBER,
        SpotPrice="1",
        LaunchSpecification={"ImageId": cloud.image(), "InstanceType": "g6e.xlarge"},
    )
    ids = [item["SpotInstanceRequestId"] for item in answer["SpotInstanceRequests"]]
    cloud.ec2.create_tags(Resources=ids, Tags=TAGS)


def make_parameters(cloud):
    for index in range(NUMBER):
        cloud.client("ssm").put_parameter(Name=f"/paged/{index}", Value="x", Type="SecureString")


def make_roles(cloud):
    for index in range(NUMBER):
        cloud.client("iam").create_role(RoleName=f"paged-{index}", Path="/paged/", AssumeRolePolicyDocument=TRUST)


def make_profiles(cloud):
    for index in range(NUMBER):
        cloud.client("iam").create_instance_profile(InstanceProfileName=f"paged-{index}", Path="/paged/")


def make_schedule_groups(cloud):
    for index in range(NUMBER):
        cloud.client("scheduler").create_schedule_group(Name=f"paged-{index}")


# service, call, where its items are, what names one, parameters, how they are made
CASES = {
    "security-group": ("ec2", "describe_security_groups", "SecurityGroups", "GroupId", BY_TAG, make_groups),
    "launch-template": (
        "ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId", BY_TAG, make_templates,
    ),
    "template-version": (
        "ec2", "describe_launch_template_versions", "LaunchTemplateVersions", "VersionNumber",
        {"LaunchTemplateName": "paged"}, make_versions,
    ),
    "volume": ("ec2", "describe_volumes", "Volumes", "VolumeId", BY_TAG, make_machines),
    "network-interface": (
        "ec2", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId", {}, make_machines,
    ),
    "spot-request": (
        "ec2", "describe_spot_instance_requests", "SpotInstanceRequests", "SpotInstanceRequestId", BY_TAG,
        make_spot_requests,
    ),
    "parameter": (
        "ssm", "describe_parameters", "Parameters", "Name",
        {"ParameterFilters": [{"Key": "Name", "Option": "BeginsWith", "Values": ["/paged/"]}]}, make_parameters,
    ),
    "role": ("iam", "list_roles", "Roles", "RoleName", {"PathPrefix": "/paged/"}, make_roles),
    "instance-profile": (
        "iam", "list_instance_profiles", "InstanceProfiles", "InstanceProfileName", {"PathPrefix": "/paged/"},
        make_profiles,
    ),
    "schedule": (
        "scheduler", "list_schedule_groups", "ScheduleGroups", "Name", {"NamePrefix": "paged-"}, make_schedule_groups,
    ),
}  # fmt: skip


def in_pages(cloud, kind):
    service, method, key, name, parameters, make = CASES[kind]
    make(cloud)
    paginator = cloud.client(service).get_paginator(method)
    pages = paginator.paginate(**parameters, PaginationConfig={"PageSize": PAGE})
    return [item[name] for page in pages for item in page[key]]


@pytest.mark.parametrize("kind", CASES)
def test_every_page_is_returned_without_duplicates(cloud, kind):
    found = in_pages(cloud, kind)
    assert len(found) == NUMBER
    assert len(set(found)) == NUMBER


def test_machines_are_paginated(cloud):
    for _ in range(NUMBER):  # a reservation each: moto counts those
        cloud.run(TagSpecifications=tagged("instance"))
    pages = cloud.ec2.get_paginator("describe_instances").paginate(**BY_TAG, PaginationConfig={"PageSize": PAGE})
    sizes = [len(page["Reservations"]) for page in pages]
    assert sizes == [PAGE] * (NUMBER // PAGE)
