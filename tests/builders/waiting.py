"""Waits for what other processes do: the one poll loop of the tests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


def eventually(
    look: Callable[[], _T], what: str | Callable[[], str] = "it", *, within_s: float = 120.0, pause_s: float = 0.05
) -> _T:
    """Poll `look` until it returns a true value, and return that. After `within_s`, fail and name `what` is missing."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within_s:.0f} s for {what if isinstance(what, str) else what()}")
        time.sleep(pause_s)
    return found
