"""What one region of EC2 is asked for beside what every target's location is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tgi_deploy.reconcile.ports import Cloud

if TYPE_CHECKING:
    from tgi_deploy.values.resource import MachineState


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where in a region a machine can go. `subnet` and `network` are the cloud's ids."""

    zone: str
    subnet: str
    network: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineImage:
    """A disk image to boot. `minimum_gib` is the size of its snapshot: a root volume can't be smaller."""

    id: str
    root_device: str
    minimum_gib: int
    source: str


class Region(Cloud, Protocol):
    """One region."""

    def image(self, *, architecture: str, wanted: str | None) -> MachineImage:
        """Return the disk image to boot."""

    def placements(self, instance_type: str, *, subnet: str | None) -> tuple[Placement, ...]:
        """Return where the type can be launched, in the order of the zones' names."""

    def check_death(self, state: MachineState, *, pool: str) -> None:
        """Raise the error that a machine's death stands for, as if the launch had been refused for it."""
