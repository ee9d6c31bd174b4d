"""Small pieces of text that views share: headings, tables, wrapped paragraphs.

Not rich's: `rich.table` takes 21 ms to import where click takes 35, and all of `plan` may take 120. Only the live line
of progress.py pays for it.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 100


def heading(title: str, note: str = "") -> str:
    return click.style(title, bold=True) + (f"  {note}" if note else "")


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
