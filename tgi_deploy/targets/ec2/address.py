"""Elastic IP addresses. This tool creates none, but one with its tags costs money until it is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from tgi_deploy.reconcile.errors import BadRequestError, GoneError, InUseError
from tgi_deploy.targets.aws.api import Api, by_tags, each, tagged, tags_of
from tgi_deploy.values.resource import Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply

KIND = "address"


@dataclass(frozen=True, slots=True)
class Addresses:
    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return self._described("looking for addresses", tags, Filters=by_tags(tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> NoReturn:  # noqa: ARG002 -- the port's signature
        raise BadRequestError("addresses are not created separately")

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Do nothing."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self._described("reading an address", {}, AllocationIds=[attributes["id"]])
        return found[0] if found else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Release it once no machine uses it."""
        found = self.read(attributes)
        if found is None:
            return
        if found.state == "associated":
            raise InUseError(f"address {found.id} is in use")
        self.api.remove("release_address", "releasing an address", AllocationId=found.id)

    def _described(self, doing: str, tags: Mapping[str, str], **parameters: Any) -> tuple[Found, ...]:  # noqa: ANN401 -- the API's own
        read = each("Addresses", lambda item: tagged(self._found(item), tags))
        try:
            found = self.api.ask("describe_addresses", doing, read, **parameters)  # the only call without pages
        except GoneError:
            return ()
        return tuple(sorted(found, key=lambda item: item.id))

    def _found(self, item: Reply) -> Found:
        used = any(item.optional_text(name) for name in ("AssociationId", "InstanceId", "NetworkInterfaceId"))
        found_id = item.text("AllocationId", prefix="eipalloc-")
        return Found(
            key=f"{KIND}:{found_id}",
            kind=KIND,
            place=self.api.region,
            attributes={"id": found_id},
            tags=tags_of(item),
            state="associated" if used else "available",
            attached=True,
        )
