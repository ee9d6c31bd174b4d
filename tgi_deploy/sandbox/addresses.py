"""Loopback addresses for machines: 127.77.x.y where the system answers on all of 127/8 (Linux), else 127.0.0.1.

Connections to an Elastic IP address go on to the machine that has it, for as long as it has it.
"""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED: Final = "127.0.0.1"
# Nothing can connect to a broadcast address. For a machine whose port is used on all addresses by another program,
# which callers would mistake for the engine.
UNREACHABLE: Final = "127.255.255.255"
_USABLE: Final = 254 * 254
# Lower ports are reserved for root.
_FIRST_UNPRIVILEGED: Final = 1024


def can_bind(address: str, port: int = 0) -> bool:
    """Return whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return distinct loopback ports that are free now."""
    with ExitStack() as held:
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


class Lease:
    """An address with bound but silent ports, so that no other account can answer there.

    A server of this account still can, with SO_REUSEPORT. Raises OSError for a port in use.
    """

    def __init__(self, address: str, ports: Iterable[int] = ()) -> None:
        self.address = address
        self.ports = tuple(sorted({port for port in ports if port >= _FIRST_UNPRIVILEGED}))
        with ExitStack() as held:
            for port in self.ports:
                silent = held.enter_context(socket.socket())
                silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                silent.bind((address, port))
            self._held = held.pop_all()

    def close(self) -> None:
        self._held.close()


class AddressPool:
    """Assigns addresses. `seed` (the server's port) separates two sandboxes on one host."""

    def __init__(self, seed: int) -> None:
        self._next = seed * 251 % _USABLE
        self._lock = threading.Lock()
        self._own = can_bind("127.77.1.1")

    def lease(self, ports: Iterable[int]) -> Lease:
        """Return an address with these ports reserved. If all machines share one address, they stay free."""
        if not self._own:
            return Lease(_SHARED)
        ports = tuple(ports)
        for _ in range(4):
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


_CHUNK_BYTES: Final = 65_536


class Forwarding(Frozen, frozen=True, kw_only=True):
    """Forwards a port of an Elastic IP address to the same port of a machine."""

    address: str
    port: int
    machine: str


class Route:
    """An active forwarding. Closing it cuts its connections, as moving an Elastic IP address is expected to do."""

    def __init__(self, forwarding: Forwarding) -> None:
        """Listen. Raises OSError."""
        self._machine = (forwarding.machine, forwarding.port)
        self._sockets = set[socket.socket]()
        self._listener = socket.create_server((forwarding.address, forwarding.port), reuse_port=True, backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for item in (self._listener, *tuple(self._sockets)):
            with suppress(OSError):  # the other end may have closed it
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(caller,), daemon=True).start()

    def _connect(self, caller: socket.socket) -> None:
        """Pass bytes in both directions. If the machine refuses, close the caller's connection."""
        self._sockets.add(caller)
        with caller, suppress(OSError):
            machine = socket.create_connection(self._machine, timeout=5.0)
            machine.settimeout(None)
            self._sockets.add(machine)
            with machine:
                back = threading.Thread(target=_pass_on, args=(machine, caller), daemon=True)
                back.start()
                _pass_on(caller, machine)
                back.join()
            self._sockets.discard(machine)
        self._sockets.discard(caller)


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class Routes:
    """The open routes."""

    def __init__(self) -> None:
        self._open: dict[Forwarding, Route] = {}

    def sync(self, wanted: set[Forwarding]) -> None:
        """Open what is wanted and close the rest. A port in use is tried again the next time."""
        for forwarding in self._open.keys() - wanted:
            self._open.pop(forwarding).close()
        for forwarding in wanted - self._open.keys():
            with suppress(OSError):
                self._open[forwarding] = Route(forwarding)
