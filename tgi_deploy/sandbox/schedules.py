"""Runs the one-time and rate-based schedules of EventBridge Scheduler, which moto stores but never runs."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.scheduler.models import scheduler_backends

from tgi_deploy.sandbox import roles, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_AT: Final = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_RATE: Final = re.compile(r"rate\((\d+) minutes?\)")


def run_due(timer_speed: float) -> None:
    """Run all due schedules; since its creation, a schedule's time runs `timer_speed` times as fast."""
    for region, group, schedule in list(_schedules()):
        if _due(schedule, timer_speed):
            schedule.sandbox_fired = time.time()
            target = schedule.target
            run = RUNNERS.get(str(target["Arn"]).rpartition(":::")[2])
            if run is not None:
                run(region, str(target["RoleArn"]), json.loads(target.get("Input") or "{}"))
            if schedule.action_after_completion == "DELETE":
                group.schedules.pop(schedule.name, None)


def _schedules() -> Iterator[tuple[str, Any, Any]]:
    for region, backend in list(scheduler_backends[DEFAULT_ACCOUNT_ID].items()):
        for group in list(backend.schedule_groups.values()):
            for schedule in list(group.schedules.values()):
                yield region, group, schedule


def _due(schedule: Any, timer_speed: float) -> bool:  # noqa: ANN401 -- moto's own class
    once, rate = _AT.fullmatch(schedule.schedule_expression), _RATE.fullmatch(schedule.schedule_expression)
    if not (once or rate) or schedule.state == "DISABLED":
        return False
    made = float(schedule.creation_date)
    at = datetime.fromisoformat(once[1]).replace(tzinfo=UTC).timestamp() if once else float(schedule.start_date or made)
    fired: float | None = getattr(schedule, "sandbox_fired", None)
    if rate and fired is not None:
        return time.time() >= fired + int(rate[1]) * 60 / timer_speed
    return time.time() >= made + (at - made) / timer_speed


def _terminate(region: str, role_arn: str, given: Mapping[str, Any]) -> None:
    for instance_id in given.get("InstanceIds", ()):
        instance = world.find_instance(instance_id)
        if instance is not None and roles.may_terminate(role_arn, region, instance_id):
            instance.sandbox_end("Client.UserInitiatedShutdown")


# What a universal target does, with its region, role and input. SageMaker's endpoints add theirs.
RUNNERS: Final[dict[str, Callable[[str, str, Mapping[str, Any]], None]]] = {
    "aws-sdk:ec2:terminateInstances": _terminate
}
