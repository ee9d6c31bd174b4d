"""Validates flag values by an engine's table of flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tgi_deploy.values.engine import Flag

_LARGEST: Final = {"uint16": 65_535, "uint32": 4_294_967_295}
_WORD: Final = 18_446_744_073_709_551_615


def value_problem(flag: Flag, value: str) -> str | None:
    """Return the problem as the end of a sentence, or None."""
    if flag.values and flag.kind != "bool":
        return None if value in flag.values else f"choose one of {', '.join(flag.values)}"
    if flag.kind == "bool":
        return None if value in {"true", "false"} else "write true or false"
    if flag.kind.startswith("uint"):
        return None if _is_whole(flag.kind, value) else f"should be a whole number from 0 to {_largest(flag.kind)}"
    if flag.kind == "float":
        return None if is_number(value) else "should be a number"
    if flag.kind == "list[uint]":
        listed = all(_is_whole(flag.kind, part) for part in value.split(","))
        return None if listed else "should be whole numbers separated by commas, without spaces"
    return None if value.isprintable() and value else "should be printable and not empty"


def _is_whole(kind: str, text: str) -> bool:
    most = _largest(kind)
    return text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most


def _largest(kind: str) -> int:
    """Return the maximum of the program's type; counts without a width are machine words."""
    return _LARGEST.get(kind, _WORD)


def is_number(text: str) -> bool:
    whole, _, fraction = text.removeprefix("-").partition(".")
    return (whole + fraction).isascii() and (whole + fraction).isdigit()
