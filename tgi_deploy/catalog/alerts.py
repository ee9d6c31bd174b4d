"""Reader of `profiles/engines/*/alerts.json`: what to be woken for, and what to type then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.catalog.store import Store
from tgi_deploy.resources import profiles_dir

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """`expression` is PromQL, `lasting` how long it has to hold. `{…}` in both texts are places to fill."""

    name: str
    expression: str
    lasting: str
    severity: str
    means: str
    commands: tuple[str, ...]


def read_alerts(engine: str = "tgi", *, user_dir: Path | None = None) -> tuple[Alert, ...]:
    """In the file's order; a user's own file stands in for ours. Raises CatalogError."""
    folders = tuple(folder for folder in (user_dir, profiles_dir()) if folder is not None)
    return tuple(
        Alert(
            name=item["name"],
            expression=item["expression"],
            lasting=item["for"],
            severity=item["severity"],
            means=item["means"],
            commands=tuple(item["commands"]),
        )
        for item in Store(folders).json(f"engines/{engine}/alerts.json")["alerts"]
    )
