"""Rules of EC2, IAM and EventBridge Scheduler that moto lacks, as hooks of its actions: they run before moto's method.

They complete requests like AWS, and reject what AWS would reject. Requests that name deleted resources, which moto
accepts or answers with a server error, occur when two runs use one deployment name.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.responses import EC2Response
from moto.iam.responses import IamResponse
from moto.scheduler.responses import EventBridgeSchedulerResponse

from tgi_deploy.sandbox import world
from tgi_deploy.sandbox.roles import iam
from tgi_deploy.sandbox.wire import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from moto.core.responses import BaseResponse

MAX_USER_DATA_BYTES: Final = 16 * 1024
_RESOLVE: Final = "resolve:ssm:"
_LEAVING: Final = ("shutting-down", "terminated")
_SWITCHES: Final = {
    "stop_instances": ("stopped", ("pending", *_LEAVING)),
    "start_instances": ("started", ("stopping", *_LEAVING)),
    "reboot_instances": ("rebooted", ("stopping", "stopped", *_LEAVING)),
}
# Launch template members that moto does not apply to the instance.
_DROPPED: Final = (
    "BlockDeviceMappings", "EbsOptimized", "IamInstanceProfile", "ImageId", "InstanceInitiatedShutdownBehavior",
    "InstanceMarketOptions", "InstanceType", "MetadataOptions", "Monitoring", "NetworkInterfaces", "Placement",
)  # fmt: skip
_MISMATCH: Final = (
    "The client token you have provided is associated with a resource that was created with different parameters."
)


def _get(response: BaseResponse, name: str, default: Any = "") -> Any:  # noqa: ANN401 -- a text or a structure
    """Return a parameter of the request, or the default."""
    found = response._get_param(name)  # noqa: SLF001 -- moto's own way
    return default if found is None else found


def _placed(response: BaseResponse) -> str:
    """Return the subnet or zone in the request, or empty."""
    first: Mapping[str, Any] = next(iter(_get(response, "NetworkInterfaces", [])), {})
    zone = _get(response, "Placement", {}).get("AvailabilityZone", "")
    return str(_get(response, "SubnetId") or first.get("SubnetId") or zone)


def install() -> None:
    """Add the rules to moto's actions."""
    for owner, actions in _RULES.items():
        for action, rules in actions.items():
            setattr(owner, action, _ruled(getattr(owner, action), rules))
    for action in ("run_instances", "create_fleet", "create_launch_template", "create_launch_template_version"):
        setattr(EC2Response, action, _once(action, getattr(EC2Response, action)))


def _ruled(carry_out: Callable[..., Any], rules: tuple[Callable[[Any], None], ...]) -> Callable[..., Any]:
    def method(response: Any) -> Any:  # noqa: ANN401 -- as moto's own
        for rule in rules:
            rule(response)
        return carry_out(response)

    return method


# Calls with a client token: their parameters and results. A repeated call shows the current state.
TOKENS: Final[dict[tuple[str, ...], tuple[Mapping[str, Any], Any]]] = {}


def _once(action: str, carry_out: Callable[..., Any]) -> Callable[..., Any]:
    """Idempotency by ClientToken: the same token and parameters are the same call, per region and zone."""

    def method(response: Any) -> Any:  # noqa: ANN401 -- as moto's own
        token = _get(response, "ClientToken")
        key = (response.region, action, token, _placed(response))
        given = {name: value for name, value in response.querystring.items() if name != "Version"}
        if not token:
            return carry_out(response)
        if key not in TOKENS:
            TOKENS[key] = given, carry_out(response)
        if TOKENS[key][0] != given:
            raise RefusedError("IdempotentParameterMismatch", _MISMATCH)
        return TOKENS[key][1]

    return method


def _all_templates(response: EC2Response) -> None:
    """Return all templates at once: moto truncates the response and gives no token to continue."""
    response.params["MaxResults"] = 1_000_000


def _complete(response: EC2Response) -> None:
    """Apply the launch template, resolve the image, and choose a zone."""
    data = _template(response)
    for member in _DROPPED:
        if member in data:
            response.params.setdefault(member, data[member])
    image = str(_get(response, "ImageId"))
    if image.startswith(_RESOLVE):
        parameter = image.removeprefix(_RESOLVE)
        if parameter not in world.IMAGES:
            raise RefusedError("InvalidParameterValue", f"Parameter not found: {parameter}")
        response.params["ImageId"] = world.image_id(response.region, parameter)
    default = response.ec2_backend.get_default_subnets()
    usable = [zone for zone in _zones_offering(response) if zone in default]
    if usable and not _placed(response):
        response.params["Placement"] = {**_get(response, "Placement", {}), "AvailabilityZone": usable[0]}


def _template(response: EC2Response) -> Mapping[str, Any]:
    """Return the data of the request's launch template; empty without one. Raises moto's error for a missing one."""
    named, ec2 = _get(response, "LaunchTemplate", {}), response.ec2_backend
    if not named:
        return {}
    identity = named.get("LaunchTemplateId")
    found = ec2.get_launch_template(identity or ec2.launch_template_name_to_ids.get(named["LaunchTemplateName"]))
    data: Mapping[str, Any] = found.get_version(named.get("Version", "$Default")).data
    return data


def _address(response: EC2Response) -> None:
    """Reject the release of an address in use, which moto allows: EC2 API Reference, "Error codes"."""
    for held in response.ec2_backend.addresses:
        if held.id == _get(response, "AllocationId") and held.instance is not None and not _get(response, "InstanceId"):
            raise RefusedError("InvalidIPAddress.InUse", f"Address {held.public_ip} is in use.")
    instance = world.find_instance(_get(response, "InstanceId"))
    if instance is not None and instance.state not in {"running", "stopped"}:
        message = f"The {instance.state} instance '{instance.id}' is not in a valid state for this operation."
        raise RefusedError("IncorrectInstanceState", message)


def _address_limit(response: EC2Response) -> None:
    if len(response.ec2_backend.addresses) >= world.MOST_ADDRESSES:
        raise RefusedError("AddressLimitExceeded", "The maximum number of addresses has been reached.")


def _switch(action: str) -> Callable[[Any], None]:
    """EC2 API Reference, "Error codes": IncorrectInstanceState, and UnsupportedOperation of a one-time spot request."""
    verb, states = _SWITCHES[action]

    def rule(response: EC2Response) -> None:
        for instance in filter(None, map(world.find_instance, _get(response, "InstanceIds", []))):
            if verb == "stopped" and instance.lifecycle == "spot":
                message = f"You can't stop the Spot Instance '{instance.id}' because of its one-time request."
                raise RefusedError("UnsupportedOperation", message)
            if instance.state in states:
                message = f"The instance '{instance.id}' is not in a state from which it can be {verb}."
                raise RefusedError("IncorrectInstanceState", message)

    return rule


def _user_data(response: EC2Response) -> None:
    given = _get(response, "UserData") or _get(response, "LaunchTemplateData", {}).get("UserData", "")
    try:
        size = len(base64.b64decode(given, validate=True))
    except (binascii.Error, ValueError) as problem:
        raise RefusedError("InvalidParameterValue", "Invalid BASE64 encoding of user data.") from problem
    if size > MAX_USER_DATA_BYTES:
        raise RefusedError("InvalidParameterValue", f"User data is limited to {MAX_USER_DATA_BYTES} bytes")


def _profile(response: EC2Response) -> None:
    known = iam().instance_profiles.values()
    for member, wanted in _get(response, "IamInstanceProfile", {}).items():
        if not any(wanted in {one.name, one.arn} for one in known):
            message = f"Value ({wanted}) for parameter iamInstanceProfile.{member.lower()} is invalid."
            raise RefusedError("InvalidParameterValue", f"{message} Invalid IAM Instance Profile {member.lower()}")


def _zones_offering(response: EC2Response) -> list[str]:
    kind, offers = _get(response, "InstanceType"), INSTANCE_TYPE_OFFERINGS["availability-zone"].get(response.region, [])
    return sorted(str(one["Location"]) for one in offers if one["InstanceType"] == kind)


def _zone(response: EC2Response) -> None:
    kind, placed, offering = _get(response, "InstanceType"), _placed(response), _zones_offering(response)
    subnets = {name: one for group in response.ec2_backend.subnets.values() for name, one in group.items()}
    zone = getattr(subnets.get(placed), "availability_zone", None) if placed.startswith("subnet-") else placed
    # moto knows which types exist; one offered only in another region is not supported here.
    everywhere = INSTANCE_TYPE_OFFERINGS["region"].values()
    known = offering or any(one["InstanceType"] == kind for region in everywhere for one in region)
    if not kind or (placed and zone is None) or zone in offering or not known:
        return
    place = zone if zone and offering else response.region
    text = f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({place})."
    choose = f" or choosing {', '.join(offering)}" if offering else ""
    text += f" Please retry your request by not specifying an Availability Zone{choose}."
    raise RefusedError("Unsupported", text)


def _group_in_use(response: EC2Response) -> None:
    group = _get(response, "GroupId") or _get(response, "GroupName")
    if group and world.is_in_use(response.region, group):
        raise RefusedError("DependencyViolation", f"resource {group} has a dependent object")


def _missing_group(response: EC2Response) -> None:
    """Check the groups of network interfaces; moto checks those of the instance."""
    known = {group for groups in response.ec2_backend.groups.values() for group in groups}
    for group in (group for nic in _get(response, "NetworkInterfaces", []) for group in nic.get("Groups", [])):
        if group not in known:
            raise RefusedError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")


def _spot_requests(response: EC2Response) -> None:
    for named in _get(response, "SpotInstanceRequestIds", []):
        if named not in response.ec2_backend.spot_instance_requests:
            message = f"The spot instance request ID '{named}' does not exist"
            raise RefusedError("InvalidSpotInstanceRequestID.NotFound", message)


def _boundary(response: IamResponse) -> None:
    """Reject an unknown permissions boundary. The text is from bug reports."""
    arn = _get(response, "PermissionsBoundary")
    if arn and arn not in iam().managed_policies:
        raise RefusedError("NoSuchEntity", f"Scope ARN: {arn} does not exist or is not attachable.")


def _role_in_profile(response: IamResponse) -> None:
    """Reject a role that the profile lacks: IAM API Reference, "RemoveRoleFromInstanceProfile", NoSuchEntity."""
    role, profile = _get(response, "RoleName"), _get(response, "InstanceProfileName")
    held = [one for one in iam().instance_profiles.values() if one.name == profile]
    if held and role not in {one.name for one in held[0].roles}:
        raise RefusedError("NoSuchEntity", f"Cannot find Role {role} in Instance Profile {profile}")


def _schedule_group(response: EventBridgeSchedulerResponse) -> None:
    name = _get(response, "GroupName") or "default"
    if response.path.startswith("/schedule-groups/"):
        name = response.path.rpartition("/")[2]
    if name not in response.scheduler_backend.schedule_groups:
        raise RefusedError("ResourceNotFoundException", f"Schedule group {name} does not exist.")


_RULES: Final[Mapping[type, Mapping[str, tuple[Callable[[Any], None], ...]]]] = {
    EC2Response: {
        "run_instances": (_complete, _missing_group, _user_data, _profile, _zone),
        "create_launch_template": (_user_data,),
        "create_launch_template_version": (_user_data,),
        "describe_launch_templates": (_all_templates,),
        "describe_launch_template_versions": (_all_templates,),
        "cancel_spot_instance_requests": (_spot_requests,),
        "delete_security_group": (_group_in_use,),
        "allocate_address": (_address_limit,),
        "associate_address": (_address,),
        "release_address": (_address,),
        **{action: (_switch(action),) for action in _SWITCHES},
    },
    IamResponse: {"create_role": (_boundary,), "remove_role_from_instance_profile": (_role_in_profile,)},
    EventBridgeSchedulerResponse: {
        "create_schedule": (_schedule_group,),
        "delete_schedule_group": (_schedule_group,),
    },
}
