"""Small pieces of text that views share: money, bytes, counts, tables, wrapped paragraphs."""

from __future__ import annotations

import textwrap
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 100
_GIB: Final = 1024**3
_CENT: Final = Decimal("0.01")
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


def usd(amount: Decimal | float | None) -> str:
    """`$1.861`: at least two decimals, at most four; `-` when unknown, never 0."""
    if amount is None:
        return "-"
    exact = Decimal(str(amount))
    short = exact.quantize(_CENT)
    if short == exact:
        return f"${short:,}"
    return f"${exact.quantize(Decimal('0.0001')).normalize():,f}" if exact < 1000 else f"${short:,}"  # noqa: PLR2004 -- a thousand dollars


def gib(size_bytes: float) -> str:
    return f"{size_bytes / _GIB:,.2f} GiB"


def count(number: float) -> str:
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """As exact as one remembers it: `45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE_S)
    if seconds < 2 * _HOUR_S:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def heading(title: str, note: str = "") -> str:
    return click.style(title, bold=True) + (f"  {note}" if note else "")


def plural(number: int, noun: str, many: str = "") -> str:
    return f"{number:,} {noun if number == 1 else many or f'{noun}s'}"


def wrapped(text: str, *, first: str = "  ", rest: str = "  ") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[int] = frozenset()) -> str:
    """Columns as wide as their widest cell; the numbers of `right` are aligned at their end."""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    texts = [
        "  ".join(
            cell.rjust(widths[index]) if index in right else cell.ljust(widths[index])
            for index, cell in enumerate(line)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([click.style(texts[0], bold=True), *texts[1:]]) + "\n"
