"""Finds where an instance type can be launched: zones that offer it and have a subnet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.reconcile.errors import BadRequestError, NoCapacityError
from tgi_deploy.targets.aws.api import each
from tgi_deploy.targets.ec2.region import Placement

if TYPE_CHECKING:
    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.reply import Reply

_OF_REGION: Final = "name a subnet in that region: --subnet subnet-…"


def placements(api: Api, instance_type: str, *, subnet: str | None) -> tuple[Placement, ...]:
    """Return the placements sorted by zone. Raises NoCapacityError if no zone with a subnet offers the type.

    Raises InputError `unknown_subnet` for a given subnet, `no_default_subnet` without one.
    """
    zones = _zones_offering(api, instance_type)
    places = [place for place in _subnets(api, subnet) if place.zone in zones]
    if not places:
        raise NoCapacityError(
            f"{instance_type} is not offered in any zone of {api.region} that has a subnet for it",
            pool=f"{api.region}/{instance_type}",
            cause="Unsupported",
        )
    return tuple(sorted(places, key=lambda place: (place.zone, place.subnet)))


def _zones_offering(api: Api, instance_type: str) -> set[str]:
    zones = api.list(
        "describe_instance_type_offerings",
        f"looking for zones with {instance_type}",
        each("InstanceTypeOfferings", lambda offering: offering.text("Location")),
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": [instance_type]}],
    )
    return set(zones)


def _subnets(api: Api, subnet: str | None) -> tuple[Placement, ...]:
    wanted: dict[str, Any] = (
        {"SubnetIds": [subnet]} if subnet else {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
    )
    try:
        found = api.list("describe_subnets", "looking for subnets", each("Subnets", _placement), **wanted)
    except BadRequestError as error:
        if subnet is None:
            raise
        raise InputError("unknown_subnet", error.message, hint=_OF_REGION) from error
    if found:
        return found
    if subnet is None:
        raise InputError("no_default_subnet", f"there is no default subnet in {api.region}", hint=_OF_REGION)
    raise InputError("unknown_subnet", f"the subnet {subnet} does not exist in {api.region}", hint=_OF_REGION)


def _placement(item: Reply) -> Placement:
    return Placement(
        zone=item.text("AvailabilityZone"),
        subnet=item.text("SubnetId", prefix="subnet-"),
        network=item.text("VpcId", prefix="vpc-"),
    )
