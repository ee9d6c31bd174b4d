"""Rules of EC2 that moto lacks: completes requests like EC2, and rejects what EC2 would reject.

Requests about deleted resources, on which moto fails with a server error or which it accepts, happen when two runs
work under one name.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox import world
from tgi_deploy.sandbox.wire import Answer, Call, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_USER_DATA_BYTES: Final = 16 * 1024
_ALL: Final = 1_000_000
_GROUP: Final = re.compile(r"(NetworkInterface\.\d+\.)?SecurityGroupId\.\d+$")
_RESOLVE: Final = "resolve:ssm:"
_LEAVING: Final = ("shutting-down", "terminated")
# Elastic IP addresses of a region, by default: Amazon VPC User Guide, "Amazon VPC quotas".
MOST_ADDRESSES: Final = 5
_SWITCHES: Final = {
    "StopInstances": ("stopped", ("pending", *_LEAVING)),
    "StartInstances": ("started", ("stopping", *_LEAVING)),
    "RebootInstances": ("rebooted", ("stopping", "stopped", *_LEAVING)),
}
# Launch template members that moto does not apply to the instance.
_DROPPED: Final = (
    "MetadataOptions",
    "InstanceInitiatedShutdownBehavior",
    "InstanceMarketOptions",
    "IamInstanceProfile",
    "BlockDeviceMappings",
    "NetworkInterfaces",
    "EbsOptimized",
    "Monitoring",
    "Placement",
)
# List names of the query protocol that differ from the member's.
_LIST_NAMES: Final = {
    "BlockDeviceMappings": "BlockDeviceMapping",
    "NetworkInterfaces": "NetworkInterface",
    "Groups": "SecurityGroupId",
}


def complete(call: Call) -> Call:
    """Return the effective request: launch template applied, image resolved, a zone chosen."""
    if not world.is_region(call.region):
        return call
    world.backend(call.region)
    if call.action == "RunInstances":
        return _with_zone(_with_image(_with_template(call)))
    if call.action in {"DescribeLaunchTemplates", "DescribeLaunchTemplateVersions"}:
        # moto truncates the response there without a token to continue.
        return call.with_params({**call.params, "MaxResults": str(_ALL)})
    return call


def refuse(call: Call) -> Answer | None:
    """Return the error that EC2 would raise but moto would not, or None."""
    if not world.is_region(call.region):
        return error(call, "InvalidRegion", f"the region {call.region!r} does not exist")
    if call.action == "CancelSpotInstanceRequests":
        return _spot_requests(call)
    if call.action == "RunInstances":
        return (
            _lost_template(call)
            or _lost_group(call)
            or _user_data(call, "UserData")
            or _profile(call)
            or _zone(call)
            or _image(call)
        )
    if call.action in {"CreateLaunchTemplate", "CreateLaunchTemplateVersion"}:
        return _user_data(call, "LaunchTemplateData.UserData")
    if call.action in {"AllocateAddress", "AssociateAddress", "ReleaseAddress"}:
        return _address(call)
    return _group_in_use(call) if call.action == "DeleteSecurityGroup" else _switch(call)


def _address(call: Call) -> Answer | None:
    """EC2 API Reference, "Error codes"; moto allocates any number, and releases what is in use."""
    known = world.backend(call.region).addresses
    if call.action == "AllocateAddress" and len(known) >= MOST_ADDRESSES:
        return error(call, "AddressLimitExceeded", "The maximum number of addresses has been reached.")
    for held in known:
        if call.action == "ReleaseAddress" and held.id == call.text("AllocationId") and held.instance is not None:
            return error(call, "InvalidIPAddress.InUse", f"Address {held.public_ip} is in use.")
    instance = world.find_instance(call.text("InstanceId"))
    if instance is not None and instance.state not in {"running", "stopped"}:
        message = f"The {instance.state} instance '{instance.id}' is not in a valid state for this operation."
        return error(call, "IncorrectInstanceState", message)
    return None


def _switch(call: Call) -> Answer | None:
    """EC2 API Reference, "Error codes": IncorrectInstanceState, and UnsupportedOperation of a one-time spot request."""
    verb, states = _SWITCHES.get(call.action, ("", ()))
    for named in call.values("InstanceId"):
        instance = world.find_instance(named)
        if call.action == "StopInstances" and instance is not None and instance.lifecycle == "spot":
            message = f"You can't stop the Spot Instance '{named}' because it is associated with a one-time request."
            return error(call, "UnsupportedOperation", message)
        if instance is not None and instance.state in states:
            message = f"The instance '{named}' is not in a state from which it can be {verb}."
            return error(call, "IncorrectInstanceState", message)
    return None


def _with_template(call: Call) -> Call:
    data = world.template_data(call.region, call.params)
    if not data:
        return call
    params = dict(call.params)
    for member in _DROPPED:
        name = _LIST_NAMES.get(member, member)
        if member in data and not any(key == name or key.startswith(f"{name}.") for key in params):
            params.update(_flat(name, data[member]))
    image = str(data.get("ImageId", ""))
    if image.startswith(_RESOLVE) and "ImageId" not in params:
        params["ImageId"] = image
    return call.with_params(params)


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for member, inner in value.items():
            yield from _flat(f"{name}.{_LIST_NAMES.get(member, member)}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value, start=1):
            yield from _flat(f"{name}.{index}", inner)
    elif isinstance(value, bool):
        yield name, str(value).lower()
    else:
        yield name, str(value)


def _with_image(call: Call) -> Call:
    image = call.text("ImageId")
    parameter = image.removeprefix(_RESOLVE)
    if not image.startswith(_RESOLVE) or parameter not in world.IMAGES:
        return call
    return call.with_params({**call.params, "ImageId": world.image_id(call.region, parameter)})


def _with_zone(call: Call) -> Call:
    if _placed(call):
        return call
    kind = _instance_type(call)
    usable = [zone for zone in world.zones_offering(call.region, kind) if zone in world.default_zones(call.region)]
    return call.with_params({**call.params, "Placement.AvailabilityZone": usable[0]}) if usable else call


def _placed(call: Call) -> str:
    """Return the subnet or zone in the request, or empty."""
    return call.text("SubnetId") or call.text("NetworkInterface.1.SubnetId") or call.text("Placement.AvailabilityZone")


def _instance_type(call: Call) -> str:
    return call.text("InstanceType") or str(world.template_data(call.region, call.params).get("InstanceType", ""))


def _user_data(call: Call, name: str) -> Answer | None:
    try:
        size = len(base64.b64decode(call.text(name), validate=True))
    except (binascii.Error, ValueError):
        return error(call, "InvalidParameterValue", "Invalid BASE64 encoding of user data.")
    if size > MAX_USER_DATA_BYTES:
        return error(call, "InvalidParameterValue", "User data is limited to 16384 bytes")
    return None


def _profile(call: Call) -> Answer | None:
    for member in ("Name", "Arn"):
        wanted = call.text(f"IamInstanceProfile.{member}")
        if wanted and not world.has_instance_profile(wanted):
            message = f"Value ({wanted}) for parameter iamInstanceProfile.{member.lower()} is invalid."
            return error(call, "InvalidParameterValue", f"{message} Invalid IAM Instance Profile {member.lower()}")
    return None


def _zone(call: Call) -> Answer | None:
    kind, placed = _instance_type(call), _placed(call)
    zone = world.zone_of_subnet(call.region, placed) if placed.startswith("subnet-") else placed
    offering = world.zones_offering(call.region, kind)
    if not kind or (placed and zone is None) or zone in offering:
        return None
    if not offering:
        # moto knows which types exist; one offered only in another region is not supported here.
        return None if not world.exists(kind) else error(call, "Unsupported", _unsupported(kind, call.region, ()))
    return error(call, "Unsupported", _unsupported(kind, zone or call.region, offering))


def _unsupported(kind: str, place: str, offering: tuple[str, ...]) -> str:
    text = f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({place})."
    choose = f" or choosing {', '.join(offering)}" if offering else ""
    return f"{text} Please retry your request by not specifying an Availability Zone{choose}."


def _image(call: Call) -> Answer | None:
    image = call.text("ImageId")
    if not image.startswith(_RESOLVE):
        return None
    return error(call, "InvalidParameterValue", f"Parameter not found: {image.removeprefix(_RESOLVE)}")


def _group_in_use(call: Call) -> Answer | None:
    group = call.text("GroupId") or call.text("GroupName")
    if not group or not world.group_users(call.region, group):
        return None
    return error(call, "DependencyViolation", f"resource {group} has a dependent object")


def _lost_template(call: Call) -> Answer | None:
    named = call.text("LaunchTemplate.LaunchTemplateId")
    if not named or named in world.backend(call.region).launch_templates:
        return None
    message = f"The specified launch template, with template ID {named}, does not exist."
    return error(call, "InvalidLaunchTemplateId.NotFound", message)


def _lost_group(call: Call) -> Answer | None:
    gone = [named for named in _groups_named(call) if not world.has_group(call.region, named)]
    return error(call, "InvalidGroup.NotFound", f"The security group '{gone[0]}' does not exist") if gone else None


def _groups_named(call: Call) -> Iterator[str]:
    """Return the groups named by the request and by its launch template."""
    yield from (str(value) for name, value in call.params.items() if _GROUP.match(name))
    yield from world.template_data(call.region, call.params).get("SecurityGroupIds", ())


def _spot_requests(call: Call) -> Answer | None:
    known = world.backend(call.region).spot_instance_requests
    gone = [named for named in call.values("SpotInstanceRequestId") if named not in known]
    if not gone:
        return None
    message = f"The spot instance request ID '{gone[0]}' does not exist"
    return error(call, "InvalidSpotInstanceRequestID.NotFound", message)


def launch_facts(region: str, instance: Any) -> Mapping[str, str]:  # noqa: ANN401 -- a moto instance
    """Return the values that a machine fault's `when` is compared with."""
    return {
        "Region": region,
        "InstanceId": instance.id,
        "InstanceType": instance.instance_type,
        "AvailabilityZone": str(instance.availability_zone),
        "SubnetId": str(instance.subnet_id),
        "Market": "spot" if instance.lifecycle == "spot" else "on-demand",
    }
