"""Loopback addresses for machines: 127.77.x.y where the system answers on all of 127/8 (Linux), else 127.0.0.1."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED: Final = "127.0.0.1"
# Nothing can connect to a broadcast address. For a machine whose port another program uses on all addresses, since
# callers would mistake that program for the engine.
UNREACHABLE: Final = "127.255.255.255"
_TRIES: Final = 4
_USABLE: Final = 254 * 254
_STRIDE: Final = 251
# Lower ports are reserved for root.
_FIRST_UNPRIVILEGED: Final = 1024


def can_bind(address: str, port: int = 0) -> bool:
    """Return whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return different ports of loopback that are free now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


class Lease:
    """An address with bound but silent ports, so that no other account can answer there.

    A server of this account still can, with SO_REUSEPORT. Raises OSError for a port in use.
    """

    def __init__(self, address: str, ports: Iterable[int] = ()) -> None:
        self.address = address
        self._sockets: dict[int, socket.socket] = {}
        for port in sorted({port for port in ports if port >= _FIRST_UNPRIVILEGED}):
            self._hold(port)

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(self._sockets)

    def _hold(self, port: int) -> None:
        held = self._sockets[port] = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            held.bind((self.address, port))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        while self._sockets:
            self._sockets.popitem()[1].close()


class AddressPool:
    """Assigns addresses. `seed` (the server's port) separates two sandboxes on one host."""

    def __init__(self, seed: int) -> None:
        self._next = seed * _STRIDE % _USABLE
        self._lock = threading.Lock()
        self._own = can_bind("127.77.1.1")

    def lease(self, ports: Iterable[int]) -> Lease:
        """Return an address with these ports reserved. If all machines share one address, they stay free."""
        if not self._own:
            return Lease(_SHARED)
        ports = tuple(ports)
        for _ in range(_TRIES):
            with suppress(OSError):
                return Lease(self.take(), ports)
        return Lease(UNREACHABLE)

    def take(self) -> str:
        if not self._own:
            return _SHARED
        with self._lock:
            index = self._next
            self._next = (index + 1) % _USABLE
        return f"127.77.{index // 254 + 1}.{index % 254 + 1}"
