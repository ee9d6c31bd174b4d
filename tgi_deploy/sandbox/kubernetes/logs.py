"""The lines that a container has written, as the API server reads them from a node."""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_LINES: Final = 20_000
_WAIT_S: Final = 1.0


class Log:
    """A container's output. Lines beyond the newest are lost, as after a rotation."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, float, str]] = deque(maxlen=_MOST_LINES)
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    def add(self, text: str) -> None:
        with self._changed:
            self._lines.append((self._count, time.time(), text))
            self._count += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Mark the log as complete, which ends `follow`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def read(self, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield lines as a PodLogOptions asks for them; with `follow`, until the container has ended."""
        tail = query.get("tailLines")
        at = 0 if tail is None else max(0, self._count - int(tail))
        since = time.time() - float(query["sinceSeconds"]) if "sinceSeconds" in query else 0.0
        stamped = query.get("timestamps") == "true"
        while True:
            with self._changed:
                found = [line for line in self._lines if line[0] >= at]
                if not found and not self._closed and query.get("follow") == "true":
                    self._changed.wait(_WAIT_S)
            for number, when, text in found:
                at = number + 1
                if when >= since:
                    stamp = f"{datetime.fromtimestamp(when, UTC):%FT%T.%fZ} " if stamped else ""
                    yield f"{stamp}{text}\n".encode()
            if not found and (self._closed or query.get("follow") != "true"):
                return
