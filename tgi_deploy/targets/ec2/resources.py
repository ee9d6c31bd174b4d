"""Turns a candidate in a zone into EC2 resources. Pure."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.resource import Ref, Resource, machine_key, revision_key
from tgi_deploy.values.supply import PUBLIC_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.ec2.region import MachineImage, Placement
    from tgi_deploy.values.plan import Candidate

GROUP: Final = "security-group"
ADDRESS: Final = "address"
TEMPLATE: Final = "launch-template"
INSTANCE: Final = "instance"
# Also sent with the launch itself: not every EC2-compatible endpoint reads them from a template, and a machine without
# them would be more exposed, or live longer, than it should.
_DIRECT: Final = (
    "MetadataOptions",
    "InstanceInitiatedShutdownBehavior",
    "InstanceMarketOptions",
    "IamInstanceProfile",
)
_NOT_IN_TEMPLATE: Final = ("NetworkInterfaces", "TagSpecifications")


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Everything that determines the resources. `data` is the rendered launch template's data.

    `before` and `after`: resources created before and after the instance. `notes` go into its record.
    """

    name: str
    revision: int
    candidate: Candidate
    data: Mapping[str, Any]
    placement: Placement
    image: MachineImage
    cidrs: tuple[str, ...]
    static_ip: bool = False
    before: tuple[Resource, ...] = ()
    after: tuple[Resource, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> str:
        return pool_name(self.candidate, self.placement.zone)


def pool_name(candidate: Candidate, zone: str) -> str:
    """Return the pool's name: region, zone, type and market."""
    offer = candidate.offer
    return f"{offer.region}/{zone}/{offer.instance_type.name}/{offer.market}"


def resources(machine: Machine) -> tuple[Resource, ...]:
    """Return security group, launch template, address, the resources before, the instance, and the resources after.

    The first two come first because their names reserve the deployment's name.
    """
    return (
        _security_group(machine),
        _launch_template(machine),
        *((_address(machine),) if machine.static_ip else ()),
        *machine.before,
        _instance(machine),
        *machine.after,
    )


def _security_group(machine: Machine) -> Resource:
    return Resource(
        key=GROUP,
        kind=GROUP,
        place=machine.candidate.offer.region,
        properties={
            "name": f"tgi-deploy-{machine.name}",  # unique per VPC, so creating it reserves the deployment's name
            "description": f"endpoint of the tgi-deploy deployment {machine.name}",
            "network": machine.placement.network,
            "port": machine.candidate.engine.port,
            "cidrs": list(machine.cidrs),
        },
        mutable=("cidrs",),
    )


def _launch_template(machine: Machine) -> Resource:
    data = {name: copy.deepcopy(value) for name, value in machine.data.items() if name not in _NOT_IN_TEMPLATE}
    data["BlockDeviceMappings"] = [_volume(disk, machine.image) for disk in data.get("BlockDeviceMappings", ())]
    return Resource(
        key=revision_key(TEMPLATE, machine.revision),
        kind=TEMPLATE,
        place=machine.candidate.offer.region,
        properties={
            "name": _template_name(machine),
            "data": data,
        },
    )


def _address(machine: Machine) -> Resource:
    """Return the address, with its price while no machine has it: a machine's price includes a public address."""
    lines = machine.candidate.cost.lines
    price = next((line.usd_per_hour for line in lines if line.item == PUBLIC_ADDRESS), None)
    properties = {"domain": "vpc"}
    place = machine.candidate.offer.region
    return Resource(key=ADDRESS, kind=ADDRESS, place=place, properties=properties, usd_per_hour=price)


def _template_name(machine: Machine) -> str:
    """Return the name, unique per region. Deployment names contain no dots."""
    later = f".{machine.revision}" if machine.revision > 1 else ""
    return f"tgi-deploy-{machine.name}{later}"


def _volume(disk: Mapping[str, Any], image: MachineImage) -> dict[str, Any]:
    """Return the root volume, which can't be smaller than the image's snapshot."""
    ebs = dict(disk["Ebs"])
    if disk["DeviceName"] == image.root_device:
        ebs["VolumeSize"] = max(int(ebs["VolumeSize"]), image.minimum_gib)
    return {**disk, "Ebs": ebs}


def _instance(machine: Machine) -> Resource:
    offer, placement = machine.candidate.offer, machine.placement
    key = revision_key(TEMPLATE, machine.revision)
    template = {
        "LaunchTemplateId": Ref(key=key, attribute="id"),
        "Version": Ref(key=key, attribute="version"),
    }
    interface = {
        **machine.data["NetworkInterfaces"][0],
        "SubnetId": placement.subnet,
        "Groups": [Ref(key=GROUP, attribute="id")],
    }
    request = {
        "LaunchTemplate": template,
        "InstanceType": offer.instance_type.name,
        "Placement": {"AvailabilityZone": placement.zone},
        "NetworkInterfaces": [interface],
        **{name: machine.data[name] for name in _DIRECT if name in machine.data},
    }
    return Resource(
        key=machine_key(INSTANCE, machine.revision),
        kind=INSTANCE,
        place=offer.region,
        properties={"request": request, "spot": offer.market == "spot"},
        notes={"pool": machine.pool, **machine.notes},
        is_machine=True,
    )
