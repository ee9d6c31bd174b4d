"""What to type into AWS's own command line to remove one thing, for the case that this tool could not."""

from __future__ import annotations

from typing import Final

_EC2: Final = {
    "instance": "terminate-instances --instance-ids",
    "spot-request": "cancel-spot-instance-requests --spot-instance-request-ids",
    "volume": "delete-volume --volume-id",
    "network-interface": "delete-network-interface --network-interface-id",
    "address": "release-address --allocation-id",
    "launch-template": "delete-launch-template --launch-template-id",
    "security-group": "delete-security-group --group-id",
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


def removal_command(kind: str, thing_id: str, region: str) -> str | None:
    """None for a kind that has no such command."""
    if kind in _OTHERS:
        return _OTHERS[kind].format(id=thing_id, region=region)
    words = _EC2.get(kind)
    return None if words is None else f"aws ec2 {words} {thing_id} --region {region}"
