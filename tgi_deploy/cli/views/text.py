"""Small pieces of text that views share: headings, tables, wrapped paragraphs.

Not rich's: `rich.table` takes 21 ms to import where click takes 35, and all of `plan` may take 120. Only the live line
of progress.py pays for it.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import IO, TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_NARROWEST: Final = 40
_WIDEST: Final = 200
_UNBOUNDED: Final = 10_000
_GAP: Final = "  "
# A command stays on one line, because it could not be pasted otherwise: in quotes, or at the end after a colon.
_ATOM: Final = re.compile(r" *(?:\S*'tgi-deploy [^']*'\S*|(?<=: )tgi-deploy .*|\S+)")
_LABEL: Final = re.compile(r" *\S+(?: \S+)*? {2,}(?=\S)")


def width(stream: IO[str] | None = None) -> int:
    """Return the maximum line width: the terminal's, or COLUMNS; a pipe is not wrapped."""
    named = os.environ.get("COLUMNS", "")
    if named.isdecimal():
        return max(_NARROWEST, int(named))
    try:
        return min(_WIDEST, max(_NARROWEST, os.get_terminal_size((stream or sys.stdout).fileno()).columns))
    except (AttributeError, OSError, ValueError):  # no stdout, no terminal, a stream without a file
        return _UNBOUNDED


def heading(title: str, note: str = "") -> str:
    return click.style(title, bold=True) + (f"  {note}" if note else "")


def wrapped(text: str, *, first: str = "  ", rest: str = "  ") -> str:
    return textwrap.fill(
        text, width(), initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def accelerated() -> str:
    """Return what labels a time or a speed that was measured on the sandbox's clock."""
    context = click.get_current_context(silent=True)
    rehearsed = context is not None and getattr(context.find_root().obj, "sandbox", False)
    return " (accelerated by the sandbox)" if rehearsed else ""


def folded(text: str, stream: IO[str]) -> str:
    """Return `text` as a terminal shows it without cutting words: long lines go on below, under their own column."""
    room = width(stream)
    return "\n".join(part for line in text.split("\n") for part in _parts(line, room))


def _parts(line: str, room: int) -> Iterator[str]:
    plain = click.unstyle(line)
    if len(plain) <= room:
        yield line
        return
    label = _LABEL.match(plain)
    under = label.end() if label and label.end() <= room * 3 // 5 else len(plain) - len(plain.lstrip()) + len(_GAP)
    part = ""
    for atom in _ATOM.findall(line):
        if part.strip() and len(click.unstyle(part + atom)) > room:
            yield part
            part = " " * under + atom.lstrip()
        else:
            part += atom
    yield part


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[int] = frozenset(), indent: str = ""
) -> str:
    """Return capital headings and columns as wide as their widest cell, numbers (`right`) aligned right.

    On a narrower terminal, each row continues on the next line, indented to its second column.
    """
    lines = [tuple(title.upper() for title in header), *(tuple(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    under = _GAP * 2 + " " * min(widths[0], 8)
    bands = list(_bands(widths, width() - len(indent), len(under)))
    texts = ["\n".join(_banded(line, widths, bands, right, indent, under)) for line in lines]
    return "\n".join([click.style(texts[0], bold=True), *texts[1:]]) + "\n"


def with_dates(rows: Sequence[tuple[str, ...]], dates: Sequence[str]) -> tuple[str, Sequence[tuple[str, ...]]]:
    """Return the date of the rows' prices and the rows; if dates differ, an empty one and a column of them."""
    if len(set(dates)) == 1:
        return dates[0], rows
    return "", [(*row, date) for row, date in zip(rows, dates, strict=True)]


def _bands(widths: Sequence[int], room: int, under: int) -> Iterator[range]:
    """Yield the columns that fit on one line, greedily."""
    start, used = 0, 0
    for index, size in enumerate(widths):
        if index > start and used + len(_GAP) + size > room:
            yield range(start, index)
            start, used = index, under
        used += size if index == start else len(_GAP) + size
    yield range(start, len(widths))


def _banded(
    line: Sequence[str], widths: Sequence[int], bands: Sequence[range], right: frozenset[int], indent: str, under: str
) -> Iterator[str]:
    for number, band in enumerate(bands):
        cells = (line[at].rjust(widths[at]) if at in right else line[at].ljust(widths[at]) for at in band)
        text = f"{under if number else ''}{_GAP.join(cells)}".rstrip()
        if text or not number:
            yield f"{indent}{text}"
