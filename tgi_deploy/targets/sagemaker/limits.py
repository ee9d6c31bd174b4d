"""The limits of an endpoint, which hold without the caller: an EventBridge schedule deletes it, with its own role.

The schedule is created before the endpoint. Its role may delete only this endpoint. SageMaker refuses to delete an
endpoint that it is creating or updating, so the schedule tries again every few minutes until it is removed itself. What
is left then is free of charge except for an alarm; `down` and `gc` find it by its tags.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Final

from tgi_deploy.reconcile.ends import certain_end, ends_of
from tgi_deploy.targets.aws.role import Roles
from tgi_deploy.targets.aws.schedule import Ending, Schedules, role_of_schedule
from tgi_deploy.targets.sagemaker.names import endpoint_name, place_of
from tgi_deploy.targets.sagemaker.options import NAME
from tgi_deploy.values.resource import TAG_EXPIRES, TAG_ID, TAG_KEY, TAG_NAME, TAG_SPEC, Ref, Resource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.values.resource import Found

SCHEDULE: Final = "schedule"
END: Final = "end"
END_ROLE: Final = "end-role"
ROLE: Final = "role"
# Not the prefix and path of machines' schedules and roles, whose target would take these for its own.
GROUP_PREFIX: Final = "tgi-deploy."
ROLE_ROOT: Final = f"/tgi-deploy/{NAME}"
_DELETION: Final = Ending(
    call="sagemaker:deleteEndpoint",
    parameters=lambda properties: {"EndpointName": properties["endpoint"]},
    rate="rate(5 minutes)",
)
_OWN: Final = (TAG_KEY, TAG_SPEC, TAG_EXPIRES)


def roles(api: Api) -> Roles:
    return Roles(api, root=ROLE_ROOT, place=place_of(api.region), service=NAME)


def schedules(api: Api) -> Schedules:
    return Schedules(api, ending=_DELETION, prefix=GROUP_PREFIX, place=place_of(api.region))


def end_resources(*, name: str, deployment_id: str, region: str, at: datetime | None) -> tuple[Resource, Resource]:
    """Return the role that may delete the endpoint, and the schedule that does so at a time; None: never."""
    group, place = f"{GROUP_PREFIX}{name}-{deployment_id}", place_of(region)
    schedule = Resource(
        key=END,
        kind=SCHEDULE,
        place=place,
        properties={
            "name": group,
            "at": "" if at is None else moment(at),
            "endpoint": endpoint_name(name),
            "role": Ref(key=END_ROLE, attribute="arn"),
        },
        mutable=("at", "endpoint", "role"),
    )
    return _role(name, deployment_id, region, group), schedule


def moment(at: datetime) -> str:
    """Return the time at which the schedule fires, in UTC, as EventBridge Scheduler takes it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _role(name: str, deployment_id: str, region: str, group: str) -> Resource:
    return role_of_schedule(
        key=END_ROLE,
        place=place_of(region),
        region=region,
        deployment_id=deployment_id,
        name=name,
        group=group,
        statements=[
            {
                "Effect": "Allow",
                "Action": "sagemaker:DeleteEndpoint",
                "Resource": f"arn:{{partition}}:sagemaker:{region}:{{account}}:endpoint/{endpoint_name(name)}",
                "Condition": {"StringEquals": {f"aws:ResourceTag/{TAG_ID}": deployment_id}},
            },
            {  # required to delete an endpoint that is registered for autoscaling
                "Effect": "Allow",
                "Action": "application-autoscaling:DeregisterScalableTarget",
                "Resource": f"arn:{{partition}}:application-autoscaling:{region}:{{account}}:scalable-target/*",
            },
        ],
    )


def enforce(api: Api, machine: Found, tags: Mapping[str, str]) -> None:
    """Set the schedule to delete the endpoint by the limits in `tags`; without a limit, disable it."""
    at, own = certain_end(ends_of(None, [tags])), schedules(api)
    there = own.find({TAG_NAME: tags[TAG_NAME], TAG_ID: tags[TAG_ID]})
    if at is None and not there:
        return
    role, schedule = end_resources(name=tags[TAG_NAME], deployment_id=tags[TAG_ID], region=api.region, at=at)
    arn = _role_arn(api, role, machine)
    if not any(found.alive for found in there):
        own.create(schedule.properties, tags=_tags(machine, schedule), token=f"{tags[TAG_ID]}-{schedule.spec}")
    own.update({}, {**schedule.properties, "role": arn})


def _role_arn(api: Api, role: Resource, machine: Found) -> str:
    """Return the ARN of the schedule's role; create the role if it does not exist."""
    own = roles(api)
    found = own.read({"id": role.properties["name"]})
    if found is None:
        found = own.create(role.properties, tags=_tags(machine, role), token="")
    own.update(found.attributes, role.properties)
    return found.attributes["arn"]


def _tags(machine: Found, resource: Resource) -> dict[str, str]:
    """Return the tags of a resource that belongs to a machine's deployment."""
    shared = {name: value for name, value in machine.tags.items() if name not in _OWN}
    return {**shared, TAG_KEY: resource.key, TAG_SPEC: resource.spec}
