"""Loopback addresses for machines: 127.77.x.y where the system answers on all of 127/8 (Linux), else 127.0.0.1."""

from __future__ import annotations

import socket
import threading
from typing import Final

_SHARED: Final = "127.0.0.1"
_USABLE: Final = 254 * 254
_STRIDE: Final = 251


def can_bind(address: str, port: int = 0) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


class AddressPool:
    """Hands out addresses. `seed` (the server's port) keeps two sandboxes on one host apart."""

    def __init__(self, seed: int) -> None:
        self._next = seed * _STRIDE % _USABLE
        self._lock = threading.Lock()
        self._own = can_bind("127.77.1.1")

    def take(self) -> str:
        if not self._own:
            return _SHARED
        with self._lock:
            index = self._next
            self._next = (index + 1) % _USABLE
        return f"127.77.{index // 254 + 1}.{index % 254 + 1}"
