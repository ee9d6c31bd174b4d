"""The machine. Properties: request (RunInstances' parameters but for counts, token and tags), spot; loose: tags."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.adapters.aws.api import Api, paged, tag_list, tag_specifications, tags_of
from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.clocks import is_past
from tgi_deploy.reconcile.ends import moment_of
from tgi_deploy.reconcile.errors import GoneError, NotYetError, StaleTokenError
from tgi_deploy.reconcile.model import TAG_KEY, Found

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KIND = "instance"
_THERE: Final = ("pending", "running", "stopping", "stopped", "shutting-down")
_ALIVE: Final = ("pending", "running")
_TAGGED: Final = ("instance", "volume", "network-interface")
_NEW_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Instances:
    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        asked = paged(tags)
        there = [*asked["Filters"], {"Name": "instance-state-name", "Values": list(_THERE)}]
        items = self._described("looking for instances", **{**asked, "Filters": there})
        found = [self._found(item) for item in items]
        return tuple(sorted(found, key=lambda item: (item.attributes["launched"], item.id)))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        """Launch one. Raises StaleTokenError when the token gives an earlier instance that has ended since."""
        kinds = (*_TAGGED, "spot-instances-request") if properties["spot"] else _TAGGED
        answer = self.api.change(
            "run_instances",
            "launching an instance",
            **properties["request"],
            MinCount=1,
            MaxCount=1,
            ClientToken=token,
            TagSpecifications=tag_specifications(tags, *kinds),
        )
        found = self._found(answer["Instances"][0], tags)
        if not found.alive:
            raise StaleTokenError(f"launching an instance gave {found.id}, which is {found.state}")
        return found

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Set what `tags` names; the other tags stay, and nothing else of an instance changes in place."""
        tags = properties.get("tags")
        if tags:
            self.api.ask("create_tags", "tagging an instance", Resources=[attributes["id"]], Tags=tag_list(tags))

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        item = self.describe(attributes["id"])
        if item is None or item["State"]["Name"] not in _THERE:
            return None
        return self._found(item)

    def delete(self, attributes: Mapping[str, str]) -> None:
        """End it. One just launched may not be known yet: it is asked for again, never taken for gone."""

        def ask() -> None:
            self.api.ask("terminate_instances", "ending an instance", InstanceIds=[attributes["id"]])

        with suppress(GoneError, NotYetError):
            if self._may_be_new(attributes):
                self.api.retrier.call(ask)
            else:
                ask()

    def _may_be_new(self, attributes: Mapping[str, str]) -> bool:
        """Unless it was certainly launched more than a minute ago: the cloud's clock and ours may differ."""
        launched = moment_of(attributes.get("launched"))
        return launched is None or not is_past(launched, self.api.retrier.clock.now(), by_s=_NEW_S)

    def delete_many(self, many: Sequence[Mapping[str, str]]) -> bool:
        """One that is unknown or protected has EC2 refuse the whole request."""
        try:
            self.api.ask(
                "terminate_instances", "ending instances", InstanceIds=[attributes["id"] for attributes in many]
            )
        except DeployError:
            return False
        return True

    def describe(self, instance_id: str) -> dict[str, Any] | None:
        """The instance as EC2 describes it, ended ones included; None when it is unknown."""
        items = self._described("reading an instance", InstanceIds=[instance_id])
        return items[0] if items else None

    def _described(self, doing: str, **parameters: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- the API's own
        pages = self.api.list("describe_instances", "Reservations", doing, **parameters)
        return [item for reservation in pages for item in reservation["Instances"]]

    def _found(self, item: Mapping[str, Any], tags: Mapping[str, str] | None = None) -> Found:
        known = dict(tags) if tags is not None else tags_of(item)
        state = item["State"]["Name"]
        why = _reason(item) if state not in _ALIVE else {}
        return Found(
            key=known.get(TAG_KEY, KIND),
            kind=KIND,
            place=self.api.region,
            attributes={**_attributes(item), **why},
            tags=known,
            state=state,
            alive=state in _ALIVE,
        )


def _reason(item: Mapping[str, Any]) -> dict[str, str]:
    reason: Mapping[str, Any] = item.get("StateReason") or {}
    named = {"reason_code": reason.get("Code"), "reason": reason.get("Message")}
    return {name: text for name, text in named.items() if text}


def address_of(item: Mapping[str, Any]) -> str | None:
    return item.get("PublicIpAddress") or item.get("PrivateIpAddress") or None


def _attributes(item: Mapping[str, Any]) -> dict[str, str]:
    return {
        "id": item["InstanceId"],
        "zone": item.get("Placement", {}).get("AvailabilityZone", ""),
        "instance_type": item.get("InstanceType", ""),
        "market": "spot" if item.get("InstanceLifecycle") == "spot" else "on-demand",
        "launched": item["LaunchTime"].isoformat() if "LaunchTime" in item else "",
        "address": address_of(item) or "",
    }
