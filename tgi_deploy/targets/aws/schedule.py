"""Ends a deployment from outside: an EventBridge schedule, alone in a group, because only groups can have tags.

Properties: name (of the group), at (UTC, as `2026-01-09T12:00:00`; empty: never), role (ARN), and those that
`Ending.parameters` reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from tgi_deploy.reconcile.errors import InUseError, LostReplyError, ResourceNotFoundError
from tgi_deploy.targets.aws.api import Api, acknowledged, before_visible, carries, each, tag_list, tags_of
from tgi_deploy.targets.aws.role import ROLE
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, Found, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.targets.reply import Reply

KIND: Final = "schedule"
SCHEDULE: Final = "end"
PREFIX: Final = "tgi-deploy-"
_TOKEN_CHARS: Final = 64
_ACTIVE: Final = "ACTIVE"
_STATES: Final = (_ACTIVE, "DELETING")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """An API call that ends something, for EventBridge Scheduler's universal target.

    `parameters` returns those of the call from a schedule's properties. `rate`: how often to repeat a call that may
    fail at first; empty: call once.
    """

    call: str
    parameters: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    rate: str = ""


def role_of_schedule(
    *, key: str, place: str, region: str, deployment_id: str, name: str, group: str,
    statements: Sequence[Mapping[str, Any]],
) -> Resource:  # fmt: skip
    """Return the role with these statements that only the schedules of a group may assume."""
    caller = f"arn:{{partition}}:scheduler:{region}:*:schedule-group/{group}"
    return Resource(
        key=key,
        kind=ROLE,
        place=place,
        properties={
            "name": f"tgi-deploy-{deployment_id}-{region}-end",
            "deployment": name,
            "trust": {
                "Effect": "Allow",
                "Principal": {"Service": "scheduler.amazonaws.com"},
                "Action": "sts:AssumeRole",
                "Condition": {"ArnLike": {"aws:SourceArn": caller}},
            },
            "statements": list(statements),
        },
        mutable=("statements",),
    )


_TERMINATION: Final = Ending(
    call="ec2:terminateInstances", parameters=lambda properties: {"InstanceIds": [properties["instance"]]}
)


@dataclass(frozen=True, slots=True)
class Schedules:
    """The groups' names begin with `prefix`, which differs between targets; `place` is the target's in the region."""

    api: Api
    ending: Ending = _TERMINATION
    prefix: str = PREFIX
    place: str = ""
    rare: ClassVar = True
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        name = tags.get(TAG_NAME)
        listed = self.api.list(
            "list_schedule_groups",
            "looking for schedules",
            each("ScheduleGroups", lambda group: group.text("Name")),
            service="scheduler",
            NamePrefix=f"{self.prefix}{name}-" if name else self.prefix,
        )
        names = sorted(name for name in listed if tags.get(TAG_ID, "") in name)
        found = [item for name in names if (item := self.read({"id": name})) is not None]
        return tuple(item for item in found if carries(item.tags, tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        return self.api.change(
            "create_schedule_group",
            "creating a schedule group",
            lambda reply: self._found(properties["name"], reply.text("ScheduleGroupArn", prefix="arn:"), dict(tags)),
            service="scheduler",
            Name=properties["name"],
            ClientToken=token[:_TOKEN_CHARS],
            Tags=tag_list(tags),
        )

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:  # noqa: ARG002 -- its group has the same name
        """Create the schedule, or change the existing one."""
        wanted = self._schedule(properties)
        try:
            before_visible(
                self.api, lambda: self._ask("create_schedule", "scheduling the termination", _scheduled, **wanted)
            )
        except LostReplyError:
            self._ask("update_schedule", "rescheduling the termination", _scheduled, **wanted)

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        try:
            found = self._ask("get_schedule_group", "reading a schedule group", self._group, Name=attributes["id"])
            tags = self._tags(found.attributes["arn"])
        except ResourceNotFoundError:
            return None
        return replaced(found, key=tags.get(TAG_KEY, KIND), tags=tags)

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Delete the group with its schedule."""
        try:
            self.api.remove(
                "delete_schedule_group", "deleting a schedule group", service="scheduler", Name=attributes["id"]
            )
        except LostReplyError as error:  # a conflict: it is being modified
            raise InUseError(error.message) from error

    def _schedule(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        partition = self.api.sessions.client("scheduler", self.api.region).meta.partition
        return {
            "Name": SCHEDULE,
            "GroupName": properties["name"],
            **self._times(properties["at"]),
            "ScheduleExpressionTimezone": "UTC",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {
                "Arn": f"arn:{partition}:scheduler:::aws-sdk:{self.ending.call}",
                "RoleArn": properties["role"],
                "Input": json.dumps(self.ending.parameters(properties)),
            },
        }

    def _times(self, at: str) -> dict[str, Any]:
        """Return when the call is made: never, once (then the schedule deletes itself), or repeatedly from `at` on."""
        if not at:
            return {"ScheduleExpression": self.ending.rate, "State": "DISABLED"}
        if not self.ending.rate:
            return {"ScheduleExpression": f"at({at})", "ActionAfterCompletion": "DELETE"}
        start = max(datetime.fromisoformat(f"{at}+00:00"), self.api.retrier.clock.now())
        return {"ScheduleExpression": self.ending.rate, "StartDate": start}

    def _tags(self, arn: str) -> dict[str, str]:
        return self._ask("list_tags_for_resource", "reading a schedule group's tags", tags_of, ResourceArn=arn)

    def _ask(self, method: str, doing: str, read: Callable[[Reply], _T], **parameters: Any) -> _T:  # noqa: ANN401 -- the API's own
        return self.api.ask(method, doing, read, service="scheduler", **parameters)

    def _group(self, group: Reply) -> Found:
        found = self._found(group.text("Name"), group.text("Arn", prefix="arn:"), {}, group.moment("CreationDate"))
        state = group.choice("State", _STATES)
        return replaced(found, state=state.lower(), alive=state == _ACTIVE)

    def _found(self, name: str, arn: str, tags: dict[str, str], created: str = "") -> Found:
        return Found(
            key=tags.get(TAG_KEY, KIND),
            kind=KIND,
            place=self.place or self.api.region,
            attributes={"id": name, "name": name, "arn": arn, "created": created},
            tags=tags,
            state=_ACTIVE.lower(),
        )


def _scheduled(reply: Reply) -> None:
    acknowledged(reply)
    reply.text("ScheduleArn")
