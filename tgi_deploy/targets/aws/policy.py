"""The minimal IAM policy for this tool: few statements, because its length is limited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.actions import policy_document
from tgi_deploy.errors import InputError
from tgi_deploy.targets.protocol import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.catalog.actions import Actions, Boundary, Grant

_MAKES_ROLES: Final = "iam:CreateRole"


def required_policy(actions: Actions, names: tuple[str, ...], *, everything: bool) -> Policy:
    """Return the policy for these features. Raises InputError `bad_option_value`."""
    chosen = tuple(actions.features) if everything else names or actions.core
    bound = actions.boundary if makes_roles(actions, chosen) else None
    document = policy(actions, chosen)
    notice = (
        f"created roles carry the policy {bound.name!r}, which an administrator creates once: {bound.creation}"
        if bound
        else ""
    )
    return Policy(
        document=document,
        features={name: actions.features[name] for name in chosen},
        boundary=_boundary_document(bound) if bound else None,
        notice=notice,
    )


def permissions_boundary(actions: Actions) -> Policy:
    """Return the permissions boundary of the roles that `up` creates."""
    return Policy(document=None, features={}, boundary=_boundary_document(actions.boundary))


def _boundary_document(boundary: Boundary) -> dict[str, Any]:
    return {"name": boundary.name, "policy": boundary.document(), "command": boundary.creation}


def policy(actions: Actions, features: Sequence[str]) -> dict[str, Any]:
    """Return the policy document for `features`. Raises InputError `bad_option_value`."""
    unknown = [name for name in features if name not in actions.features]
    if unknown:
        raise InputError(
            "bad_option_value",
            f"--for {','.join(features)}: {unknown[0]!r} is not a feature",
            hint=f"features are {', '.join(actions.features)}",
        )
    return policy_document(_statement(name, grants) for name, grants in _grouped(actions, features).items())


def makes_roles(actions: Actions, features: Sequence[str]) -> bool:
    """Return whether these features create roles, which carry the boundary."""
    return any(grant.action == _MAKES_ROLES and grant.feature in features for grant in actions.grants)


def _grouped(actions: Actions, features: Sequence[str]) -> dict[str, list[Grant]]:
    """Return the grants of each statement, in the features' order."""
    groups: dict[str, list[Grant]] = {}
    for name in actions.features:
        for grant in actions.grants:
            if grant.feature == name and name in features:
                groups.setdefault(grant.scope.statement, []).append(grant)
    return groups


def _statement(name: str, grants: Sequence[Grant]) -> dict[str, Any]:
    """Return the statement. `Sid` allows only letters and digits.

    The length of a policy is limited, so a statement may join scopes: those with one condition, or with one resource
    and different values of one key. `tests/contract/test_policy_joins.py` proves that this allows nothing more.
    """
    scopes = list({grant.scope.name: grant.scope for grant in grants}.values())
    resources = list(dict.fromkeys(resource for scope in scopes for resource in scope.resources))
    statement = {
        "Sid": "".join(word.title() for word in name.split("-")),
        "Effect": "Allow",
        "Action": sorted({grant.action for grant in grants}),
        "Resource": resources[0] if len(resources) == 1 else resources,
    }
    condition = _joined([scope.condition for scope in scopes])
    return {**statement, "Condition": condition} if condition else statement


def _joined(conditions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a condition that holds if any of these does. All have the same operators and keys."""
    return {
        operator: {key: _values([condition[operator][key] for condition in conditions]) for key in keys}
        for operator, keys in conditions[0].items()
    }


def _values(given: Sequence[Any]) -> Any:  # noqa: ANN401 -- a text, or several, as IAM has them
    distinct = [value for number, value in enumerate(given) if value not in given[:number]]
    return distinct[0] if len(distinct) == 1 else distinct
