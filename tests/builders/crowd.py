"""Callers of an endpoint: streams that stay open during a change, and a client that sends requests continuously."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import closing, contextmanager
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
    """`whole` streams ended with their last event, `cut` ones did not; `refused` are the times of refused requests.
    `renewed`: each caller that has read a stream to its end requests the next one.
    """

    url: str
    path: str
    body: dict[str, object]
    last: bytes
    renewed: bool = False
    whole: int = 0
    cut: list[str] = field(default_factory=list)
    asked: int = 0
    refused: list[tuple[float, str]] = field(default_factory=list)
    _left: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def netloc(self) -> str:
        """The host and port of the next connection."""
        return urlsplit(self.url).netloc

    @property
    def refused_s(self) -> float:
        """Return the time from the first refused request to the last."""
        return self.refused[-1][0] - self.refused[0][0] if self.refused else 0.0

    def read_streams(self, begun: threading.Event) -> None:
        """Read streams; set the event once the first one has started."""
        self._read_stream(begun)
        while self.renewed and not self._left.wait(_PAUSE_S):
            self._read_stream(begun)

    def _read_stream(self, begun: threading.Event) -> None:
        connection = http.client.HTTPConnection(self.netloc, timeout=_PATIENCE_S)
        with closing(connection):
            try:
                connection.request("POST", self.path, json.dumps(self.body), _JSON)
                reply = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self._refuse(repr(error))
                return
            if reply.status != 200:
                self._refuse(str(reply.status))
                return
            begun.set()
            try:
                read = reply.read()
            except (OSError, http.client.HTTPException) as error:
                self._count(repr(error))
            else:
                self._count("" if self.last in read else "it ended early")

    def _refuse(self, result: str) -> None:
        with self._lock:
            self.refused.append((time.monotonic(), result))

    def _count(self, why: str) -> None:
        with self._lock:
            self.whole += not why
            self.cut += [why] if why else []

    def ask(self) -> None:
        """Send requests over one connection while it lasts, and over new ones."""
        connection = http.client.HTTPConnection(self.netloc, timeout=_PATIENCE_S)
        while not self._left.wait(_PAUSE_S):
            self.asked += 1
            try:
                connection.request("GET", "/health")
                reply = connection.getresponse()
                reply.read()
                result = "" if reply.status == 200 else str(reply.status)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                result = repr(error)
            if result:
                self._refuse(result)
        connection.close()

    def leave(self) -> None:
        self._left.set()


@contextmanager
def crowd_at(
    url: str, path: str, body: dict[str, object], *, last: bytes, streams: int, renewed: bool = False
) -> Iterator[Crowd]:
    """Open this many streams before the block, and send requests from one more caller until all have finished."""
    crowd = Crowd(url=url, path=path, body=body, last=last, renewed=renewed)
    asking = threading.Thread(target=crowd.ask, daemon=True)
    asking.start()
    with streaming(crowd, streams):
        yield crowd
    crowd.leave()
    asking.join(_PATIENCE_S)


@contextmanager
def streaming(crowd: Crowd, streams: int, *, apart_s: float = 0.0) -> Iterator[None]:
    """Open this many streams before the block, so far apart, and wait until all have finished after it."""
    begun = [threading.Event() for _ in range(streams)]
    callers = [threading.Thread(target=crowd.read_streams, args=(event,), daemon=True) for event in begun]
    for caller in callers:
        caller.start()
        time.sleep(apart_s)
    try:
        assert all(event.wait(_PATIENCE_S) for event in begun), crowd.refused
        yield
    finally:
        if crowd.renewed:
            crowd.leave()
        for caller in callers:
            caller.join(_PATIENCE_S)
