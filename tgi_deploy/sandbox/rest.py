"""Calls of REST services: the action is in the method and the path."""

from __future__ import annotations

from typing import Final

_SCHEDULER: Final = {
    "schedule-groups": {"POST": "CreateScheduleGroup", "GET": "GetScheduleGroup", "DELETE": "DeleteScheduleGroup"},
    "schedules": {"POST": "CreateSchedule", "PUT": "UpdateSchedule", "GET": "GetSchedule", "DELETE": "DeleteSchedule"},
    "tags": {"POST": "TagResource", "GET": "ListTagsForResource", "DELETE": "UntagResource"},
}
_LISTS: Final = {"schedule-groups": "ListScheduleGroups", "schedules": "ListSchedules"}


def speaks_rest(service: str) -> bool:
    return service == "scheduler"


def action_of(method: str, path: str) -> str:
    """Return the action of an EventBridge Scheduler call; empty for an unknown path."""
    folder, _, name = path.strip("/").partition("/")
    if not name and method == "GET":
        return _LISTS.get(folder, "")
    return _SCHEDULER.get(folder, {}).get(method, "")
