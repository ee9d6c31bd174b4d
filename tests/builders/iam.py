"""Enough of IAM's evaluation to judge the policies that this tool prints, by IAM's documented rules.

Source: IAM user guide, "Policy evaluation logic", "IAM JSON policy elements: Condition operators" and "Resource". An
unknown operator is an error, so that no policy is evaluated by guessing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SEGMENTS = 6


def allows(document: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
    """Return whether the policy allows it: a statement allows it, and none denies it."""
    effects = {item["Effect"] for item in document["Statement"] if _applies(item, action, resource, context or {})}
    return effects == {"Allow"}


def _applies(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    return (
        any(_fits(pattern.lower(), action.lower()) for pattern in _many(statement["Action"]))
        and any(_fits_arn(pattern, resource) for pattern in _many(statement["Resource"]))
        and all(
            _holds(operator, _many(wanted), context.get(key))
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _holds(operator: str, wanted: Iterable[str], given: str | None) -> bool:
    """Evaluate one key of a condition. A missing key fails all operators except `Null` and the negated ones."""
    if operator == "Null":
        return [str(given is None).lower()] == list(wanted)
    negated = operator in {"StringNotEquals", "StringNotLike", "ArnNotEquals", "ArnNotLike"}
    compare = {
        "StringEquals": lambda pattern, value: pattern == value,
        "StringLike": _fits,
        "ArnEquals": _fits_arn,
        "ArnLike": _fits_arn,
    }[operator.replace("Not", "")]
    if given is None:
        return negated
    return any(compare(pattern, given) for pattern in wanted) != negated


def _fits_arn(pattern: str, arn: str) -> bool:
    """Match segment by segment: a wildcard before a colon matches only up to that colon."""
    if pattern == "*":
        return True
    patterns, parts = pattern.split(":", _SEGMENTS - 1), arn.split(":", _SEGMENTS - 1)
    return len(patterns) == len(parts) and all(map(_fits, patterns, parts))


def _fits(pattern: str, text: str) -> bool:
    expression = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
