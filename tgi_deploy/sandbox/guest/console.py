"""A machine's devices: the serial console, and a network interface with limited bandwidth and counters."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.sandbox.guest.layout import Layout


class Console:
    """Appends to the console file. Lines of programs carry the uptime and the program, as journald forwards them."""

    def __init__(self, layout: Layout, *, speed: float) -> None:
        self._file = layout.console.open("a", encoding="utf-8", errors="replace")
        self._lock = threading.Lock()
        self._booted = time.monotonic()
        self._speed = speed

    def uptime_s(self) -> float:
        return (time.monotonic() - self._booted) * self._speed

    def raw(self, text: str) -> None:
        with self._lock:
            self._file.write(text)
            self._file.flush()

    def kernel(self, text: str) -> None:
        self.raw(f"[{self.uptime_s():12.6f}] {text}\n")

    def program(self, name: str, pid: int, line: str) -> None:
        self.kernel(f"{name}[{pid}]: {line}")


def serve_device(console: Console, device: Path) -> None:
    """Make `device` a pipe to the console, for guests that write to /dev/console."""
    if not device.exists():
        os.mkfifo(device)
    # Open for reading and writing, so that the pipe survives a writer that closes it.
    descriptor = os.open(device, os.O_RDWR)

    def copy() -> None:
        while True:
            text = os.read(descriptor, 65536)
            console.raw(text.decode("utf-8", "replace"))

    threading.Thread(target=copy, name=f"console {device.name}", daemon=True).start()


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
