"""Validates raw TOML or JSON tables into keyword arguments, with errors that name file and key path.

A *check* takes a raw value and returns it in its final type, or raises `ValueError` with the end of a sentence
("should be an integer").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from tgi_deploy.catalog.names import suggestion
from tgi_deploy.values.base import Value, Where

# Larger than any count of bytes or parameters; beyond it, floating-point arithmetic overflows.
_LARGEST: Final = 10**18

Check = Callable[[object], Any]


class Field(Value, frozen=True, kw_only=True):
    """One key of a table: its check and its target field (defaults to the key; "" drops it)."""

    check: Check
    required: bool = True
    target: str | None = None


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("should be a string")
    return value


def integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("should be an integer")  # noqa: TRY004 -- every check raises the same type
    if not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"should be at most {_LARGEST:,}")
    return value


def count(value: object) -> int:
    found = integer(value)
    if found < 0:
        raise ValueError("should not be negative")
    return found


def positive(value: object) -> int:
    found = integer(value)
    if found <= 0:
        raise ValueError("should be a positive integer")
    return found


def number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        raise ValueError("should be a number, zero or more")
    return float(value)


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("should be true or false")  # noqa: TRY004 -- every check raises the same type
    return value


def anything(value: object) -> object:
    return value


def scalar(value: object) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise ValueError("should be a string or a number")
    return value


def usd(value: object) -> Decimal:
    """Check a price: a positive decimal number, as a string so that no digit is lost."""
    try:
        amount = Decimal(text(value))
    except InvalidOperation:
        raise ValueError('should be a price like "1.861"') from None
    if not amount.is_finite() or not 0 < amount <= _LARGEST:
        raise ValueError("should be a price above zero")
    return amount


def capability(value: object) -> tuple[int, int]:
    """Check a compute capability like "8.9"."""
    major, dot, minor = text(value).partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise ValueError('should be a compute capability like "8.9"')
    return int(major), int(minor)


def one_of(*choices: str) -> Check:
    def check(value: object) -> str:
        if value not in choices:
            raise ValueError(f"should be one of {', '.join(choices)}")
        return str(value)

    return check


def list_of(check: Check) -> Check:
    def check_all(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError("should be a list")  # noqa: TRY004 -- every check raises the same type
        return tuple(check(item) for item in value)

    return check_all


def table_of(check: Check) -> Check:
    def check_all(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("should be a table")  # noqa: TRY004 -- every check raises the same type
        return {key: check(item) for key, item in value.items()}

    return check_all


REQUIRED_TEXT: Final = Field(check=text)
OPTIONAL_TEXT: Final = Field(check=text, required=False)
IGNORED: Final = Field(check=anything, required=False, target="")


def table(raw: object, where: Where) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise where.error("should be a table")
    return raw


def read(raw: object, fields: Mapping[str, Field], where: Where) -> dict[str, Any]:
    """Check all keys of a table; unknown and missing keys are errors.

    Raises:
        InputError: `bad_profile`, naming file and key path.
    """
    found: dict[str, Any] = {}
    for key, value in table(raw, where).items():
        field = fields.get(key)
        if field is None:
            raise where.child(key).error("; ".join(filter(None, ("is not a known key", suggestion(key, fields)))))
        if field.target == "":
            continue
        try:
            found[field.target or key] = field.check(value)
        except ValueError as problem:
            raise where.child(key).error(str(problem)) from None
    for key, field in fields.items():
        if field.required and (field.target or key) not in found:
            raise where.child(key).error("is missing")
    return found
