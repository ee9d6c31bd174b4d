"""The launch request, as CreateLaunchTemplate's LaunchTemplateData; RunInstances has the same keys."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.targets.deployable import check

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Deployable

# Ubuntu 22.04 with NVIDIA's open driver, Docker and its GPU runtime (AWS Deep Learning AMI catalog).
IMAGE_PARAMETER: Final = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
ROOT_DEVICE: Final = "/dev/sda1"  # Ubuntu's; DescribeImages returns that of other images
_TAGGED: Final = ("instance", "volume", "network-interface")


def launch_template_data(
    deployable: Deployable,
    *,
    user_data: str,
    root_device_name: str = ROOT_DEVICE,
) -> dict[str, Any]:
    """Return a launch template's data; the caller adds security groups and a subnet to its network interface.

    `user_data` is plain text: boto3 encodes it for RunInstances but not for CreateLaunchTemplate.
    Raises InputError `not_rentable` for an owned machine.
    """
    check(deployable)
    _check_rentable(deployable)
    return {
        "ImageId": deployable.image_id or f"resolve:ssm:{IMAGE_PARAMETER}",
        "InstanceType": deployable.candidate.offer.instance_type.name,
        **_instance_profile(deployable),
        "UserData": base64.b64encode(user_data.encode()).decode(),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        },
        "BlockDeviceMappings": [_root_volume(deployable, root_device_name)],
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "AssociatePublicIpAddress": True,
                "DeleteOnTermination": True,
            }
        ],
        **_market(deployable),
        "TagSpecifications": _tag_specifications(deployable),
    }


def _check_rentable(deployable: Deployable) -> None:
    offer = deployable.candidate.offer
    if offer.market == "owned":
        raise InputError(
            "not_rentable",
            f"{offer.instance_type.name} is your own machine: EC2 can't launch it",
            hint="use render --as docker or compose, or plan without --hardware",
        )
    parameter = next(iter(deployable.parameters), None)
    if parameter is not None and deployable.instance_profile is None:
        raise InputError(
            "instance_profile_missing",
            f"the machine can't read {parameter} without a role",
            hint="name one with --instance-profile whose role allows ssm:GetParameter on the parameter",
        )


def _instance_profile(deployable: Deployable) -> dict[str, Any]:
    profile = deployable.instance_profile
    if profile is None:
        return {}
    return {"IamInstanceProfile": {"Arn" if profile.startswith("arn:") else "Name": profile}}


def _root_volume(deployable: Deployable, device_name: str) -> dict[str, Any]:
    return {
        "DeviceName": device_name,
        "Ebs": {
            "VolumeType": "gp3",
            "VolumeSize": deployable.candidate.storage.root_volume_gib,
            "Encrypted": True,
            "DeleteOnTermination": True,
        },
    }


def _market(deployable: Deployable) -> dict[str, Any]:
    """Return a one-time spot request; without a maximum price, the on-demand price limits it."""
    if deployable.candidate.offer.market != "spot":
        return {}
    spot = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot}}


def _tag_specifications(deployable: Deployable) -> list[dict[str, Any]]:
    tags = {"Name": f"tgi-deploy-{deployable.name}", "tgi-deploy:deployment": deployable.name}
    listed = [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
    return [{"ResourceType": kind, "Tags": list(listed)} for kind in _TAGGED]
