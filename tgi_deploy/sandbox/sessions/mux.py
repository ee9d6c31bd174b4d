"""Several connections in one stream of bytes, by version 1 of smux (https://github.com/xtaci/smux)."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.sessions.channel import MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_FRAME: Final = struct.Struct("<BBHI")  # version, command, length, stream
_VERSION: Final = 1
_OPEN, _FINISH, _PUSH = 0, 1, 2
_PART_BYTES: Final = MOST_BYTES - _FRAME.size


class Mux:
    """`send` passes bytes to the other end. `connect` returns the socket for a stream that the other end opens."""

    def __init__(self, send: Callable[[bytes], None], connect: Callable[[], socket.socket]) -> None:
        self._send = send
        self._connect = connect
        self._buffer = b""
        self._streams: dict[int, socket.socket] = {}
        self._last = 1

    def open(self, link: socket.socket) -> None:
        """Open a stream for an accepted connection."""
        self._last += 2
        self._frame(_OPEN, self._last)
        self._add(self._last, link)

    def feed(self, data: bytes) -> None:
        """Process bytes from the other end. Raises ValueError for another version."""
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            version, command, length, stream = _FRAME.unpack_from(self._buffer)
            if version != _VERSION:
                raise ValueError(f"smux version {version}")
            end = _FRAME.size + length
            if len(self._buffer) < end:
                return
            payload, self._buffer = self._buffer[_FRAME.size : end], self._buffer[end:]
            self._act(command, stream, payload)

    def close(self) -> None:
        for link in self._streams.values():
            link.close()

    def _act(self, command: int, stream: int, payload: bytes) -> None:
        if command == _OPEN:
            try:
                self._add(stream, self._connect())
            except OSError:
                self._frame(_FINISH, stream)
        link = self._streams.get(stream)
        if link is None:
            return
        with suppress(OSError):
            if command == _PUSH:
                link.sendall(payload)
            elif command == _FINISH:
                link.shutdown(socket.SHUT_WR)

    def _add(self, stream: int, link: socket.socket) -> None:
        self._streams[stream] = link
        threading.Thread(target=self._read, args=(stream, link), name=f"stream {stream}", daemon=True).start()

    def _read(self, stream: int, link: socket.socket) -> None:
        with suppress(OSError):
            while data := link.recv(_PART_BYTES):
                self._frame(_PUSH, stream, data)
        self._frame(_FINISH, stream)

    def _frame(self, command: int, stream: int, payload: bytes = b"") -> None:
        self._send(_FRAME.pack(_VERSION, command, len(payload), stream) + payload)
