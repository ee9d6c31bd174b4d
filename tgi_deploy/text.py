"""Numbers as a report writes them. An unknown number is a dash, never a zero."""

from __future__ import annotations

from typing import Final

DASH: Final = "\u2013"
TIMES: Final = "\u00d7"
_GIB: Final = 1024**3
_MINUTE_S: Final = 60
_THOUSAND: Final = 1000
_CENTS_FROM: Final = 10


def usd(amount: float | None) -> str:
    """`$5.00`, `$1.877`: two decimals, and a third below ten dollars where it says something."""
    if amount is None:
        return DASH
    exact = f"{amount:,.3f}"
    return f"${amount:,.2f}" if amount >= _CENTS_FROM or exact.endswith("0") else f"${exact}"


def usd_exact(amount: float | None) -> str:
    """Always three decimals: for columns."""
    return DASH if amount is None else f"${amount:,.3f}"


def cents(amount: float | None) -> str:
    return DASH if amount is None else f"${amount:,.2f}"


def count(number: float | None) -> str:
    return DASH if number is None else f"{number:,.0f}"


def gib(size_bytes: float) -> str:
    return f"{size_bytes / _GIB:,.1f} GiB"


def span(seconds: float) -> str:
    """`45 s` or `3 min 20 s`."""
    minutes, rest = divmod(round(seconds), _MINUTE_S)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def tick(value: float) -> str:
    """A number on an axis: `0.5`, `20`, `5k`."""
    return f"{value / _THOUSAND:g}k" if value >= _THOUSAND else f"{value:g}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"
