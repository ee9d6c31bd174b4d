"""The security group, which allows only the endpoint's users.

Properties: name, description, network, port, cidrs (the networks allowed to reach the port).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from tgi_deploy.reconcile.errors import LostReplyError
from tgi_deploy.targets.aws.api import Api, each, paged, tag_specifications, tagged, tags_of
from tgi_deploy.targets.reply import Reply, ReplyError
from tgi_deploy.values.resource import FOREIGN_RULES, TAG_KEY, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

KIND = "security-group"
SIGNED: Final = "signed_cidrs"
_SIGNATURE: Final = "tgi-deploy"
_REVOKING: Final = "revoking the access of a network"
_TRIES: Final = 3
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SecurityGroups:
    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        found = self._described(
            "looking for security groups", lambda group: tagged(self._found(group, tags_of(group)), tags), **paged(tags)
        )
        return tuple(sorted(found, key=lambda item: item.id))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token; names are unique in a network
        known = {"GroupName": properties["name"], "VpcId": properties["network"]}
        return self.api.change(
            "create_security_group",
            "creating a security group",
            lambda reply: self._found(Reply({**reply.content, **known}), tags),
            GroupName=properties["name"],
            Description=properties["description"],
            VpcId=properties["network"],
            TagSpecifications=tag_specifications(tags, "security-group"),
        )

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Allow the requested networks, then revoke those that are no longer requested; leave rules of others alone."""
        group_id, port = attributes["id"], properties["port"]
        for cidr in properties["cidrs"]:
            self._allow(group_id, port, cidr)
        for cidr in properties.get("revoked", ()):
            rule = [_rule(port, cidr)]
            self.api.remove("revoke_security_group_ingress", _REVOKING, GroupId=group_id, IpPermissions=rule)

    def _allow(self, group_id: str, port: int, cidr: str) -> None:
        """Add a rule, repeating until it is certain to exist: AWS rejects a duplicate."""
        for attempt in range(1, _TRIES + 1):
            try:
                self._ask_for_rule(group_id, port, cidr)
            except LostReplyError:
                if self._allows(group_id, port, cidr):
                    return
                if attempt == _TRIES:
                    raise
                self.api.retrier.clock.sleep(attempt)
            else:
                return

    def _ask_for_rule(self, group_id: str, port: int, cidr: str) -> None:
        self.api.change(
            "authorize_security_group_ingress",
            "allowing the caller's address",
            _done,
            GroupId=group_id,
            IpPermissions=[_rule(port, cidr, Description=_SIGNATURE)],
        )

    def _allows(self, group_id: str, port: int, cidr: str) -> bool:
        def allows(group: Reply) -> bool:
            rules = group.optional_parts("IpPermissions")
            return any(_port_range(rule) == (port, port) and cidr in _cidrs(rule) for rule in rules)

        return self._read(group_id, allows) or False

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        return self._read(attributes["id"], lambda group: self._found(group, tags_of(group)))

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.remove("delete_security_group", "deleting a security group", GroupId=attributes["id"])

    def _read(self, group_id: str, read: Callable[[Reply], _T]) -> _T | None:
        """Return it, or None if unknown."""
        return next(iter(self._described("reading a security group", read, GroupIds=[group_id])), None)

    def _described(self, doing: str, read: Callable[[Reply], _T], **parameters: Any) -> tuple[_T, ...]:  # noqa: ANN401 -- the API's own
        return self.api.list("describe_security_groups", doing, each("SecurityGroups", read), **parameters)

    def _found(self, group: Reply, tags: Mapping[str, str]) -> Found:
        rules = sorted({cidr for rule in group.optional_parts("IpPermissions") for cidr in _cidrs(rule)})
        return Found(
            key=tags.get(TAG_KEY, KIND),
            kind=KIND,
            place=self.api.region,
            attributes={
                "id": group.text("GroupId", prefix="sg-"),
                "name": group.optional_text("GroupName"),
                "network": group.optional_text("VpcId"),
                "cidrs": " ".join(rules),
                SIGNED: " ".join(sorted(_signed(group))),
                **_foreign_rules(group),
            },
            tags=dict(tags),
            state="available",
        )


def _done(reply: Reply) -> None:
    if not reply.flag("Return"):
        raise ReplyError("'Return' is missing")


def _rule(port: int, cidr: str, **words: str) -> dict[str, Any]:
    ranges = {"Ipv6Ranges": [{"CidrIpv6": cidr, **words}]} if ":" in cidr else {"IpRanges": [{"CidrIp": cidr, **words}]}
    return {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, **ranges}


def _signed(group: Reply) -> Iterator[str]:
    """Yield the networks that are allowed by rules with this tool's description."""
    for rule in group.optional_parts("IpPermissions"):
        for name, word in (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6")):
            for source in rule.optional_parts(name):
                if source.optional_text("Description") == _SIGNATURE:
                    yield source.text(word)


def _foreign_rules(group: Reply) -> dict[str, str]:
    """Return what is allowed by rules without this tool's description."""
    texts = [
        f"{_named(source)} to {_ports(rule)}"
        for rule in group.optional_parts("IpPermissions")
        for kind in ("IpRanges", "Ipv6Ranges", "PrefixListIds", "UserIdGroupPairs")
        for source in rule.optional_parts(kind)
        if source.optional_text("Description") != _SIGNATURE
    ]
    return {FOREIGN_RULES: ", ".join(sorted(texts))} if texts else {}


def _named(source: Reply) -> str:
    names = ("CidrIp", "CidrIpv6", "PrefixListId", "GroupId")
    return next((text for name in names if (text := source.optional_text(name))), "somebody")


def _ports(rule: Reply) -> str:
    if not rule.has("FromPort"):
        return "every port"
    protocol, (first, last) = rule.text("IpProtocol"), _port_range(rule)
    return f"{protocol} {first}" if first == last else f"{protocol} {first}-{last}"


def _port_range(rule: Reply) -> tuple[int, int]:
    first = rule.integer("FromPort")
    return first, rule.integer("ToPort") if rule.has("ToPort") else first


def _cidrs(rule: Reply) -> list[str]:
    return [item.text("CidrIp") for item in rule.optional_parts("IpRanges")] + [
        item.text("CidrIpv6") for item in rule.optional_parts("Ipv6Ranges")
    ]
