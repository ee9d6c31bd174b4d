"""What a machine brings along and may leave behind: volumes and network interfaces. Never created on their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tgi_deploy.adapters.aws.api import Api, paged, tags_of
from tgi_deploy.reconcile.errors import BadRequestError, InUseError
from tgi_deploy.reconcile.model import Found

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Attached:
    """Handler of such a kind; the fields are EC2's names for it."""

    api: Api
    kind: str
    items: str
    id_field: str
    state_field: str
    describe_method: str
    delete_method: str
    ids_parameter: str

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        items = self._described(**paged(tags))
        return tuple(sorted((self._found(item) for item in items), key=lambda found: found.id))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> NoReturn:  # noqa: ARG002 -- the port's signature
        raise BadRequestError(f"a {self.kind} is never created on its own")

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Nothing to do."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        items = self._described(**{self.ids_parameter: [attributes["id"]]})
        return self._found(items[0]) if items else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Delete it once nothing holds it: a machine that is ending takes it along by itself."""
        found = self.read(attributes)
        if found is None or found.state == "deleting":
            return
        if found.state != "available":
            raise InUseError(f"{self.kind} {found.id} is {found.state}")
        self.api.remove(self.delete_method, f"deleting a {self.kind}", **{self.id_field: found.id})

    def _described(self, **parameters: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- the API's own
        return self.api.list(self.describe_method, self.items, f"looking for {self.kind}s", **parameters)

    def _found(self, item: Mapping[str, Any]) -> Found:
        found_id, state = item[self.id_field], item[self.state_field]
        return Found(
            key=f"{self.kind}:{found_id}",
            kind=self.kind,
            place=self.api.region,
            attributes={"id": found_id, **_born(item)},
            tags=tags_of(item),
            state=state,
            alive=state != "deleting",
            attached=True,
        )


def _born(item: Mapping[str, Any]) -> dict[str, str]:
    born = item.get("CreateTime") or (item.get("Attachment") or {}).get("AttachTime")
    return {"created": born.isoformat()} if born else {}


def volumes(api: Api) -> Attached:
    return Attached(
        api=api,
        kind="volume",
        items="Volumes",
        id_field="VolumeId",
        state_field="State",
        describe_method="describe_volumes",
        delete_method="delete_volume",
        ids_parameter="VolumeIds",
    )


def network_interfaces(api: Api) -> Attached:
    return Attached(
        api=api,
        kind="network-interface",
        items="NetworkInterfaces",
        id_field="NetworkInterfaceId",
        state_field="Status",
        describe_method="describe_network_interfaces",
        delete_method="delete_network_interface",
        ids_parameter="NetworkInterfaceIds",
    )
