"""Elastic IP addresses on loopback: connections to one go on to the machine that has it, for as long as it has it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHUNK_BYTES: Final = 65_536
_CONNECT_S: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """From a port of an Elastic IP address to the same port of a machine."""

    address: str
    port: int
    machine: str


@dataclass(frozen=True, slots=True)
class Route:
    """An open way. Closing it cuts its connections, as moving an Elastic IP address is expected to do."""

    way: Way
    _listener: socket.socket
    _sockets: set[socket.socket] = field(default_factory=set)

    @classmethod
    def opened(cls, way: Way) -> Route:
        """Listen, and return the route. Raises OSError."""
        listener = socket.create_server((way.address, way.port), reuse_port=True, backlog=128)
        route = cls(way, listener)
        threading.Thread(target=route._accept, daemon=True).start()
        return route

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
        """Pass bytes on both ways. A machine that refuses ends the caller's connection."""
        self._sockets.add(caller)
        with caller, suppress(OSError):
            machine = socket.create_connection((self.way.machine, self.way.port), timeout=_CONNECT_S)
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
        self._open: dict[tuple[str, int], Route] = {}

    def sync(self, wanted: Mapping[tuple[str, int], Way]) -> None:
        """Open what is wanted and close the rest. A port in use is tried again the next time."""
        for key, route in list(self._open.items()):
            if wanted.get(key) != route.way:
                self._open.pop(key).close()
        for key in wanted.keys() - self._open.keys():
            with suppress(OSError):
                self._open[key] = Route.opened(wanted[key])
