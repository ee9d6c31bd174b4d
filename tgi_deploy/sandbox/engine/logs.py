"""The container's log: launcher and router write differently, as text and as JSON."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

Level = Literal["INFO", "WARN", "ERROR"]
_COLOURS: Final = {"INFO": "32", "WARN": "33", "ERROR": "31"}
_LAUNCHER: Final = "text_generation_launcher"
ROUTER: Final = ("text_generation_router", "router/src/server.rs")
BACKEND: Final = ("text_generation_router_v3", "backends/v3/src/lib.rs")


@dataclass(kw_only=True, slots=True)
class Log:
    """`out` takes log records, `err` what Rust's `main` prints when it returns an error."""

    out: TextIO
    err: TextIO
    json_output: bool = False
    launcher_colour: bool = True
    router_colour: bool = True
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def launcher(
        self, message: str, *, level: Level = "INFO", span: str | None = None, rank: int | None = None
    ) -> None:
        """A record of the launcher's own, or of a shard's Python side, which arrives through it."""
        if self.json_output:
            self._json_launcher(message, level, span, rank)
            return
        where = f"{_bold(span, on=self.launcher_colour)}: {_LAUNCHER}" if span else _LAUNCHER
        ending = "" if rank is None else " " + _dim("rank=", on=self.launcher_colour) + str(rank)
        self._text(f"{where}: {message}{ending}", level, colour=self.launcher_colour)

    def router(self, message: str, *, level: Level = "INFO", source: tuple[str, str] = ROUTER, line: int = 1) -> None:
        target, filename = source
        if self.json_output:
            record = {"timestamp": self._stamp(), "level": level, "message": message, "target": target}
            self._write(json.dumps({**record, "filename": filename, "line_number": line}))
            return
        self._text(f"{target}: {filename}:{line}: {message}", level, colour=self.router_colour)

    def final(self, text: str) -> None:
        """What goes to stderr, bare, as the process ends."""
        with self._lock:
            self.err.write(text + "\n")
            self.err.flush()

    def _json_launcher(self, message: str, level: Level, span: str | None, rank: int | None) -> None:
        record: dict[str, object] = {"timestamp": self._stamp(), "level": level}
        record["fields"] = {"message": message} if rank is None else {"message": message, "rank": rank}
        record["target"] = _LAUNCHER
        if span is not None:
            name = {"name": span} if rank is None else {"rank": rank, "name": span}
            record |= {"span": name, "spans": [name]}
        self._write(json.dumps(record))

    def _text(self, body: str, level: Level, *, colour: bool) -> None:
        shown = f"\x1b[{_COLOURS[level]}m{level:>5}\x1b[0m" if colour else f"{level:>5}"
        self._write(f"{_dim(self._stamp(), on=colour)} {shown} {body}")

    def _stamp(self) -> str:
        return self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _write(self, line: str) -> None:
        with self._lock:
            self.out.write(line + "\n")
            self.out.flush()


def _dim(text: str, *, on: bool) -> str:
    return f"\x1b[2m{text}\x1b[0m" if on else text


def _bold(text: str | None, *, on: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if on else str(text)
