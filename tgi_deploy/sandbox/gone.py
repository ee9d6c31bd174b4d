"""Requests about deleted resources: EC2 rejects them, while moto fails with a server error or accepts them.

Happens when two runs work under one name: one may name what the other has deleted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import world
from tgi_deploy.sandbox.wire import Answer, Call, error

if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUP: Final = re.compile(r"(NetworkInterface\.\d+\.)?SecurityGroupId\.\d+$")


def refuse(call: Call) -> Answer | None:
    """Return EC2's error for the first named resource that does not exist, or None."""
    if call.action == "RunInstances":
        return _template(call) or _groups(call)
    if call.action == "CancelSpotInstanceRequests":
        return _spot_requests(call)
    return None


def _template(call: Call) -> Answer | None:
    named = call.text("LaunchTemplate.LaunchTemplateId")
    if not named or named in world.backend(call.region).launch_templates:
        return None
    message = f"The specified launch template, with template ID {named}, does not exist."
    return error(call, "InvalidLaunchTemplateId.NotFound", message)


def _groups(call: Call) -> Answer | None:
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
