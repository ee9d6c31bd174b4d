"""Reader of `profiles/aws/actions.json`: which permission each feature needs, on what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.store import Store
from tgi_deploy.values.base import Where

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE: Final = "aws/actions.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What an action may be done to. `condition` is IAM's own document."""

    name: str
    about: str
    resources: tuple[str, ...]
    condition: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """One permission. `optional`: only this feature fails without it. `implied`: why, where no call has its name."""

    action: str
    feature: str
    scope: Scope
    optional: bool = False
    implied: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Actions:
    """`features`: name → what it is for, those that every deployment needs first."""

    features: Mapping[str, str]
    grants: tuple[Grant, ...]

    @property
    def core(self) -> tuple[str, ...]:
        """Features that a plain deployment needs, and the look before it."""
        needed = {grant.feature for grant in self.grants if not grant.optional}
        return tuple(name for name in self.features if name in needed or name == "doctor")


def read_actions() -> Actions:
    """Raises InputError `bad_profile`."""
    where = Where(_FILE)
    document = Store.behind().json(_FILE)
    try:
        scopes = {name: _scope(name, raw) for name, raw in document["scopes"].items()}
        grants = tuple(Grant(**{**raw, "scope": scopes[raw["scope"]]}) for raw in document["grants"])
        return Actions(features=dict(document["features"]), grants=grants)
    except (KeyError, TypeError, AttributeError) as problem:
        raise where.error(f"is not a table of permissions: {problem}") from None


def _scope(name: str, raw: Mapping[str, Any]) -> Scope:
    return Scope(
        name=name, about=raw["about"], resources=tuple(raw["resources"]), condition=dict(raw.get("condition", {}))
    )
