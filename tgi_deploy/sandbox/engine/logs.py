"""The container's log: launcher and router write differently, as text and as JSON (tests/cases/engine/runs).

`tracebacks` has those of the real engine, recorded from TGI 3.3.7 on a CPU on 2026-11-22, and the reasons that fill
them. The plain form is logged when the model fails to load; the form boxed by rich, with local variables and wrapped at
80 columns, goes to the process's standard error. Quoted source lines were replaced by an ellipsis.
"""

from __future__ import annotations

import json
import re
import textwrap
import threading
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final, Literal, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.sandbox.engine.generator import Query

    Spans = Sequence[tuple[str, dict[str, str]]]

Level = Literal["INFO", "WARN", "ERROR"]
Kind = Literal["plain_early", "plain_loading", "boxed_early", "boxed_loading", "download", "no_weights"]
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
TIMES: Final = ("total_time", "validation_time", "queue_time", "inference_time", "time_per_token")
_COLON: Final = f"\x1b[{_DIM}m:\x1b[0m"
_TRACEBACKS: Final = Path(__file__).parent / "tracebacks"
_REASONS: Final[dict[str, str]] = json.loads((_TRACEBACKS / "reasons.json").read_text(encoding="utf-8"))
_COLUMNS: Final = 80
_MODULE: Final = re.compile(r"^(?:\w+\.)+(?=[A-Z]\w*)")


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
        text = f"{where}{_paint(_DIM, target)}{_COLON} {message}{ending}"
        members = {"fields": {"message": message}, "target": target, **within}
        self._record(level, text, members, color=self.launcher_color)

    def router(
        self, message: str, *, level: Level = "INFO", source: tuple[str, str] = ROUTER, line: int = 1, spans: Spans = ()
    ) -> None:
        target, filename = source
        every = [{**fields, "name": name} for name, fields in spans]
        within = {"span": every[-1], "spans": every} if every else {}
        outer = "".join(f"{_span(name, fields)}{_COLON}" for name, fields in spans)
        where = f"{outer}{' ' if spans else ''}{_paint(_DIM, target)}{_COLON}"
        at = f"{_paint(_DIM, filename)}{_COLON}{_paint(_DIM, f'{line}:')}"
        members = {"message": message, "target": target, "filename": filename, "line_number": line, **within}
        self._record(level, f"{where} {at} {message}", members, color=self.router_color)

    def answered(self, query: Query, times: Sequence[float], seed: int | None) -> None:
        """Write the line of an answered request."""
        spans = _spans(query)
        spans[-1][1].update({name: f'"{_duration(seconds)}"' for name, seconds in zip(TIMES, times, strict=True)})
        spans[-1][1]["seed"] = json.dumps(_rust("seed", seed))
        self.router("Success", line=637 if query.route == "generate_stream" else 432, spans=spans)

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

    def write(self, line: str) -> None:
        """Write a line unchanged, such as unformatted output of the router that the launcher passes on."""
        with self._lock:
            self.out.write(line + "\n")
            self.out.flush()


def _paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def _span(name: str, fields: Mapping[str, str]) -> str:
    inside = " ".join(f"{_paint(_ITALIC, key)}{_paint(_DIM, '=')}{value}" for key, value in fields.items())
    return f"{_paint(_BOLD, name)}{_paint(_BOLD, '{')}{inside}{_paint(_BOLD, '}')}" if fields else _paint(_BOLD, name)


def _spans(query: Query) -> Spans:
    """Return the spans of a request. The OpenAI-style routes record its parameters as a string: TGI issue 3203."""
    members = ", ".join(f"{name}: {_rust(name, value)}" for name, value in vars(query.parameters).items())
    shown = f"GenerateParameters {{ {members} }}"
    shown = shown if query.route.startswith("generate") else json.dumps(shown, ensure_ascii=False)
    outer: list[tuple[str, dict[str, str]]] = [(query.within, {})] if query.within else []
    return [*outer, (query.route, {"parameters": shown})]


def _rust(name: str, value: object) -> str:
    """Format a member of the struct like Rust."""
    if value is None or name == "grammar":
        return "None" if value is None else "Some(Json(…))"
    shown = str(value) if type(value) in {int, float} else json.dumps(value, ensure_ascii=False)
    optional = not isinstance(value, list | bool) or name == "return_full_text"
    return f"Some({shown})" if optional else shown


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.9g}{unit}"
    return f"{seconds * 1e9:.0f}ns"


def reason(name: str, **values: object) -> str:
    """Return the final message of a failure, from `reasons.json`."""
    return Template(_REASONS[name]).substitute(values)


def traceback(kind: Kind, model: str, why: str, *, on_cpu: bool = True) -> str:
    """Return the output of a process for `model` that fails.

    Boxes wrap the reason like rich; lines of C++ libraries, which don't pass through it, stay as they are.
    """
    if not kind.startswith("plain"):
        wrapped = (
            [line] if line.startswith("[rank") else textwrap.wrap(line, _COLUMNS, break_on_hyphens=False) or [""]
            for line in _MODULE.sub("", why).splitlines()
        )
        why = "\n".join(line for lines in wrapped for line in lines)
    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    text = Template((_TRACEBACKS / f"{kind}.txt").read_text(encoding="utf-8"))
    return text.substitute(model=model, reason=why, stamp=stamp, system="cpu" if on_cpu else "cuda").rstrip("\n")
