"""Reads `<service>/actions.json`: the permissions of each feature, and the permissions boundary of our roles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.store import Store
from tgi_deploy.values.base import Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SERVICE: Final = "aws"
_FILE: Final = "actions.json"
_VERSION: Final = "2012-10-17"  # the version of IAM's policy language
_PRINTED: Final = '--policy-document "$(tgi-deploy doctor --policy --boundary{target})"'


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The resources of an action. `condition` is IAM's document. A statement may contain several scopes."""

    name: str
    statement: str
    about: str
    resources: tuple[str, ...]
    condition: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """One permission. `optional`: only this feature needs it. `implied`: the reason, if no call has its name."""

    action: str
    feature: str
    scope: Scope
    optional: bool = False
    implied: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """The account policy that roles created by this tool carry as their permissions boundary.

    `target` is the option that its command needs, empty for the default target.
    """

    name: str
    statements: tuple[Mapping[str, Any], ...]
    target: str = ""

    def document(self, partition: str = "aws") -> dict[str, Any]:
        """Return the policy document for an account in `partition`."""
        return policy_document(
            {**statement, "Resource": statement["Resource"].replace("arn:aws:", f"arn:{partition}:", 1)}
            for statement in self.statements
        )

    def arn(self, account: str, partition: str) -> str:
        return f"arn:{partition}:iam::{account}:policy/{self.name}"

    @property
    def creation(self) -> str:
        """The command with which an administrator creates it."""
        return f"aws iam create-policy --policy-name {self.name} {_PRINTED.format(target=self.target)}"

    def renewal(self, arn: str) -> str:
        """Return the command that updates an existing policy to the printed document."""
        printed = _PRINTED.format(target=self.target)
        return f"aws iam create-policy-version --set-as-default --policy-arn {arn} {printed}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Actions:
    """`features`: name → purpose, those that every deployment needs first."""

    features: Mapping[str, str]
    grants: tuple[Grant, ...]
    boundary: Boundary

    @property
    def core(self) -> tuple[str, ...]:
        """Features that a plain deployment and its preflight need."""
        needed = {grant.feature for grant in self.grants if not grant.optional}
        return tuple(name for name in self.features if name in needed or name == "doctor")


def policy_document(statements: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {"Version": _VERSION, "Statement": [dict(statement) for statement in statements]}


def read_actions(service: str = _SERVICE) -> Actions:
    """Return the permissions for the provider's machines, or a service's. Raises InputError `bad_profile`."""
    name = f"{service}/{_FILE}"
    where = Where(name)
    document = Store.behind().json(name)
    try:
        scopes = {name: _scope(name, raw) for name, raw in document["scopes"].items()}
        grants = tuple(Grant(**{**raw, "scope": scopes[raw["scope"]]}) for raw in document["grants"])
        bound = document["boundary"]
        boundary = Boundary(
            name=bound["name"],
            statements=tuple(bound["statements"]),
            target="" if service == _SERVICE else f" --target {service}",
        )
        return Actions(features=dict(document["features"]), grants=grants, boundary=boundary)
    except (KeyError, TypeError, AttributeError) as problem:
        raise where.error(f"is not a table of permissions: {problem}") from None


def _scope(name: str, raw: Mapping[str, Any]) -> Scope:
    return Scope(
        name=name,
        statement=raw.get("statement", name),
        about=raw["about"],
        resources=tuple(raw["resources"]),
        condition=dict(raw.get("condition", {})),
    )
