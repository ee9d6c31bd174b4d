"""Hints for invalid values: how to write them. Imported only for errors."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.plan_options import PLAN_OPTIONS

if TYPE_CHECKING:
    from decimal import Decimal

_EXAMPLES: Final = {row.flag: row.example for row in PLAN_OPTIONS}
_CURRENCY: Final = re.compile(r"[$€£¥]|(?<![a-z])(usd|eur|gbp|chf|jpy|dollars?|euros?|cents?)(?![a-z])", re.IGNORECASE)
_PLAIN: Final = re.compile(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}", re.ASCII)
_LONGEST_COUNT: Final = 5
_KILO: Final = re.compile(r"(\d{1,5})k", re.IGNORECASE | re.ASCII)
_COMMA: Final = re.compile(r"(\d{1,9}),(\d{1,2})", re.ASCII)
_THOUSANDS: Final = re.compile(r"\d{1,3}([,_' ]\d{3})+(\.\d{1,9})?", re.ASCII)


def amount(text: str, option: str, unit: str, most: Decimal) -> str:
    """Return a hint for a text that is not a number of `unit` (empty for a share), or is out of range."""
    of = f"of {unit}" if unit else f"up to {most}"
    text = text[:60]
    bare = _CURRENCY.sub("", text).strip()
    if bare != text and _PLAIN.fullmatch(bare):
        return f"leave the currency out: write {option} {bare}"
    if comma := _COMMA.fullmatch(bare):
        return f"write {option} {comma[1]}.{comma[2]}: the decimal separator is a point"
    if _THOUSANDS.fullmatch(bare):
        return f"write {option} {re.sub('[^0-9.]', '', bare)}: no separators between thousands"
    advice = f"write {option} {_EXAMPLES[option]}, for example: a plain positive number {of}"
    return f"leave the currency out: {advice}" if bare != text else advice


def count(text: str, option: str) -> str:
    """Return a hint for a text that is not a whole number."""
    if thousands := _KILO.fullmatch(text):
        return f"write {option} {1024 * int(thousands[1])}: digits only"
    return f"write {option} {_EXAMPLES[option]}, for example: digits only"


def duration(text: str, option: str) -> str:
    """Return a hint for a text that is not a duration."""
    bare = text.lstrip("0")
    if bare.isascii() and bare.isdigit() and len(bare) <= _LONGEST_COUNT:
        return f"add a unit: write {option} {bare}m or {bare}h"
    return f"write {option} 2h, 90m or 1d12h"


def choice(text: str, choices: tuple[str, ...]) -> str:
    """Return a hint for a text that is not one of `choices`: the nearest, and all of them."""
    folded = re.sub(r"[\s_]+", "-", text[:60].strip()).lower()
    near = difflib.get_close_matches(folded, choices, n=1)
    everything = ", ".join(choices)
    return f"did you mean {near[0]}? Valid values are {everything}" if near else f"choose one of {everything}"
