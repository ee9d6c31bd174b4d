"""Requests for spot capacity. Launching a spot machine makes one, tagged like the machine; it goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tgi_deploy.adapters.aws.api import Api, by_tags, tags_of
from tgi_deploy.reconcile.errors import BadRequestError
from tgi_deploy.reconcile.model import Found

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "spot-request"
_THERE: Final = ("open", "active")


@dataclass(frozen=True, slots=True)
class SpotRequests:
    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        there = [*by_tags(tags), {"Name": "state", "Values": list(_THERE)}]
        return self._described("looking for spot requests", Filters=there)

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> NoReturn:  # noqa: ARG002 -- the port's signature
        raise BadRequestError("a spot request is never created on its own")

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Nothing to do."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self._described("reading a spot request", SpotInstanceRequestIds=[attributes["id"]])
        return found[0] if found and found[0].state in _THERE else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Withdraw it. A machine that it has launched is not ended by this."""
        self.api.remove(
            "cancel_spot_instance_requests", "withdrawing a spot request", SpotInstanceRequestIds=[attributes["id"]]
        )

    def _described(self, doing: str, **parameters: Any) -> tuple[Found, ...]:  # noqa: ANN401 -- the API's own
        items = self.api.list("describe_spot_instance_requests", "SpotInstanceRequests", doing, **parameters)
        return tuple(sorted((self._found(item) for item in items), key=lambda found: found.id))

    def _found(self, item: Mapping[str, Any]) -> Found:
        created = {"created": item["CreateTime"].isoformat()} if "CreateTime" in item else {}
        status = {"status": item["Status"]["Code"]} if item.get("Status", {}).get("Code") else {}
        return Found(
            key=f"{KIND}:{item['SpotInstanceRequestId']}",
            kind=KIND,
            place=self.api.region,
            attributes={"id": item["SpotInstanceRequestId"], **created, **status},
            tags=tags_of(item),
            state=item["State"],
            attached=True,
        )
