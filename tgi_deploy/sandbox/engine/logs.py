"""The container's log: launcher and router write differently, as text and as JSON (tests/cases/engine/runs)."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.sandbox.engine.bodies import Body
    from tgi_deploy.sandbox.engine.generator import Query

Level = Literal["INFO", "WARN", "ERROR"]
_ESCAPE: Final = re.compile(r"\x1b\[\d+m")
_COLORS: Final = {"INFO": "32", "WARN": "33", "ERROR": "31"}
_DIM, _BOLD, _ITALIC = "2", "1", "3"
_LAUNCHER: Final = "text_generation_launcher"
GPU: Final = f"{_LAUNCHER}::gpu"
ROUTER: Final = ("text_generation_router::server", "router/src/server.rs")
BACKEND: Final = ("text_generation_router_v3", "backends/v3/src/lib.rs")
MAIN: Final = ("text_generation_router", "backends/v3/src/main.rs")
CLIENT: Final = ("text_generation_router_v3::client", "backends/v3/src/client/mod.rs")
_INFER: Final = ("text_generation_router::infer", "router/src/infer/mod.rs")
_SUCCESS_LINES: Final = {"generate_stream": 637}  # others: 432
TIMES: Final = ("total_time", "validation_time", "queue_time", "inference_time", "time_per_token")


class Log(msgspec.Struct, kw_only=True):
    """Writes the records of the launcher and the router to `out`."""

    out: TextIO
    json_output: bool = False
    launcher_color: bool = True
    router_color: bool = True
    now: Callable[[], datetime] = msgspec.field(default=lambda: datetime.now(UTC))
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def launcher(
        self, message: str, *, level: Level = "INFO", span: str = "", rank: int | None = None, target: str = _LAUNCHER
    ) -> None:
        """Write a record of the launcher, or of a shard's Python process, which arrives through it."""
        name = {"name": span} if rank is None else {"rank": rank, "name": span}
        within = {"span": name, "spans": [name]} if span else {}
        where = f"{_paint(_BOLD, span)}: " if span else ""
        ending = "" if rank is None else f" \x1b[2m{_paint(_ITALIC, 'rank')}{_paint(_DIM, '=')}{rank}\x1b[0m"
        text = f"{where}{_paint(_DIM, target)}{_paint(_DIM, ':')} {message}{ending}"
        members = {"fields": {"message": message}, "target": target, **within}
        self._record(level, text, members, color=self.launcher_color)

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
        every = [{**fields, "name": name} for name, fields in spans]
        within = {"span": every[-1], "spans": every} if every else {}
        outer = "".join(f"{_span(name, fields)}{_paint(_DIM, ':')}" for name, fields in spans)
        where = f"{outer}{' ' if spans else ''}{_paint(_DIM, target)}{_paint(_DIM, ':')}"
        at = f"{_paint(_DIM, filename)}{_paint(_DIM, ':')}{_paint(_DIM, f'{line}:')}"
        members = {"message": message, "target": target, "filename": filename, "line_number": line, **within}
        self._record(level, f"{where} {at} {message}", members, color=self.router_color)

    def answered(self, query: Query, times: Sequence[float], seed: int | None) -> None:
        """Write the line of an answered request."""
        shown = {name: f'"{_duration(seconds)}"' for name, seconds in zip(TIMES, times, strict=True)}
        *outer, (route, parameters) = _spans(query)
        fields = {**parameters, **shown, "seed": f'"{_option(seed)}"'}
        self.router("Success", line=_SUCCESS_LINES.get(route, 432), spans=[*outer, (route, fields)])

    def refused(self, query: Query, reason: str) -> None:
        # As in users' reports: github.com/bionic-gpt/bionic-gpt/issues/154
        spans = [*_spans(query), ("generate", {}), ("generate_stream", {})]
        self.router(reason, level="ERROR", source=_INFER, line=120, spans=spans)

    def _record(self, level: Level, text: str, members: Mapping[str, object], *, color: bool) -> None:
        stamp = self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self.json_output:
            record = {"timestamp": stamp, "level": level, **members}
            self.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")))
        else:
            line = f"{_paint(_DIM, stamp)} {_paint(_COLORS[level], f'{level:>5}')} {text}"
            self.write(line if color else _ESCAPE.sub("", line))

    def write(self, line: str, to: TextIO | None = None) -> None:
        """Write a line unchanged, such as unformatted output of the router that the launcher passes on."""
        out = to or self.out
        with self._lock:
            out.write(line + "\n")
            out.flush()


def _paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def _span(name: str, fields: Mapping[str, str]) -> str:
    if not fields:
        return _paint(_BOLD, name)
    inside = " ".join(f"{_paint(_ITALIC, key)}{_paint(_DIM, '=')}{value}" for key, value in fields.items())
    return f"{_paint(_BOLD, name)}{_paint(_BOLD, '{')}{inside}{_paint(_BOLD, '}')}"


def _spans(query: Query) -> list[tuple[str, Mapping[str, str]]]:
    outer: list[tuple[str, Mapping[str, str]]] = [(query.within, {})] if query.within else []
    return [*outer, (query.route, {"parameters": _debug(query.parameters, query.route)})]


def _debug(parameters: Body, route: str) -> str:
    """Format the struct like Rust. The OpenAI-style routes record it as a string: TGI issue 3203."""
    members = ", ".join(f"{name}: {_rust(name, value)}" for name, value in vars(parameters).items())
    shown = f"GenerateParameters {{ {members} }}"
    return shown if route.startswith("generate") else json.dumps(shown, ensure_ascii=False)


def _rust(name: str, value: object) -> str:
    if isinstance(value, list | tuple) or (isinstance(value, bool) and name != "return_full_text"):
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
