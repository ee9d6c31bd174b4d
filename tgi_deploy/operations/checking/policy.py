"""The IAM policy that lets this tool work: one statement a scope, and nothing that no call needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.actions import policy_document
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.catalog.actions import Actions, Grant

_MAKES_ROLES: Final = "iam:CreateRole"


def policy(actions: Actions, features: Sequence[str]) -> dict[str, Any]:
    """The policy document for `features`. Raises InputError `unknown_feature`."""
    unknown = [name for name in features if name not in actions.features]
    if unknown:
        raise InputError(
            "unknown_feature",
            f"--for {','.join(features)}: there is no feature {unknown[0]!r}",
            hint=f"features are {', '.join(actions.features)}",
        )
    return policy_document(_statement(grants) for grants in _grouped(actions, features))


def makes_roles(actions: Actions, features: Sequence[str]) -> bool:
    """Whether these features make roles, which carry the boundary."""
    return any(grant.action == _MAKES_ROLES and grant.feature in features for grant in actions.grants)


def _grouped(actions: Actions, features: Sequence[str]) -> list[list[Grant]]:
    """Grants by scope, the features in their order: policies may not be long."""
    groups: dict[str, list[Grant]] = {}
    for name in actions.features:
        for grant in actions.grants:
            if grant.feature == name and name in features:
                groups.setdefault(grant.scope.name, []).append(grant)
    return list(groups.values())


def _statement(grants: Sequence[Grant]) -> dict[str, Any]:
    """`Sid` takes letters and digits only: `LaunchLaunchNew` is scope launch-new, needed by feature launch first."""
    first = grants[0]
    resources = list(first.scope.resources)
    statement = {
        "Sid": "".join(word.title() for word in f"{first.feature}-{first.scope.name}".split("-")),
        "Effect": "Allow",
        "Action": sorted({grant.action for grant in grants}),
        "Resource": resources[0] if len(resources) == 1 else resources,
    }
    condition = dict(first.scope.condition)
    return {**statement, "Condition": condition} if condition else statement
