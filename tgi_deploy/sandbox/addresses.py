"""Loopback addresses for machines: 127.77.x.y where the system answers on all of 127/8 (Linux), else 127.0.0.1."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED: Final = "127.0.0.1"
_USABLE: Final = 254 * 254
_STRIDE: Final = 251
# Nobody but root can listen below.
_FIRST_UNPRIVILEGED: Final = 1024


def can_bind(address: str, port: int = 0) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


class HeldPorts:
    """Ports of a machine's own address, bound and silent, so that no other account can answer in the engine's place.

    A server of this account can still listen there, with SO_REUSEPORT. Raises OSError for a port that is taken.
    """

    def __init__(self, address: str, ports: Iterable[int]) -> None:
        self._sockets: dict[int, socket.socket] = {}
        for port in () if address == _SHARED else sorted(set(ports)):
            if port >= _FIRST_UNPRIVILEGED:
                self._hold(address, port)

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(self._sockets)

    def _hold(self, address: str, port: int) -> None:
        held = self._sockets[port] = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            held.bind((address, port))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        while self._sockets:
            self._sockets.popitem()[1].close()


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
