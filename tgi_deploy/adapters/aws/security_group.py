"""The group that lets in who may use the endpoint, and nobody else.

Properties: name, description, network, port, cidrs (what is let in to the port).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.adapters.aws.api import Api, paged, tag_specifications, tags_of
from tgi_deploy.reconcile.errors import LostReplyError
from tgi_deploy.reconcile.model import STRANGE_RULES, TAG_KEY, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "security-group"
_SIGNATURE: Final = "tgi-deploy"


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
            {"Ipv6Ranges": [{"CidrIpv6": cidr, "Description": _SIGNATURE}]}
            if ":" in cidr
            else {"IpRanges": [{"CidrIp": cidr, "Description": _SIGNATURE}]}
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
                **_strange(group),
            },
            tags=known,
            state="available",
        )


def _strange(group: Mapping[str, Any]) -> dict[str, str]:
    """What is let in by rules that this tool did not write: it signs its own."""
    texts = [
        f"{_named(source)} to {_ports(rule)}"
        for rule in group.get("IpPermissions", ())
        for kind in ("IpRanges", "Ipv6Ranges", "PrefixListIds", "UserIdGroupPairs")
        for source in rule.get(kind, ())
        if source.get("Description") != _SIGNATURE
    ]
    return {STRANGE_RULES: ", ".join(sorted(texts))} if texts else {}


def _named(source: Mapping[str, Any]) -> str:
    names = ("CidrIp", "CidrIpv6", "PrefixListId", "GroupId")
    return next((str(source[name]) for name in names if source.get(name)), "somebody")


def _ports(rule: Mapping[str, Any]) -> str:
    if "FromPort" not in rule:
        return "every port"
    first, last = rule["FromPort"], rule.get("ToPort", rule["FromPort"])
    return f"{rule['IpProtocol']} {first}" if first == last else f"{rule['IpProtocol']} {first}-{last}"


def _cidrs(rule: Mapping[str, Any]) -> list[str]:
    return [item["CidrIp"] for item in rule.get("IpRanges", ())] + [
        item["CidrIpv6"] for item in rule.get("Ipv6Ranges", ())
    ]
