"""Roles of machines and schedules: they may do only what their policy and boundary allow.

Enough of IAM for that, and the one-time and rate-based schedules of EventBridge Scheduler, which moto stores but never
runs.
"""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.scheduler.models import scheduler_backends
from moto.ssm.models import ssm_backends

from tgi_deploy.catalog.actions import read_actions
from tgi_deploy.sandbox import world
from tgi_deploy.sandbox.wire import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tgi_deploy.sandbox.world import SandboxInstance

_CHANNEL_CALLS: Final = ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")


def prepare_account() -> None:
    """Create the permissions boundaries, as an administrator does once per account."""
    for boundary in (read_actions().boundary, read_actions("sagemaker").boundary):
        if boundary.arn(DEFAULT_ACCOUNT_ID, "aws") not in iam().managed_policies:
            iam().create_policy(
                description="made by the sandbox",
                path="/",
                policy_document=json.dumps(boundary.document()),
                policy_name=boundary.name,
                tags=[],
            )


def read_parameter(instance: SandboxInstance, action: str, region: str, name: str) -> str | None:
    """Read a parameter as the machine's role; None without an instance profile. Raises RefusedError."""
    if not profile_of(instance):
        return None
    arn = f"arn:aws:ssm:{region}:{DEFAULT_ACCOUNT_ID}:parameter/{name.removeprefix('/')}"
    if not _may(_roles_of(instance), "ec2.amazonaws.com", f"ssm:{action}", arn, {}):
        why = f"User: assumed-role of {instance.id} is not authorized to perform: ssm:{action} on resource: {arn}"
        raise RefusedError("AccessDeniedException", why)
    if action != "GetParameter":
        raise RefusedError("UnsupportedOperationException", "the sandbox's machines only read parameters")
    found = ssm_backends[DEFAULT_ACCOUNT_ID][region].get_parameter(name)
    if found is None:
        raise RefusedError("ParameterNotFound", f"Parameter {name} not found.")
    return str(found.decrypt(found.value))


def may_answer_sessions(instance_id: str) -> bool:
    """Return whether the machine's role lets its agent register and open the channels of sessions."""
    wanted = ("ssm:UpdateInstanceInformation", *(f"ssmmessages:{call}" for call in _CHANNEL_CALLS))
    return all(
        _may(_roles_of(world.find_instance(instance_id)), "ec2.amazonaws.com", action, "*", {}) for action in wanted
    )


def is_trusted(role_arn: str, service: str) -> bool:
    """Return whether the role exists, and the service can assume it."""
    return any(service in role.assume_role_policy_document for role in _named(role_arn))


def may_schedule(role_arn: str, action: str, arn: str, facts: Mapping[str, str]) -> bool:
    """Return whether EventBridge Scheduler can assume the role and do that with it."""
    return _may(_named(role_arn), "scheduler.amazonaws.com", action, arn, facts)


def _named(role_arn: str) -> list[Any]:
    return [role for role in iam().roles.values() if role.arn == role_arn]


def iam() -> Any:  # noqa: ANN401 -- moto has no types to name
    return iam_backends[DEFAULT_ACCOUNT_ID]["aws"]


def _roles_of(instance: SandboxInstance | None) -> list[Any]:
    given = profile_of(instance) if instance else None
    return [role for one in iam().instance_profiles.values() if given in {one.name, one.arn} for role in one.roles]


def profile_of(instance: SandboxInstance) -> str:
    """Return the name or ARN of the instance profile, or empty."""
    known = instance.ec2_backend.iam_instance_profile_associations.get(instance.id)
    if known is not None:
        return str(known.iam_instance_profile.arn)
    return str(instance.iam_instance_profile or "")


def _may(roles: list[Any], service: str, action: str, arn: str, facts: Mapping[str, str]) -> bool:
    """Return whether a role that this service can assume allows it, by its policies and boundary."""
    return any(
        service in role.assume_role_policy_document
        and _allow(role.policies.values(), action, arn, facts)
        and _allow(_boundary(role), action, arn, facts)
        for role in roles
    )


def _boundary(role: Any) -> list[str]:  # noqa: ANN401 -- moto's own class
    """Return the policy of the role's boundary; one that allows everything without a boundary."""
    if not role.permissions_boundary_arn:
        return ['{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}']
    policy = iam().managed_policies.get(role.permissions_boundary_arn)
    return [item.document for item in policy.versions if item.is_default] if policy else []


def _allow(policies: Iterable[str], action: str, arn: str, facts: Mapping[str, str]) -> bool:
    return any(
        statement["Effect"] == "Allow"
        and _fits(statement["Action"], action)
        and _fits(statement["Resource"], arn)
        and _holds(statement.get("Condition", {}), facts)
        for policy in policies
        for statement in _many(json.loads(policy)["Statement"])
    )


def _fits(patterns: object, value: str) -> bool:
    return any(fnmatchcase(value, str(pattern)) for pattern in _many(patterns))


def _holds(conditions: Mapping[str, Mapping[str, str]], facts: Mapping[str, str]) -> bool:
    """Evaluate string equality and presence; unknown conditions are false."""
    return all(
        (operator == "StringEquals" and facts.get(name) == value)
        or (operator == "Null" and (name not in facts) is (value == "true"))
        for operator, wanted in conditions.items()
        for name, value in wanted.items()
    )


def _many(value: Any) -> list[Any]:  # noqa: ANN401 -- IAM takes one or a list of almost anything
    return value if isinstance(value, list) else [value]


_AT: Final = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_RATE: Final = re.compile(r"rate\((\d+) minutes?\)")


def run_due(timer_speed: float) -> None:
    """Run all due schedules; since its creation, a schedule's time runs `timer_speed` times as fast."""
    for region, group, schedule in list(_schedules()):
        if _due(schedule, timer_speed):
            schedule.fired = time.time()
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
    fired: float | None = getattr(schedule, "fired", None)
    if rate and fired is not None:
        return time.time() >= fired + int(rate[1]) * 60 / timer_speed
    return time.time() >= made + (at - made) / timer_speed


def _terminate(region: str, role_arn: str, given: Mapping[str, Any]) -> None:
    for instance in filter(None, map(world.find_instance, given.get("InstanceIds", ()))):
        arn = f"arn:aws:ec2:{region}:{DEFAULT_ACCOUNT_ID}:instance/{instance.id}"
        facts = {f"aws:ResourceTag/{tag['key']}": tag["value"] for tag in instance.get_tags()}
        if may_schedule(role_arn, "ec2:TerminateInstances", arn, facts):
            instance.end("Client.UserInitiatedShutdown")


# What a universal target does, with its region, role and input. SageMaker's endpoints add theirs.
RUNNERS: Final[dict[str, Callable[[str, str, Mapping[str, Any]], None]]] = {
    "aws-sdk:ec2:terminateInstances": _terminate
}
