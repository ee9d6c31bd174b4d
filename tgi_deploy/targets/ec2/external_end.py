"""A backstop: an EventBridge schedule that terminates the machine if its own timer fails. Pure.

Its role may terminate only machines with this deployment's tag.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.aws.schedule import role_of_schedule
from tgi_deploy.values.resource import TAG_ID, Ref, Resource

if TYPE_CHECKING:
    from datetime import datetime

SCHEDULE: Final = "schedule"
SCHEDULE_ROLE: Final = "schedule-role"
# The machine counts from its first boot, which is later than the record's start.
GRACE: Final = timedelta(minutes=5)


def external_end(
    *, name: str, deployment_id: str, region: str, expires: datetime, machine_key: str
) -> tuple[Resource, Resource]:
    """Return the role that may terminate the machine, and the schedule that does so minutes after `expires`."""
    group = f"tgi-deploy-{name}-{deployment_id}"
    schedule = Resource(
        key=SCHEDULE,
        kind=SCHEDULE,
        place=region,
        properties={
            "name": group,
            "at": at(expires),
            "instance": Ref(key=machine_key, attribute="id"),
            "role": Ref(key=SCHEDULE_ROLE, attribute="arn"),
        },
        mutable=("at", "instance", "role"),
    )
    return _role(name, deployment_id, region, group), schedule


def at(expires: datetime) -> str:
    """Return when the schedule fires, in UTC."""
    return (expires.astimezone(UTC) + GRACE).strftime("%Y-%m-%dT%H:%M:%S")


def _role(name: str, deployment_id: str, region: str, group: str) -> Resource:
    return role_of_schedule(
        key=SCHEDULE_ROLE,
        place=region,
        region=region,
        deployment_id=deployment_id,
        name=name,
        group=group,
        statements=[
            {
                "Effect": "Allow",
                "Action": "ec2:TerminateInstances",
                "Resource": f"arn:{{partition}}:ec2:{region}:{{account}}:instance/*",
                "Condition": {"StringEquals": {f"aws:ResourceTag/{TAG_ID}": deployment_id}},
            }
        ],
    )
