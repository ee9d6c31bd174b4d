"""The container's log: launcher and router write differently, as text and as JSON (tests/cases/engine/runs)."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.sandbox.engine.bodies import Parameters

Level = Literal["INFO", "WARN", "ERROR"]
_COLOURS: Final = {"INFO": "32", "WARN": "33", "ERROR": "31"}
_DIM, _BOLD, _ITALIC = "2", "1", "3"
_LAUNCHER: Final = "text_generation_launcher"
GPU: Final = f"{_LAUNCHER}::gpu"
ROUTER: Final = ("text_generation_router::server", "router/src/server.rs")
BACKEND: Final = ("text_generation_router_v3", "backends/v3/src/lib.rs")
MAIN: Final = ("text_generation_router", "backends/v3/src/main.rs")
CLIENT: Final = ("text_generation_router_v3::client", "backends/v3/src/client/mod.rs")
_INFER: Final = ("text_generation_router::infer", "router/src/infer/mod.rs")
_SUCCESS_LINES: Final = {"generate_stream": 637}  # others: 432
_TIMES: Final = ("total_time", "validation_time", "queue_time", "inference_time", "time_per_token")


@dataclass(kw_only=True, slots=True)
class Log:
    """Writes log records to `out`, and to `err` what the launcher's `main` prints on an error."""

    out: TextIO
    err: TextIO
    json_output: bool = False
    launcher_colour: bool = True
    router_colour: bool = True
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def launcher(
        self,
        message: str,
        *,
        level: Level = "INFO",
        span: str = "",
        rank: int | None = None,
        target: str = _LAUNCHER,
    ) -> None:
        """Write a record of the launcher, or of a shard's Python process, which arrives through it."""
        if self.json_output:
            name = {"name": span} if rank is None else {"rank": rank, "name": span}
            within = {"span": name, "spans": [name]} if span else {}
            self._json(level, {"fields": {"message": message}, "target": target, **within})
            return
        paint = _painter(on=self.launcher_colour)
        where = f"{paint(_BOLD, span)}: " if span else ""
        dim, end = ("\x1b[2m", "\x1b[0m") if self.launcher_colour else ("", "")
        ending = "" if rank is None else f" {dim}{paint(_ITALIC, 'rank')}{paint(_DIM, '=')}{rank}{end}"
        self._text(f"{where}{paint(_DIM, target)}{paint(_DIM, ':')} {message}{ending}", level, paint)

    def router(
        self,
        message: str,
        *,
        level: Level = "INFO",
        source: tuple[str, str] = ROUTER,
        line: int = 1,
        spans: Sequence[tuple[str, Mapping[str, str]]] = (),
    ) -> None:
        target, filename = source
        if self.json_output:
            every = [{**fields, "name": name} for name, fields in spans]
            within = {"span": every[-1], "spans": every} if every else {}
            place: dict[str, object] = {"target": target, "filename": filename, "line_number": line}
            self._json(level, {"message": message, **place, **within})
            return
        paint = _painter(on=self.router_colour)
        outer = "".join(f"{_span(name, fields, paint)}{paint(_DIM, ':')}" for name, fields in spans)
        where = f"{outer}{' ' if spans else ''}{paint(_DIM, target)}{paint(_DIM, ':')}"
        at = f"{paint(_DIM, filename)}{paint(_DIM, ':')}{paint(_DIM, f'{line}:')}"
        self._text(f"{where} {at} {message}", level, paint)

    def answered(
        self, within: str, route: str, parameters: Parameters, times: Sequence[float], seed: int | None
    ) -> None:
        """Write the line of an answered request."""
        shown = {name: f'"{_duration(seconds)}"' for name, seconds in zip(_TIMES, times, strict=True)}
        fields = {"parameters": _debug(parameters, route), **shown, "seed": f'"{_option(seed)}"'}
        outer: list[tuple[str, Mapping[str, str]]] = [(within, {})] if within else []
        self.router("Success", line=_SUCCESS_LINES.get(route, 432), spans=[*outer, (route, fields)])

    def refused(self, within: str, route: str, parameters: Parameters, reason: str) -> None:
        outer: list[tuple[str, Mapping[str, str]]] = [(within, {})] if within else []
        spans = [*outer, (route, {"parameters": _debug(parameters, route)}), ("generate", {}), ("generate_stream", {})]
        # As in users' reports: github.com/bionic-gpt/bionic-gpt/issues/154
        self.router(reason, level="ERROR", source=_INFER, line=120, spans=spans)

    def final(self, text: str) -> None:
        """Write a plain line to stderr, as the launcher does when it exits."""
        self.write(text, self.err)

    def write(self, line: str, to: TextIO | None = None) -> None:
        """Write a line unchanged, also for unformatted output of the router that the launcher passes on."""
        out = to or self.out
        with self._lock:
            out.write(line + "\n")
            out.flush()

    def _json(self, level: Level, members: Mapping[str, object]) -> None:
        record = {"timestamp": self._stamp(), "level": level, **members}
        self.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")))

    def _text(self, body: str, level: Level, paint: Callable[[str, str], str]) -> None:
        self.write(f"{paint(_DIM, self._stamp())} {paint(_COLOURS[level], f'{level:>5}')} {body}")

    def _stamp(self) -> str:
        return self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _painter(*, on: bool) -> Callable[[str, str], str]:
    return (lambda code, text: f"\x1b[{code}m{text}\x1b[0m") if on else (lambda _code, text: text)


def _span(name: str, fields: Mapping[str, str], paint: Callable[[str, str], str]) -> str:
    if not fields:
        return paint(_BOLD, name)
    inside = " ".join(f"{paint(_ITALIC, key)}{paint(_DIM, '=')}{value}" for key, value in fields.items())
    return f"{paint(_BOLD, name)}{paint(_BOLD, '{')}{inside}{paint(_BOLD, '}')}"


def _debug(parameters: Parameters, route: str) -> str:
    """Format the struct like Rust. The OpenAI-style routes record it as a string: TGI issue 3203."""
    members = ", ".join(f"{name}: {_rust(name, getattr(parameters, name))}" for name in parameters.__struct_fields__)
    shown = f"GenerateParameters {{ {members} }}"
    return shown if route.startswith("generate") else json.dumps(shown, ensure_ascii=False)


def _rust(name: str, value: object) -> str:
    if isinstance(value, tuple) or (isinstance(value, bool) and name != "return_full_text"):
        return json.dumps(value, ensure_ascii=False)
    return "Some(Json(…))" if name == "grammar" and value is not None else _option(value)


def _option(value: object) -> str:
    if value is None:
        return "None"
    return f"Some({json.dumps(value, ensure_ascii=False) if isinstance(value, bool | str) else value})"


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.9g}{unit}"
    return f"{seconds * 1e9:.0f}ns"
