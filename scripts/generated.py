"""Helpers of scripts that generate a page, or a table in one, from the code."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


def with_lines(page: str, lines: Iterable[str], *, begin: str, end: str) -> str:
    """Return the page with these lines between two markers."""
    before, _, rest = page.partition(begin)
    return "".join((before, begin, *(f"{line}\n" for line in lines), end, rest.partition(end)[2]))


def write_or_check(
    description: str | None, files: Callable[[], Mapping[Path, str]], argv: Sequence[str] | None = None
) -> int:
    """Write each file; with `--check`, write nothing and return 1 if one is out of date."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check = parser.parse_args(argv).check
    outdated = {
        path: text for path, text in files().items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    if check:
        return int(bool(outdated))
    for path, text in outdated.items():
        path.write_text(text, encoding="utf-8")
    return 0
