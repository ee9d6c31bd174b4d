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
    groups = _grouped(actions, features)
    return {"Version": _VERSION, "Statement": [_statement(*key, grants) for key, grants in groups.items()]}


def _grouped(actions: Actions, features: Sequence[str]) -> dict[tuple[str, str], list[Grant]]:
    """Grants by (feature, scope). What several features need stands with the first: policies may not be long."""
    groups: dict[tuple[str, str], list[Grant]] = {}
    seen: set[tuple[str, str]] = set()
    wanted = [
        grant for name in actions.features if name in features for grant in actions.grants if grant.feature == name
    ]
    for grant in wanted:
        what = (grant.action, grant.scope.name)
        if what not in seen:
            seen.add(what)
            groups.setdefault((grant.feature, grant.scope.name), []).append(grant)
    return groups


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
