"""Spot requests. Launching a spot instance creates one with the same tags, which closes with the instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from tgi_deploy.reconcile.errors import BadRequestError
from tgi_deploy.targets.aws.api import Api, by_tags, each, tagged, tags_of
from tgi_deploy.values.resource import RECLAIMED, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply

KIND = "spot-request"
_THERE: Final = ("open", "active")
# Status codes of a request whose instance is ending (EC2 User Guide, "Spot Instance request status").
_ENDING: Final = frozenset({"marked-for-termination", "marked-for-stop", "instance-terminated-by-price"})


@dataclass(frozen=True, slots=True)
class SpotRequests:
    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        there = [*by_tags(tags), {"Name": "state", "Values": list(_THERE)}]
        return self._described("looking for spot requests", tags, Filters=there)

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> NoReturn:  # noqa: ARG002 -- the port's signature
        raise BadRequestError("spot requests are not created separately")

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Do nothing."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self._described("reading a spot request", {}, SpotInstanceRequestIds=[attributes["id"]])
        return found[0] if found and found[0].state in _THERE else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Cancel it. This does not terminate its instance."""
        self.api.remove(
            "cancel_spot_instance_requests", "canceling a spot request", SpotInstanceRequestIds=[attributes["id"]]
        )

    def _described(self, doing: str, tags: Mapping[str, str], **parameters: Any) -> tuple[Found, ...]:  # noqa: ANN401 -- the API's own
        read = each("SpotInstanceRequests", lambda item: tagged(self._found(item), tags))
        found = self.api.list("describe_spot_instance_requests", doing, read, **parameters)
        return tuple(sorted(found, key=lambda item: item.id))

    def _found(self, item: Reply) -> Found:
        found_id = item.text("SpotInstanceRequestId", prefix="sir-")
        status = item.optional_part("Status").optional_text("Code")
        known = {"created": item.moment("CreateTime"), RECLAIMED: status if status in _ENDING else ""}
        return Found(
            key=f"{KIND}:{found_id}",
            kind=KIND,
            place=self.api.region,
            attributes={"id": found_id, **{name: text for name, text in known.items() if text}},
            tags=tags_of(item),
            state=item.text("State"),
            attached=True,
        )
