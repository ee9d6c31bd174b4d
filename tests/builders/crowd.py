"""Callers of an endpoint: streams that are open while something happens to it, and a client that asks all the time."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_JSON = {"Content-Type": "application/json"}
_PAUSE_S = 0.02
_PATIENCE_S = 120


@dataclass
class Crowd:
    """`whole` streams ended with their last event, `cut` ones did not; `refused` are moments at which a caller was.

    `lasted_s` is how long after the first stream began the last one has ended.
    """

    url: str
    path: str
    body: dict[str, object]
    last: bytes
    whole: int = 0
    cut: list[str] = field(default_factory=list)
    asked: int = 0
    refused: list[tuple[float, str]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    lasted_s: float = 0.0
    _left: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def refused_s(self) -> float:
        """From the first refusal to the last."""
        return self.refused[-1][0] - self.refused[0][0] if self.refused else 0.0

    def open_stream(self) -> threading.Thread:
        """Return the thread that reads it to its end; it has begun to come."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_PATIENCE_S)
        connection.request("POST", self.path, json.dumps(self.body), _JSON)
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        first = reply.readline()
        reader = threading.Thread(target=self._read, args=(connection, reply, first), daemon=True)
        reader.start()
        return reader

    def _read(self, connection: http.client.HTTPConnection, reply: http.client.HTTPResponse, first: bytes) -> None:
        try:
            rest = reply.read()
        except (OSError, http.client.HTTPException) as error:
            self._count(repr(error))
        else:
            self._count("" if self.last in first + rest else "it ended early")
        finally:
            connection.close()

    def _count(self, why: str) -> None:
        with self._lock:
            self.whole += not why
            self.cut += [why] if why else []
            self.lasted_s = time.monotonic() - self.began

    def ask(self) -> None:
        """Ask over one connection as long as that lasts, and over new ones."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_PATIENCE_S)
        while not self._left.wait(_PAUSE_S):
            self.asked += 1
            try:
                connection.request("GET", "/health")
                reply = connection.getresponse()
                reply.read()
                said = "" if reply.status == 200 else str(reply.status)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                said = repr(error)
            if said:
                self.refused.append((time.monotonic(), said))
        connection.close()

    def leave(self) -> None:
        self._left.set()


@contextmanager
def crowd_at(url: str, path: str, body: dict[str, object], *, last: bytes, streams: int) -> Iterator[Crowd]:
    """Have so many streams open as the block begins, and one caller ask until it is over and all of them have ended."""
    crowd = Crowd(url=url, path=path, body=body, last=last)
    readers = [crowd.open_stream() for _ in range(streams)]
    caller = threading.Thread(target=crowd.ask, daemon=True)
    caller.start()
    try:
        yield crowd
    finally:
        for reader in readers:
            reader.join(_PATIENCE_S)
        crowd.leave()
        caller.join(_PATIENCE_S)
