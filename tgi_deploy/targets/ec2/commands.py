"""AWS CLI commands to inspect and remove resources by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.protocol import Commands
from tgi_deploy.values.resource import TAG_NAME

if TYPE_CHECKING:
    from tgi_deploy.values.serving import TunnelEnd

_EC2: Final = {
    "instance": "terminate-instances --instance-ids",
    "spot-request": "cancel-spot-instance-requests --spot-instance-request-ids",
    "volume": "delete-volume --volume-id",
    "network-interface": "delete-network-interface --network-interface-id",
    "address": "release-address --allocation-id",
    "launch-template": "delete-launch-template --launch-template-id",
    "security-group": "delete-security-group --group-id",
}
_LOOKS: Final = {
    "instance": "describe-instances --instance-ids",
    "spot-request": "describe-spot-instance-requests --spot-instance-request-ids",
    "volume": "describe-volumes --volume-ids",
    "network-interface": "describe-network-interfaces --network-interface-ids",
    "address": "describe-addresses --allocation-ids",
    "launch-template": "describe-launch-templates --launch-template-ids",
    "security-group": "describe-security-groups --group-ids",
}
_OTHERS: Final = {
    "parameter": "aws ssm delete-parameter --name {id} --region {region}",
    "schedule": "aws scheduler delete-schedule-group --name {id} --region {region}",
    "role": (
        "aws iam delete-role-policy --role-name {id} --policy-name tgi-deploy && aws iam delete-role --role-name {id}"
    ),
    "instance-profile": (
        "aws iam remove-role-from-instance-profile --instance-profile-name {id} --role-name {id}-machine && "
        "aws iam delete-instance-profile --instance-profile-name {id}"
    ),
}


def look_command(kind: str, thing_id: str, region: str) -> str | None:
    """Return the command, or None if the kind has none."""
    words = _LOOKS.get(kind)
    return None if words is None else f"aws ec2 {words} {thing_id} --region {region}"


def removal_command(kind: str, thing_id: str, region: str) -> str | None:
    """Return the command, or None if the kind has none."""
    if kind in _OTHERS:
        return _OTHERS[kind].format(id=thing_id, region=region)
    words = _EC2.get(kind)
    return None if words is None else f"aws ec2 {words} {thing_id} --region {region}"


def commands(name: str, region: str, machine_id: str, *, nvidia: bool = True) -> Commands:  # noqa: ARG001 -- the protocol's
    """Return commands that find the resources by their tags."""
    there = f"aws ec2 describe-instances --region {region} --filters 'Name=tag:{TAG_NAME},Values={name}'"
    tagged = f"--tag-filters Key={TAG_NAME},Values={name}"
    return Commands(
        inspections=(
            there,
            f"aws ec2 get-console-output --region {region} --instance-id {machine_id} --latest --output text",
            f"aws ec2 reboot-instances --region {region} --instance-ids {machine_id}",
        ),
        removal=(
            f"{there} --query 'Reservations[].Instances[].InstanceId'",
            f"aws ec2 terminate-instances --region {region} --instance-ids INSTANCE_ID",
        ),
        proof=f"aws resourcegroupstaggingapi get-resources --region {region} {tagged}   # the proof: an empty list",
    )


def tunnel(end: TunnelEnd) -> str:
    return (
        f"aws ssm start-session --region {end.place} --target {end.machine_id}"
        f" --document-name AWS-StartPortForwardingSession --parameters portNumber={end.port},localPortNumber={end.port}"
    )
