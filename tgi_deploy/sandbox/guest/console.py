"""The serial console and the journal of a machine."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.sandbox.guest.layout import Layout


class Console:
    """Appends to the console file. Lines of programs carry the uptime and the program, as journald forwards them."""

    def __init__(self, layout: Layout, *, speed: float) -> None:
        self._path = layout.console
        self._journal = layout.journal
        self._lock = threading.Lock()
        self._booted = time.monotonic()
        self._speed = speed

    def uptime_s(self) -> float:
        return (time.monotonic() - self._booted) * self._speed

    def raw(self, text: str) -> None:
        with self._lock, self._path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)

    def kernel(self, text: str) -> None:
        self.raw(f"[{self.uptime_s():12.6f}] {text}\n")

    def program(self, name: str, pid: int, line: str) -> None:
        self.kernel(f"{name}[{pid}]: {line}")

    def journal(self, unit: str, line: str) -> None:
        with self._lock, (self._journal / f"{unit}.log").open("a", encoding="utf-8", errors="replace") as file:
            file.write(line + "\n")

    def journal_of(self, unit: str) -> str:
        path = self._journal / f"{unit}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


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
