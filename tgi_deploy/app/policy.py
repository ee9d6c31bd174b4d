"""The IAM policy that lets this tool work: one statement a feature and scope, and nothing that no call needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.catalog.actions import Actions, Grant

_VERSION: Final = "2012-10-17"  # of IAM's policy language


def policy(actions: Actions, features: Sequence[str]) -> dict[str, Any]:
    """The policy document for `features`. Raises InputError `unknown_feature`."""
    unknown = [name for name in features if name not in actions.features]
    if unknown:
        raise InputError(
            "unknown_feature",
            f"--for {','.join(features)}: there is no feature {unknown[0]!r}",
            hint=f"features are {', '.join(actions.features)}",
        )
    groups: dict[tuple[str, str], list[Grant]] = {}
    for name in actions.features:
        for grant in actions.grants:
            if name in features and grant.feature == name:
                groups.setdefault((name, grant.scope.name), []).append(grant)
    return {"Version": _VERSION, "Statement": [_statement(*key, grants) for key, grants in groups.items()]}


def allowed_actions(document: dict[str, Any]) -> tuple[str, ...]:
    """Every action that a policy of ours allows, each once, in order."""
    return tuple(sorted({action for statement in document["Statement"] for action in statement["Action"]}))


def _statement(feature: str, scope: str, grants: Sequence[Grant]) -> dict[str, Any]:
    """`Sid` takes letters and digits only: `LaunchLaunchNew` is feature launch, scope launch-new."""
    resources = list(grants[0].scope.resources)
    statement = {
        "Sid": "".join(word.title() for word in f"{feature}-{scope}".split("-")),
        "Effect": "Allow",
        "Action": sorted({grant.action for grant in grants}),
        "Resource": resources[0] if len(resources) == 1 else resources,
    }
    condition = dict(grants[0].scope.condition)
    return {**statement, "Condition": condition} if condition else statement
