"""Formats text for all views: headings, tables, wrapped paragraphs.

`rich.table` would take 21 ms to import; click takes 35, and all of `plan` may take 120. So rich is imported only for
the live line in progress.py.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from typing import IO, TYPE_CHECKING, Final

import click

from tgi_deploy.cli.frame import Invocation
from tgi_deploy.text import dated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tgi_deploy.api import Row
    from tgi_deploy.values.results import DeploymentCostData

_NARROWEST: Final = 40
_WIDEST: Final = 200
_UNBOUNDED: Final = 10_000
_GAP: Final = "  "
# A command, in quotes or at the end after a colon or an indent, stays on one line, so that it can be pasted.
_ATOM: Final = re.compile(r" *(?:\S*'tgi-deploy [^']*'\S*|(?<=: |  )tgi-deploy .*|\S+)")
_COMMAND: Final = re.compile(r"'tgi-deploy [^']*'|(?<=: )tgi-deploy .*")
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
    """Return the text in lines of the terminal's width; commands to paste are not broken."""
    kept = _COMMAND.sub(lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.fill(
        kept, width(), initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return lines.replace("\0", " ")


def price_dates(items: Iterable[tuple[str, bool]]) -> tuple[str, list[str]]:
    """Return when the prices of a table's rows were collected: a note for its heading, and a last cell for each row.

    `items` are dates, and whether the price is an estimate. If all are the same, the cells are empty.
    """
    found = list(items)
    if len(set(found)) > 1:
        return "price dates on the right", [date for date, _ in found]
    return "".join(dated(date, estimated=estimated) for date, estimated in found[:1]), [""] * len(found)


def prices_line(rows: Iterable[Row | DeploymentCostData]) -> str:
    """Return the line below a table with the dates of its hourly prices; empty without any."""
    dates = sorted({row.price_dated for row in rows if row.usd_per_hour} - {""})
    return f"prices {', '.join(dates)}\n" if dates else ""


def accelerated() -> str:
    """Return the label for times and speeds that were measured on the sandbox's clock; empty for real ones."""
    context = click.get_current_context(silent=True)
    invocation = context and context.find_root().obj
    simulated = isinstance(invocation, Invocation) and "sandbox" in invocation.given
    return " (accelerated by the sandbox)" if simulated else ""


def folded(text: str, stream: IO[str]) -> str:
    """Return `text` for a terminal: long lines are wrapped between words, and continue below their own column."""
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
    """Return a table with capital headings and columns as wide as their widest cell; `right` are aligned right.

    On a narrower terminal, each row continues on the next line, indented to its second column. A last column without
    any text is left out.
    """
    lines = [tuple(title.upper() for title in header), *(tuple(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    if not widths[-1]:
        widths.pop()
    under = _GAP * 2 + " " * min(widths[0], 8)
    bands = list(_bands(widths, width() - len(indent), len(under)))
    texts = ["\n".join(_banded(line, widths, bands, right, indent, under)) for line in lines]
    return "\n".join([click.style(texts[0], bold=True), *texts[1:]]) + "\n"


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
