"""A machine's network interface, with limited bandwidth and counters for the guest's programs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_TICK_S: Final = 0.05
_HEAD: Final = """\
Inter-|   Receive                                          |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
"""
_PACKET_BYTES: Final = 1500


class Network:
    """`counters` is the guest's `/proc/net/dev`."""

    def __init__(self, counters: Path) -> None:
        self._counters = counters
        self._received_bytes = 0
        counters.parent.mkdir(parents=True, exist_ok=True)
        self._show()

    def receive(self, size_bytes: float, *, takes_s: float) -> None:
        """Receive this much at a constant rate, and return when done."""
        began, before = time.monotonic(), self._received_bytes
        while (spent_s := time.monotonic() - began) < takes_s:
            self._received_bytes = before + int(size_bytes * spent_s / takes_s)
            self._show()
            time.sleep(min(_TICK_S, takes_s - spent_s))
        self._received_bytes = before + int(size_bytes)
        self._show()

    def _show(self) -> None:
        """Write the counters atomically."""
        count = self._received_bytes
        line = f"  eth0: {count} {count // _PACKET_BYTES} 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        new = self._counters.with_name(f"{self._counters.name}.new")
        new.write_text(f"{_HEAD}    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n{line}", encoding="utf-8")
        new.replace(self._counters)
