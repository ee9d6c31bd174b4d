"""The group that lets in who may use the endpoint, and nobody else.

Properties: name, description, network, port, cidrs (what is let in to the port).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgi_deploy.adapters.aws.api import Api, paged, tag_specifications, tags_of
from tgi_deploy.reconcile.errors import LostReplyError
from tgi_deploy.reconcile.model import TAG_KEY, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "security-group"


@dataclass(frozen=True, slots=True)
class SecurityGroups:
    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        groups = self.api.list(
            "describe_security_groups", "SecurityGroups", "looking for security groups", **paged(tags)
        )
        return tuple(sorted((self._found(group) for group in groups), key=lambda found: found.id))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token; names are unique in a network
        answer = self.api.change(
            "create_security_group",
            "creating a security group",
            GroupName=properties["name"],
            Description=properties["description"],
            VpcId=properties["network"],
            TagSpecifications=tag_specifications(tags, "security-group"),
        )
        return self._found({**answer, "GroupName": properties["name"], "VpcId": properties["network"]}, tags)

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Let the wished addresses in. Rules of others are left alone."""
        for cidr in properties["cidrs"]:
            self._allow(attributes["id"], properties["port"], cidr)

    def _allow(self, group_id: str, port: int, cidr: str) -> None:
        ranges = (
            {"Ipv6Ranges": [{"CidrIpv6": cidr, "Description": "tgi-deploy"}]}
            if ":" in cidr
            else {"IpRanges": [{"CidrIp": cidr, "Description": "tgi-deploy"}]}
        )
        try:
            self.api.change(
                "authorize_security_group_ingress",
                "letting the caller's address in",
                GroupId=group_id,
                IpPermissions=[{"IpProtocol": "tcp", "FromPort": port, "ToPort": port, **ranges}],
            )
        except LostReplyError as error:
            if not self._allows(group_id, port, cidr):
                raise error from None

    def _allows(self, group_id: str, port: int, cidr: str) -> bool:
        group = self._describe(group_id)
        return any(
            (rule.get("FromPort"), rule.get("ToPort")) == (port, port) and cidr in _cidrs(rule)
            for rule in (group or {}).get("IpPermissions", ())
        )

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        group = self._describe(attributes["id"])
        return None if group is None else self._found(group)

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.remove("delete_security_group", "deleting a security group", GroupId=attributes["id"])

    def _describe(self, group_id: str) -> dict[str, Any] | None:
        groups = self.api.list(
            "describe_security_groups", "SecurityGroups", "reading a security group", GroupIds=[group_id]
        )
        return groups[0] if groups else None

    def _found(self, group: Mapping[str, Any], tags: Mapping[str, str] | None = None) -> Found:
        known = dict(tags) if tags is not None else tags_of(group)
        rules = sorted({cidr for rule in group.get("IpPermissions", ()) for cidr in _cidrs(rule)})
        return Found(
            key=known.get(TAG_KEY, KIND),
            kind=KIND,
            place=self.api.region,
            attributes={
                "id": group["GroupId"],
                "name": group.get("GroupName", ""),
                "network": group.get("VpcId", ""),
                "cidrs": " ".join(rules),
            },
            tags=known,
            state="available",
        )


def _cidrs(rule: Mapping[str, Any]) -> list[str]:
    return [item["CidrIp"] for item in rule.get("IpRanges", ())] + [
        item["CidrIpv6"] for item in rule.get("Ipv6Ranges", ())
    ]
