"""In what a deployment on record was asked for differently, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tgi_deploy.text import one_line
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.plan import Plan

_MOST: Final = 3
_LONGEST: Final = 60


def differences(recorded: Deployment, plan: Plan, target: str) -> str:
    """`: model a, now b; …`, the first three; empty where the record does not tell."""
    pairs = [("target", recorded.target, target)]
    if recorded.plan:
        before = as_dict(recorded.plan.requirements)
        pairs += [(name, before[name], now) for name, now in as_dict(plan.request.document).items()]
    told = [_told(name, before, now) for name, before, now in pairs if before != now]
    more = f"; and {len(told) - _MOST} more" if len(told) > _MOST else ""
    return f": {'; '.join(told[:_MOST])}{more}" if told else ""


def _told(name: str, before: object, now: object) -> str:
    what = name.replace("_", " ")
    if isinstance(now, Mapping):  # values of variables are nobody's business here
        return what
    return f"{what} {_short(before)}, now {_short(now)}"


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)
    return one_line(text, limit=_LONGEST)
