"""Follows a log of which only the last part is visible. Pure.

A console keeps about 64 KiB: each poll shows a window that has grown or moved. The overlap of consecutive windows shows
what is new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LOST: Final = "… lines were lost here: the console dropped them before they were read"
_ANCHOR_LINES: Final = 50


@dataclass(slots=True)
class LogWindow:
    """Remembers the last window. An incomplete last line is held back until its end arrives."""

    _lines: tuple[str, ...] = field(default=())

    def advance(self, text: str) -> tuple[str, ...]:
        """Return the new complete lines of `text`, with LOST in place of a gap."""
        lines = tuple(text[: text.rfind("\n") + 1].splitlines())
        new = _beyond(self._lines, lines)
        if lines:
            self._lines = lines
        return new


def _beyond(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    if tuple(now[: len(before)]) == tuple(before) or not now:
        return tuple(now[len(before) :])
    for size in range(min(_ANCHOR_LINES, len(before)), 0, -1):
        anchor = tuple(before[-size:])
        at = _last_match(anchor, now) if any(line.strip() for line in anchor) else None
        if at is not None:
            return tuple(now[at + size :])
    return (LOST, *now)


def _last_match(anchor: Sequence[str], lines: Sequence[str]) -> int | None:
    """Return the latest matching position, so that repeated lines are not shown twice."""
    last = len(lines) - len(anchor)
    return next((at for at in range(last, -1, -1) if tuple(lines[at : at + len(anchor)]) == tuple(anchor)), None)
