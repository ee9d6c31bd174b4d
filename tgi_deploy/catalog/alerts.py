"""Reads `profiles/engines/*/alerts.json`: alert rules with the commands to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.fields import REQUIRED_TEXT, Field, list_of, read, text
from tgi_deploy.catalog.store import Store
from tgi_deploy.values.base import Value, Where

if TYPE_CHECKING:
    from pathlib import Path

_ALERT: Final = {
    "name": REQUIRED_TEXT,
    "expression": REQUIRED_TEXT,
    "for": Field(check=text, target="lasting"),
    "severity": REQUIRED_TEXT,
    "means": REQUIRED_TEXT,
    "commands": Field(check=list_of(text)),
}


class Alert(Value, frozen=True, kw_only=True):
    """`expression` is PromQL, `lasting` how long it must hold. `{…}` in both texts are placeholders."""

    name: str
    expression: str
    lasting: str
    severity: str
    means: str
    commands: tuple[str, ...]


def read_alerts(engine: str, *, user_dir: Path | None = None) -> tuple[Alert, ...]:
    """Return the alerts in the file's order; a user's file replaces ours. Raises InputError `bad_profile`."""
    file = f"engines/{engine}/alerts.json"
    where = Where(file).child("alerts")
    alerts = Store.behind(user_dir).json(file).get("alerts")
    if not isinstance(alerts, list):
        raise where.error("should be a list")
    return tuple(Alert(**read(raw, _ALERT, where.child(index))) for index, raw in enumerate(alerts))
