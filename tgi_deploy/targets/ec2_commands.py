"""What to type into AWS's own command line to remove one thing, for the case that this tool could not."""

from __future__ import annotations

from typing import Final

_COMMANDS: Final = {
    "instance": "terminate-instances --instance-ids",
    "spot-request": "cancel-spot-instance-requests --spot-instance-request-ids",
    "volume": "delete-volume --volume-id",
    "network-interface": "delete-network-interface --network-interface-id",
    "address": "release-address --allocation-id",
    "launch-template": "delete-launch-template --launch-template-id",
    "security-group": "delete-security-group --group-id",
}


def removal_command(kind: str, thing_id: str, region: str) -> str | None:
    """None for a kind that has no such command."""
    words = _COMMANDS.get(kind)
    return None if words is None else f"aws ec2 {words} {thing_id} --region {region}"
