"""Volumes and network interfaces, which come with an instance and may outlive it. Never created separately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from tgi_deploy.reconcile.errors import BadRequestError, InUseError
from tgi_deploy.targets.aws.api import Api, each, paged, tagged, tags_of
from tgi_deploy.values.resource import Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply


@dataclass(frozen=True, slots=True)
class Attached:
    """A handler for one of these kinds. The fields are EC2's names."""

    api: Api
    kind: str
    items: str
    id_field: str
    id_prefix: str
    state_field: str
    tags_field: str
    describe_method: str
    delete_method: str
    ids_parameter: str
    rare: ClassVar = False
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return tuple(sorted(self._described(tags, **paged(tags)), key=lambda found: found.id))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> NoReturn:  # noqa: ARG002 -- the port's signature
        raise BadRequestError(f"a {self.kind} is not created separately")

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Do nothing."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        return next(iter(self._described({}, **{self.ids_parameter: [attributes["id"]]})), None)

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Delete it once nothing uses it. A terminating instance deletes its own."""
        found = self.read(attributes)
        if found is None or found.state == "deleting":
            return
        if found.state != "available":
            raise InUseError(f"{self.kind} {found.id} is {found.state}")
        self.api.remove(self.delete_method, f"deleting a {self.kind}", **{self.id_field: found.id})

    def _described(self, tags: Mapping[str, str], **parameters: Any) -> tuple[Found, ...]:  # noqa: ANN401 -- the API's own
        read = each(self.items, lambda item: tagged(self._found(item), tags))
        return self.api.list(self.describe_method, f"looking for {self.kind}s", read, **parameters)

    def _found(self, item: Reply) -> Found:
        found_id, state = item.text(self.id_field, prefix=self.id_prefix), item.text(self.state_field)
        return Found(
            key=f"{self.kind}:{found_id}",
            kind=self.kind,
            place=self.api.region,
            attributes={"id": found_id, **_created(item)},
            tags=tags_of(item, self.tags_field),
            state=state,
            alive=state != "deleting",
            attached=True,
        )


def _created(item: Reply) -> dict[str, str]:
    created_at = item.moment("CreateTime") or item.optional_part("Attachment").moment("AttachTime")
    return {"created": created_at} if created_at else {}


def volumes(api: Api) -> Attached:
    return Attached(
        api=api,
        kind="volume",
        items="Volumes",
        id_field="VolumeId",
        id_prefix="vol-",
        state_field="State",
        tags_field="Tags",
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
        id_prefix="eni-",
        state_field="Status",
        tags_field="TagSet",
        describe_method="describe_network_interfaces",
        delete_method="delete_network_interface",
        ids_parameter="NetworkInterfaceIds",
    )
