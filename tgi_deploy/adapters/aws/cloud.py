"""One region of EC2, as the rest of the program sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.adapters.aws import address, attached, instance, launch_template, security_group, spot_request
from tgi_deploy.adapters.aws.console import console_output
from tgi_deploy.adapters.aws.errors import by_class, death_class
from tgi_deploy.adapters.aws.images import resolve_image
from tgi_deploy.adapters.aws.placement import placements
from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import NoCapacityError
from tgi_deploy.reconcile.model import TAG_ID, MachineState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.adapters.aws.api import Api
    from tgi_deploy.reconcile.model import Found, MachineImage, Placement
    from tgi_deploy.reconcile.ports import Handler

# In the order of creation. What a machine brings along stands before it: it can go only once the machine has.
_KINDS: Final = (
    security_group.KIND,
    launch_template.KIND,
    address.KIND,
    "network-interface",
    "volume",
    instance.KIND,
    spot_request.KIND,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ec2Cloud:
    """`image_parameters` are the public parameters to try for a machine image, in order."""

    api: Api
    image_parameters: Sequence[Mapping[str, str]]

    @property
    def region(self) -> str:
        return self.api.region

    @property
    def kinds(self) -> tuple[str, ...]:
        return _KINDS

    def handler(self, kind: str) -> Handler:
        handlers: dict[str, Handler] = {
            security_group.KIND: security_group.SecurityGroups(self.api),
            launch_template.KIND: launch_template.LaunchTemplates(self.api),
            instance.KIND: instance.Instances(self.api),
            address.KIND: address.Addresses(self.api),
            spot_request.KIND: spot_request.SpotRequests(self.api),
            "volume": attached.volumes(self.api),
            "network-interface": attached.network_interfaces(self.api),
        }
        return handlers[kind]

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        """Everything of ours with these tags, in the order of creation."""
        wanted = {TAG_ID: "", **tags}
        return tuple(found for kind in _KINDS for found in self.handler(kind).find(wanted))

    def image(self, *, architecture: str, wanted: str | None) -> MachineImage:
        return resolve_image(self.api, self.image_parameters, architecture=architecture, wanted=wanted)

    def placements(self, instance_type: str, *, subnet: str | None) -> tuple[Placement, ...]:
        return placements(self.api, instance_type, subnet=subnet)

    def machine(self, instance_id: str) -> MachineState:
        item = instance.Instances(self.api).describe(instance_id)
        if item is None:
            return MachineState(state="missing", reason_code=None, reason=None, address=None)
        reason: Mapping[str, Any] = item.get("StateReason") or {}
        return MachineState(
            state=item["State"]["Name"],
            reason_code=reason.get("Code") or None,
            reason=reason.get("Message") or None,
            address=instance.address_of(item),
        )

    def console(self, instance_id: str) -> str:
        return console_output(self.api, instance_id)

    def check_death(self, state: MachineState, *, pool: str) -> None:
        if state.state in {"pending", "running"}:
            return
        text = f"the machine in {pool} ended before it ran: {state.reason or state.state}"
        if not state.reason_code:
            raise DeployError("machine_died", text, hint="run the command again: it makes a new one")
        failure = by_class(death_class(state.reason_code, self.api.table), text, cause=state.reason_code)
        if isinstance(failure, NoCapacityError):
            failure.pool = pool
        raise failure
