"""Rules of EC2 that moto lacks: completes requests like EC2, and rejects what EC2 would reject.

Requests that name deleted resources, which moto accepts or answers with a server error, occur when two runs use one
deployment name.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox import world
from tgi_deploy.sandbox.wire import Answer, Call, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_USER_DATA_BYTES: Final = 16 * 1024
_GROUP: Final = re.compile(r"(NetworkInterface\.\d+\.)?SecurityGroupId\.\d+$")
_RESOLVE: Final = "resolve:ssm:"
_LEAVING: Final = ("shutting-down", "terminated")
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
        return call.with_params({**call.params, "MaxResults": "1000000"})
    return call


def refuse(call: Call) -> None:
    """Raise the error that EC2 would raise but moto would not."""
    if not world.is_region(call.region):
        raise RefusedError("InvalidRegion", f"the region {call.region!r} does not exist")
    for rule in _RULES.get(call.action, ()):
        rule(call)


def _address(call: Call) -> None:
    """EC2 API Reference, "Error codes"; moto allocates any number, and releases what is in use."""
    known = world.backend(call.region).addresses
    if call.action == "AllocateAddress" and len(known) >= world.MOST_ADDRESSES:
        raise RefusedError("AddressLimitExceeded", "The maximum number of addresses has been reached.")
    for held in known:
        if call.action == "ReleaseAddress" and held.id == call.text("AllocationId") and held.instance is not None:
            raise RefusedError("InvalidIPAddress.InUse", f"Address {held.public_ip} is in use.")
    instance = world.find_instance(call.text("InstanceId"))
    if instance is not None and instance.state not in {"running", "stopped"}:
        message = f"The {instance.state} instance '{instance.id}' is not in a valid state for this operation."
        raise RefusedError("IncorrectInstanceState", message)


def _switch(call: Call) -> None:
    """EC2 API Reference, "Error codes": IncorrectInstanceState, and UnsupportedOperation of a one-time spot request."""
    verb, states = _SWITCHES[call.action]
    for named in call.values("InstanceId"):
        instance = world.find_instance(named)
        if call.action == "StopInstances" and instance is not None and instance.lifecycle == "spot":
            message = f"You can't stop the Spot Instance '{named}' because it is associated with a one-time request."
            raise RefusedError("UnsupportedOperation", message)
        if instance is not None and instance.state in states:
            message = f"The instance '{named}' is not in a state from which it can be {verb}."
            raise RefusedError("IncorrectInstanceState", message)


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
    default = world.backend(call.region).get_default_subnets()
    usable = [zone for zone in world.zones_offering(call.region, kind) if zone in default]
    return call.with_params({**call.params, "Placement.AvailabilityZone": usable[0]}) if usable else call


def _placed(call: Call) -> str:
    """Return the subnet or zone in the request, or empty."""
    return call.text("SubnetId") or call.text("NetworkInterface.1.SubnetId") or call.text("Placement.AvailabilityZone")


def _instance_type(call: Call) -> str:
    return call.text("InstanceType") or str(world.template_data(call.region, call.params).get("InstanceType", ""))


def _user_data(call: Call) -> None:
    name = "UserData" if call.action == "RunInstances" else "LaunchTemplateData.UserData"
    try:
        size = len(base64.b64decode(call.text(name), validate=True))
    except (binascii.Error, ValueError) as problem:
        raise RefusedError("InvalidParameterValue", "Invalid BASE64 encoding of user data.") from problem
    if size > MAX_USER_DATA_BYTES:
        raise RefusedError("InvalidParameterValue", "User data is limited to 16384 bytes")


def _profile(call: Call) -> None:
    for member in ("Name", "Arn"):
        wanted = call.text(f"IamInstanceProfile.{member}")
        if wanted and not world.has_instance_profile(wanted):
            message = f"Value ({wanted}) for parameter iamInstanceProfile.{member.lower()} is invalid."
            raise RefusedError("InvalidParameterValue", f"{message} Invalid IAM Instance Profile {member.lower()}")


def _zone(call: Call) -> None:
    kind, placed = _instance_type(call), _placed(call)
    subnets = {name: one for group in world.backend(call.region).subnets.values() for name, one in group.items()}
    zone = getattr(subnets.get(placed), "availability_zone", None) if placed.startswith("subnet-") else placed
    offering = world.zones_offering(call.region, kind)
    # moto knows which types exist; one offered only in another region is not supported here.
    known = offering or world.exists(kind)
    if not kind or (placed and zone is None) or zone in offering or not known:
        return
    place = zone if zone and offering else call.region
    text = f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({place})."
    choose = f" or choosing {', '.join(offering)}" if offering else ""
    text += f" Please retry your request by not specifying an Availability Zone{choose}."
    raise RefusedError("Unsupported", text)


def _image(call: Call) -> None:
    image = call.text("ImageId")
    if image.startswith(_RESOLVE):
        raise RefusedError("InvalidParameterValue", f"Parameter not found: {image.removeprefix(_RESOLVE)}")


def _group_in_use(call: Call) -> None:
    group = call.text("GroupId") or call.text("GroupName")
    if group and world.is_in_use(call.region, group):
        raise RefusedError("DependencyViolation", f"resource {group} has a dependent object")


def _missing_template(call: Call) -> None:
    named = call.text("LaunchTemplate.LaunchTemplateId")
    if named and named not in world.backend(call.region).launch_templates:
        message = f"The specified launch template, with template ID {named}, does not exist."
        raise RefusedError("InvalidLaunchTemplateId.NotFound", message)


def _missing_group(call: Call) -> None:
    """Check the groups named by the request and by its launch template."""
    known = {group for groups in world.backend(call.region).groups.values() for group in groups}
    named = [str(value) for name, value in call.params.items() if _GROUP.match(name)]
    for group in (*named, *world.template_data(call.region, call.params).get("SecurityGroupIds", ())):
        if group not in known:
            raise RefusedError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")


def _spot_requests(call: Call) -> None:
    known = world.backend(call.region).spot_instance_requests
    for named in call.values("SpotInstanceRequestId"):
        if named not in known:
            message = f"The spot instance request ID '{named}' does not exist"
            raise RefusedError("InvalidSpotInstanceRequestID.NotFound", message)


_RULES: Final = {
    "RunInstances": (_missing_template, _missing_group, _user_data, _profile, _zone, _image),
    "CreateLaunchTemplate": (_user_data,),
    "CreateLaunchTemplateVersion": (_user_data,),
    "CancelSpotInstanceRequests": (_spot_requests,),
    "DeleteSecurityGroup": (_group_in_use,),
    **dict.fromkeys(("AllocateAddress", "AssociateAddress", "ReleaseAddress"), (_address,)),
    **dict.fromkeys(_SWITCHES, (_switch,)),
}


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


_REMEMBERED: Final = frozenset({"RunInstances", "CreateFleet", "CreateLaunchTemplate", "CreateLaunchTemplateVersion"})
_INSTANCE: Final = re.compile(r"<instanceId>(i-[0-9a-f]+)</instanceId>")
_RESERVATION: Final = re.compile(r"<reservationSet>\s*<item>(.*)</item>\s*</reservationSet>", re.DOTALL)
_IGNORED: Final = frozenset({"ClientToken", "Version"})
_MISMATCH: Final = (
    "The client token you have provided is associated with a resource that was created with different parameters."
)


class TokenMemory:
    """Idempotency by ClientToken: the same token and parameters are the same call, per region and zone."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[Mapping[str, Any], Answer]] = {}

    def once(self, call: Call, carry_out: Callable[[Call], Answer], ask_moto: Callable[[Call], Answer]) -> Answer:
        """Carry the call out; if repeated, return the first result with its current state."""
        if call.action not in _REMEMBERED or not call.text("ClientToken"):
            return carry_out(call)
        key = (call.region, call.action, call.text("ClientToken"), _placed(call))
        given = {name: value for name, value in call.params.items() if name not in _IGNORED}
        if key not in self._known:
            answer = carry_out(call)
            if answer.ok:
                self._known[key] = (given, answer)
            return answer
        params, first = self._known[key]
        if params != given:
            raise RefusedError("IdempotentParameterMismatch", _MISMATCH)
        return _current(call, first, ask_moto) if call.action == "RunInstances" else first


def _current(call: Call, first: Answer, ask_moto: Callable[[Call], Answer]) -> Answer:
    """Return the launch's response with the present state of its instances."""
    ids = {f"InstanceId.{n}": one for n, one in enumerate(dict.fromkeys(_INSTANCE.findall(first.text)), start=1)}
    version = call.text("Version") or "2016-11-15"
    described = ask_moto(call.with_params({"Action": "DescribeInstances", "Version": version, **ids}))
    found = _RESERVATION.search(described.text)
    if not described.ok or found is None:
        return first
    namespace = f"http://ec2.amazonaws.com/doc/{version}/"
    return Answer(
        f'<RunInstancesResponse xmlns="{namespace}"><requestId>sandbox</requestId>{found[1]}</RunInstancesResponse>'
    )
