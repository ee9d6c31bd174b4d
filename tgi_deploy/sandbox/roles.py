"""What a machine's role allows, and a schedule's: enough of IAM to refuse what a policy does not name."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends

from tgi_deploy.sandbox import world
from tgi_deploy.sandbox.wire import Answer, Call, error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def refuse_machine(call: Call, instance_id: str) -> Answer | None:
    """The answer to a machine that may not make this call of the parameter store; None where it may."""
    arn = f"arn:aws:ssm:{call.region}:{DEFAULT_ACCOUNT_ID}:parameter/{call.text('Name').removeprefix('/')}"
    statements = _of_roles(_roles_of(instance_id), service="ec2.amazonaws.com")
    if _allow(statements, f"ssm:{call.action}", arn, {}):
        return None
    message = f"User: assumed-role of {instance_id} is not authorized to perform: ssm:{call.action} on resource: {arn}"
    return error(call, "AccessDeniedException", message)


def may_terminate(role_arn: str, region: str, instance_id: str) -> bool:
    """Whether EventBridge Scheduler can take on the role, and may end the machine as it."""
    instance = world.find_instance(instance_id)
    roles = [role for role in _iam().roles.values() if role.arn == role_arn]
    if instance is None or not roles:
        return False
    arn = f"arn:aws:ec2:{region}:{DEFAULT_ACCOUNT_ID}:instance/{instance_id}"
    facts = {f"aws:ResourceTag/{tag['key']}": tag["value"] for tag in instance.get_tags()}
    return _allow(_of_roles(roles, service="scheduler.amazonaws.com"), "ec2:TerminateInstances", arn, facts)


def _iam() -> Any:  # noqa: ANN401 -- moto has no types to name
    return iam_backends[DEFAULT_ACCOUNT_ID]["aws"]


def _roles_of(instance_id: str) -> list[Any]:
    instance = world.find_instance(instance_id)
    given = None if instance is None else profile_of(instance)
    profiles = [one for one in _iam().instance_profiles.values() if given in {one.name, one.arn}]
    return [role for profile in profiles for role in profile.roles]


def profile_of(instance: Any) -> str:  # noqa: ANN401 -- moto's own class
    """The name or ARN of the instance profile, empty without one."""
    known = instance.ec2_backend.iam_instance_profile_associations.get(instance.id)
    if known is not None:
        return str(known.iam_instance_profile.arn)
    return str(instance.iam_instance_profile or "")


def _of_roles(roles: list[Any], *, service: str) -> Iterator[Mapping[str, Any]]:
    """The statements of the inline policies of the roles that this service can take on."""
    for role in roles:
        if service in role.assume_role_policy_document:
            for policy in role.policies.values():
                yield from _many(json.loads(policy)["Statement"])


def _allow(statements: Iterator[Mapping[str, Any]], action: str, arn: str, facts: Mapping[str, str]) -> bool:
    return any(
        statement["Effect"] == "Allow"
        and _fits(statement["Action"], action)
        and _fits(statement["Resource"], arn)
        and _holds(statement.get("Condition", {}), facts)
        for statement in statements
    )


def _fits(patterns: object, value: str) -> bool:
    return any(fnmatchcase(value, str(pattern)) for pattern in _many(patterns))


def _holds(conditions: Mapping[str, Mapping[str, str]], facts: Mapping[str, str]) -> bool:
    """Equality of strings; what is not known here does not hold."""
    return all(
        operator == "StringEquals" and facts.get(name) == value
        for operator, wanted in conditions.items()
        for name, value in wanted.items()
    )


def _many(value: Any) -> list[Any]:  # noqa: ANN401 -- IAM takes one or a list of almost anything
    return value if isinstance(value, list) else [value]
