"""Follows a log of which only the last part is ever visible. Pure.

A console keeps some 64 KiB: each look shows a window of lines that has grown, or has moved on. Neighboring windows
overlap, and the overlap shows what is new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LOST: Final = "… lines were lost here: the console did not keep them until they were looked at"
_ANCHOR_LINES: Final = 50


@dataclass(slots=True)
class LogWindow:
    """Remembers the last window. The unfinished last line of a text waits until its end has come."""

    _lines: tuple[str, ...] = field(default=())

    def advance(self, text: str) -> tuple[str, ...]:
        """The whole lines that `text` has beyond all that was seen; LOST stands where there is a gap."""
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
    """Where the lines repeat themselves, the latest place that also fits: nothing is shown twice."""
    last = len(lines) - len(anchor)
    return next((at for at in range(last, -1, -1) if tuple(lines[at : at + len(anchor)]) == tuple(anchor)), None)
