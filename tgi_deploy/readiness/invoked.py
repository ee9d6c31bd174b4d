"""A client for an engine that can be reached only through its cloud's API, which forwards requests to one route.

The engine counts as healthy while the cloud's health check passes. What that route does not return, such as the
engine's identity, can't be verified.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy import bounded_json
from tgi_deploy.errors import DeployError, NotHealthyError
from tgi_deploy.readiness.http import payloads
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.values.probing import HttpReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tgi_deploy.engines.protocol import Invocable, ServingEngine
    from tgi_deploy.values.probing import ProbeRequest

_OK: Final = 200
_UNAVAILABLE: Final = 503
_ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024
_LONGEST_S: Final = 600.0


def _ignore(_event: str) -> None:
    """Ignore a stream event."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InvokedEngine:
    """`answers` returns whether the cloud's health check passes, `invoke(body, streamed)` the status and the chunks."""

    engine: ServingEngine
    invocable: Invocable
    answers: Callable[[], bool]
    invoke: Callable[[bytes, bool], tuple[int, Iterator[bytes]]]

    def reaches(self, probe: ProbeRequest) -> bool:
        """Return whether the cloud's API forwards this request."""
        return probe.path == self.engine.health.path or self.invocable.invocation(probe) is not None

    def ask(self, probe: ProbeRequest, on_event: Callable[[str], None] = _ignore) -> HttpReply:
        """Return the response. Raises NotHealthyError `engine_unreachable`, or the cloud's DeployError."""
        if probe.path == self.engine.health.path:
            return HttpReply(status=_OK if self.answers() else _UNAVAILABLE)
        asked = self.invocable.invocation(probe)
        if asked is None:
            raise NotHealthyError(
                "engine_unreachable",
                f"request to the engine ({probe.method} {probe.path}): the cloud's API does not forward such requests",
                hint="'tgi-deploy status NAME' shows whether the cloud considers it healthy",
            )
        began = time.monotonic()
        status, body = self.invoke(json.dumps(asked.body).encode(), asked.streamed)
        chunks = _bounded(body, began + _LONGEST_S)
        if asked.streamed and status == _OK:
            return self.invocable.as_answered(probe, _read_events(chunks, began, on_event))
        text = b"".join(chunks).decode("utf-8", "replace")
        return self.invocable.as_answered(probe, HttpReply(status=status, body=_json_of(text), text=text))

    def health(self) -> Probe:
        """Return the result of the health check."""
        try:
            return Probe(outcome="status", status=_OK if self.answers() else _UNAVAILABLE)
        except DeployError as error:
            return Probe(outcome="no_tunnel", why=error.message)


def _bounded(chunks: Iterable[bytes], until: float) -> Iterator[bytes]:
    left = _ANSWER_LIMIT_BYTES
    for chunk in chunks:
        left -= len(chunk)
        if left < 0 or time.monotonic() > until:
            raise NotHealthyError(
                "engine_unreachable",
                "request to the engine: its answer is too long",
                hint="'tgi-deploy logs NAME' shows the engine's log",
            )
        yield chunk


def _read_events(chunks: Iterable[bytes], began: float, on_event: Callable[[str], None]) -> HttpReply:
    events: list[str] = []
    arrivals_ms: list[float] = []
    for payload in payloads(_lines(chunks)):
        arrivals_ms.append(round((time.monotonic() - began) * 1000, 3))
        events.append(payload)
        on_event(payload)
    return HttpReply(status=_OK, events=tuple(events), arrivals_ms=tuple(arrivals_ms))


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream, whose chunks may end anywhere."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _json_of(text: str) -> object:
    try:
        return bounded_json.parse(text)
    except ValueError:
        return None
