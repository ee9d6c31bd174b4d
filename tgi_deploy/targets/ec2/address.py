"""Elastic IP addresses: a deployment's static address, which passes from one of its machines to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tgi_deploy.reconcile.errors import BadRequestError, InUseError, QuotaError, ResourceNotFoundError
from tgi_deploy.targets.aws.api import Api, by_tags, each, tag_specifications, tagged, tags_of
from tgi_deploy.targets.ec2.quota import more_addresses
from tgi_deploy.values.resource import TAG_KEY, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply

KIND = "address"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Its attribute `machine` is the id of the machine that has it, empty for none."""

    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = True

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return self._described("looking for addresses", tags, Filters=by_tags(tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token
        """Allocate one. Raises BadRequestError `quota_exceeded`: another pool can't help."""
        try:
            return self.api.change(
                "allocate_address",
                "allocating a static IP address",
                lambda reply: self._found(reply, tags),
                once=True,
                Domain=properties["domain"],
                TagSpecifications=tag_specifications(tags, "elastic-ip"),
            )
        except QuotaError as error:
            used = len(self._described("counting addresses", {}))
            hint = more_addresses(self.api.region, used)
            raise BadRequestError(error.message, code="quota_exceeded", hint=hint) from error

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Associate it with a machine, taking it from another. Only if needed: AWS may charge for a remap."""
        found, machine = self.read(attributes), properties["machine"]
        if found is not None and found.attributes["machine"] == machine:
            return
        self.api.ask(
            "associate_address",
            "moving the static IP address",
            lambda reply: reply.text("AssociationId", prefix="eipassoc-"),
            AllocationId=attributes["id"],
            InstanceId=machine,
            AllowReassociation=True,
        )

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
        read = each("Addresses", lambda item: tagged(self._found(item, tags_of(item)), tags))
        try:
            found = self.api.ask("describe_addresses", doing, read, **parameters)  # the only call without pages
        except ResourceNotFoundError:
            return ()
        return tuple(sorted(found, key=lambda item: item.id))

    def _found(self, item: Reply, tags: Mapping[str, str]) -> Found:
        used = any(item.optional_text(name) for name in ("AssociationId", "InstanceId", "NetworkInterfaceId"))
        found_id = item.text("AllocationId", prefix="eipalloc-")
        return Found(
            key=tags.get(TAG_KEY, KIND),
            kind=KIND,
            place=self.api.region,
            attributes={
                "id": found_id,
                "address": item.address("PublicIp"),
                "machine": item.optional_text("InstanceId"),
            },
            tags=dict(tags),
            state="associated" if used else "available",
            billed=True,
        )
