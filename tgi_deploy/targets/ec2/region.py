"""The protocol of an EC2 region: a location, and what a launch needs to know about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tgi_deploy.reconcile.ports import Cloud

if TYPE_CHECKING:
    from tgi_deploy.values.resource import MachineState


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """A zone with a subnet. `subnet` and `network` are the cloud's ids."""

    zone: str
    subnet: str
    network: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineImage:
    """An AMI. `minimum_gib` is its snapshot's size, the minimum for a root volume."""

    id: str
    root_device: str
    minimum_gib: int
    source: str


class Region(Cloud, Protocol):
    """One EC2 region."""

    def image(self, *, architecture: str, wanted: str | None) -> MachineImage:
        """Return the AMI to boot."""

    def placements(self, instance_type: str, *, subnet: str | None) -> tuple[Placement, ...]:
        """Return where the type can be launched, sorted by zone."""

    def check_death(self, state: MachineState, *, pool: str) -> None:
        """Raise the error for a machine's death, as if the launch had been rejected."""
