"""One EC2 region as a location for the executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.reconcile.errors import NoCapacityError
from tgi_deploy.reconcile.observe import search
from tgi_deploy.targets.aws import parameter, role, schedule
from tgi_deploy.targets.aws.errors import by_class, death_class
from tgi_deploy.targets.ec2 import (
    address,
    attached,
    external_end,
    instance,
    launch_template,
    security_group,
    spot_request,
)
from tgi_deploy.targets.ec2.console import console_output
from tgi_deploy.targets.ec2.images import resolve_image
from tgi_deploy.targets.ec2.placement import placements
from tgi_deploy.values.resource import TAG_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.reconcile.ports import Handler
    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.ec2.region import MachineImage, Placement
    from tgi_deploy.values.resource import Found, MachineState

# In order of creation; deletion runs in reverse. Attached kinds come before the instance: they can be deleted only
# after it. The schedule is created last but listed early, so that it can terminate the instance until that is gone.
_KINDS: Final = (
    parameter.KIND,
    role.ROLE,
    role.PROFILE,
    schedule.KIND,
    security_group.KIND,
    launch_template.KIND,
    address.KIND,
    "network-interface",
    "volume",
    instance.KIND,
    spot_request.KIND,
)
_HANDLERS: Final[Mapping[str, Callable[[Api], Handler]]] = {
    security_group.KIND: security_group.SecurityGroups,
    launch_template.KIND: launch_template.LaunchTemplates,
    instance.KIND: instance.Instances,
    address.KIND: address.Addresses,
    spot_request.KIND: spot_request.SpotRequests,
    role.ROLE: role.Roles,
    role.PROFILE: role.InstanceProfiles,
    schedule.KIND: schedule.Schedules,
    "volume": attached.volumes,
    "network-interface": attached.network_interfaces,
}
# Errors that a search for a rare kind tolerates: its service may be forbidden or unreachable.
_UNREADABLE_CODES: Final = frozenset({"permission_denied", "cloud_unreachable"})


def _no_secret(reference: str) -> Secret:
    raise ValueError(f"unknown secret {reference}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ec2Cloud:
    """`image_parameters`: public parameters to try for a machine image, in order.

    `secret_of` returns the secret that a reference names. `unsearched` collects (region, kind) → why the search failed.
    """

    api: Api
    image_parameters: Sequence[Mapping[str, str]]
    secret_of: Callable[[str], Secret] = _no_secret
    unsearched: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def region(self) -> str:
        return self.api.region

    @property
    def kinds(self) -> tuple[str, ...]:
        return _KINDS

    def handler(self, kind: str) -> Handler:
        if kind == parameter.KIND:
            return parameter.Parameters(self.api, self.secret_of)
        return _HANDLERS[kind](self.api)

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        """Return our resources with these tags, in order of creation."""
        wanted = {TAG_ID: "", **tags}
        return tuple(
            found
            for kind in _KINDS
            for found in search(
                self.handler(kind), wanted, self.unsearched, key=(self.region, kind), codes=_UNREADABLE_CODES
            )
        )

    def image(self, *, architecture: str, wanted: str | None) -> MachineImage:
        return resolve_image(self.api, self.image_parameters, architecture=architecture, wanted=wanted)

    def placements(self, instance_type: str, *, subnet: str | None) -> tuple[Placement, ...]:
        return placements(self.api, instance_type, subnet=subnet)

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        """Change the schedule, if there is one."""
        by_key = {found.key: found.attributes for found in seen}
        if external_end.SCHEDULE not in by_key:
            return
        if expires is None:
            raise InputError(
                "external_end_fixed",
                "an external schedule (--external-ttl) terminates the machine: it can be changed but not removed",
                hint="set a new end with --ttl TIME",
            )
        properties = {
            "name": by_key[external_end.SCHEDULE]["name"],
            "at": external_end.at(expires),
            "instance": next(found.id for found in seen if found.is_machine and found.alive),
            "role": by_key[external_end.SCHEDULE_ROLE]["arn"],
        }
        self.handler(schedule.KIND).update({}, properties)

    def machine(self, instance_id: str) -> MachineState:
        return instance.Instances(self.api).state(instance_id)

    def console(self, instance_id: str) -> str:
        return console_output(self.api, instance_id)

    def check_death(self, state: MachineState, *, pool: str) -> None:
        if state.state in {"pending", "running"}:
            return
        text = f"the machine in {pool} terminated before it was running: {state.reason or state.state}"
        if not state.reason_code:
            raise DeployError("machine_died", text, hint="run the command again to create a new one")
        failure = by_class(death_class(state.reason_code, self.api.table), text, cause=state.reason_code)
        if isinstance(failure, NoCapacityError):
            failure.pool = pool
        raise failure
