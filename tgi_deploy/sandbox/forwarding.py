"""Forwards connections: of an Elastic IP address to its machine, and of a machine's TLS proxy to its engine."""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_CHUNK_BYTES: Final = 65_536


async def forward(address: str, port: int, caller: StreamReader, answer: StreamWriter) -> None:
    """Pass bytes in both directions. If nothing answers there, close the caller's connection."""
    try:
        server, request = await asyncio.open_connection(address, port)
    except OSError:
        answer.transport.abort()
        return
    try:
        await asyncio.gather(_copy(caller, request), _copy(server, answer))
    finally:
        request.close()
        answer.close()


async def _copy(source: StreamReader, sink: StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
    with suppress(OSError):
        sink.write_eof() if sink.can_write_eof() else sink.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Forwarding:
    """Forwards a port of an Elastic IP address to the same port of a machine."""

    address: str
    port: int
    machine: str


class Routes:
    """The forwardings in force. Ending one cuts its connections, as moving an Elastic IP address is expected to do."""

    def __init__(self) -> None:
        self._open: dict[Forwarding, tuple[asyncio.Server, set[asyncio.Task[None]]]] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="routes", daemon=True).start()

    def sync(self, wanted: AbstractSet[Forwarding]) -> None:
        """Open what is wanted and close the rest. A port in use is tried again the next time."""
        if wanted != self._open.keys():
            asyncio.run_coroutine_threadsafe(self._change(wanted), self._loop).result()

    async def _change(self, wanted: AbstractSet[Forwarding]) -> None:
        for old in self._open.keys() - wanted:
            server, connections = self._open.pop(old)
            server.close()
            for connection in connections:
                connection.cancel()
        for new in wanted - self._open.keys():
            with suppress(OSError):
                self._open[new] = await _serve(new)


async def _serve(new: Forwarding) -> tuple[asyncio.Server, set[asyncio.Task[None]]]:
    """Listen, and return the server and its connections. Raises OSError."""
    connections = set[asyncio.Task[None]]()

    def connect(caller: StreamReader, answer: StreamWriter) -> None:
        connection = asyncio.create_task(forward(new.machine, new.port, caller, answer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_server(connect, new.address, new.port, reuse_port=True, backlog=128)
    return server, connections
