"""Requests for DryRun: real ones for creating calls, dummy ids for calls on existing resources.

A policy that requires tags on the resource denies a dummy id, and EC2 may look up the resource before the policy: only
creating and describing requests are conclusive in both directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.targets.aws.api import tag_specifications

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.targets.ec2.inspection import RehearsedLaunch

Request = tuple[str, dict[str, Any]]

_NOBODYS: Final = "0123456789abcdef0"
_PORT: Final = 8080
_NAME: Final = "tgi-deploy-rehearsal"


def request_of(action: str, launch: RehearsedLaunch) -> Request:
    """Return the SDK's method and its parameters, without DryRun."""
    return REQUESTS[action](launch)


def _fixed(method: str, **parameters: Any) -> Callable[[RehearsedLaunch], Request]:  # noqa: ANN401 -- the API's own
    return lambda _launch: (method, parameters)


def _run_instances(launch: RehearsedLaunch) -> Request:
    profile = launch.instance_profile
    role = {"Arn" if profile.startswith("arn:") else "Name": profile} if profile else {}
    spot = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}
    return "run_instances", {
        "ImageId": launch.image,
        "InstanceType": launch.instance_type,
        "SubnetId": launch.subnet,
        "MinCount": 1,
        "MaxCount": 1,
        "TagSpecifications": tag_specifications(launch.tags, "instance", "volume", "network-interface"),
        **({"InstanceMarketOptions": spot} if launch.market == "spot" else {}),
        **({"IamInstanceProfile": role} if role else {}),
    }


def _create_group(launch: RehearsedLaunch) -> Request:
    return "create_security_group", {
        "GroupName": _NAME,
        "Description": "a dry run",
        "VpcId": launch.network,
        "TagSpecifications": tag_specifications(launch.tags, "security-group"),
    }


def _create_template(launch: RehearsedLaunch) -> Request:
    return "create_launch_template", {
        "LaunchTemplateName": _NAME,
        "LaunchTemplateData": {"InstanceType": launch.instance_type},
        "TagSpecifications": tag_specifications(launch.tags, "launch-template"),
    }


def _allocate_address(launch: RehearsedLaunch) -> Request:
    return "allocate_address", {"Domain": "vpc", "TagSpecifications": tag_specifications(launch.tags, "elastic-ip")}


_INGRESS: Final = {
    "IpProtocol": "tcp",
    "FromPort": _PORT,
    "ToPort": _PORT,
    "IpRanges": [{"CidrIp": "192.0.2.1/32", "Description": "tgi-deploy"}],
}

# Needed by few launches.
OF_STATIC_IP: Final = ("ec2:AllocateAddress", "ec2:AssociateAddress")
REQUESTS: Final[dict[str, Callable[[RehearsedLaunch], Request]]] = {
    "ec2:RunInstances": _run_instances,
    "ec2:CreateSecurityGroup": _create_group,
    "ec2:CreateLaunchTemplate": _create_template,
    "ec2:AuthorizeSecurityGroupIngress": _fixed(
        "authorize_security_group_ingress", GroupId=f"sg-{_NOBODYS}", IpPermissions=[_INGRESS]
    ),
    "ec2:AllocateAddress": _allocate_address,
    "ec2:AssociateAddress": _fixed(
        "associate_address", AllocationId=f"eipalloc-{_NOBODYS}", InstanceId=f"i-{_NOBODYS}"
    ),
    "ec2:DescribeAddresses": _fixed("describe_addresses"),
    "ec2:DescribeImages": _fixed("describe_images", Owners=["self"]),
    "ec2:DescribeInstanceTypeOfferings": _fixed("describe_instance_type_offerings", MaxResults=5),
    "ec2:DescribeInstances": _fixed("describe_instances", MaxResults=5),
    "ec2:DescribeLaunchTemplates": _fixed("describe_launch_templates", MaxResults=1),
    "ec2:DescribeNetworkInterfaces": _fixed("describe_network_interfaces", MaxResults=5),
    "ec2:DescribeSecurityGroups": _fixed("describe_security_groups", MaxResults=5),
    "ec2:DescribeSpotInstanceRequests": _fixed("describe_spot_instance_requests", MaxResults=5),
    "ec2:DescribeSubnets": _fixed("describe_subnets", MaxResults=5),
    "ec2:DescribeVolumes": _fixed("describe_volumes", MaxResults=5),
    "ec2:GetConsoleOutput": _fixed("get_console_output", InstanceId=f"i-{_NOBODYS}"),
    "ec2:TerminateInstances": _fixed("terminate_instances", InstanceIds=[f"i-{_NOBODYS}"]),
    "ec2:DeleteSecurityGroup": _fixed("delete_security_group", GroupId=f"sg-{_NOBODYS}"),
    "ec2:DeleteLaunchTemplate": _fixed("delete_launch_template", LaunchTemplateId=f"lt-{_NOBODYS}"),
    "ec2:DeleteVolume": _fixed("delete_volume", VolumeId=f"vol-{_NOBODYS}"),
    "ec2:DeleteNetworkInterface": _fixed("delete_network_interface", NetworkInterfaceId=f"eni-{_NOBODYS}"),
    "ec2:ReleaseAddress": _fixed("release_address", AllocationId=f"eipalloc-{_NOBODYS}"),
    "ec2:CancelSpotInstanceRequests": _fixed(
        "cancel_spot_instance_requests", SpotInstanceRequestIds=["sir-0123456789"]
    ),
}
