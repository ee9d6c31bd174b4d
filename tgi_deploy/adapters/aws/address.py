"""Elastic addresses. None is ever created here; one that carries our tags all the same costs money until it is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tgi_deploy.adapters.aws.api import Api, by_tags, tags_of
from tgi_deploy.reconcile.errors import BadRequestError, GoneError, InUseError
from tgi_deploy.reconcile.model import Found

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "address"


@dataclass(frozen=True, slots=True)
class Addresses:
    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return self._described("looking for addresses", Filters=by_tags(tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> NoReturn:  # noqa: ARG002 -- the port's signature
        raise BadRequestError("an address is never created on its own")

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Nothing to do."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self._described("reading an address", AllocationIds=[attributes["id"]])
        return found[0] if found else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Give it back once no machine uses it."""
        found = self.read(attributes)
        if found is None:
            return
        if found.state == "associated":
            raise InUseError(f"address {found.id} is in use")
        self.api.remove("release_address", "releasing an address", AllocationId=found.id)

    def _described(self, doing: str, **parameters: Any) -> tuple[Found, ...]:  # noqa: ANN401 -- the API's own
        try:
            items = self.api.ask("describe_addresses", doing, **parameters)["Addresses"]  # the one without pages
        except GoneError:
            return ()
        return tuple(sorted((self._found(item) for item in items), key=lambda found: found.id))

    def _found(self, item: Mapping[str, Any]) -> Found:
        used = item.get("AssociationId") or item.get("InstanceId") or item.get("NetworkInterfaceId")
        return Found(
            key=f"{KIND}:{item['AllocationId']}",
            kind=KIND,
            place=self.api.region,
            attributes={"id": item["AllocationId"]},
            tags=tags_of(item),
            state="associated" if used else "available",
            attached=True,
        )
