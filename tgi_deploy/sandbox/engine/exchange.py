"""One HTTP exchange: reads the body like the web framework, and sends answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tgi_deploy.sandbox.engine import reading
from tgi_deploy.sandbox.engine.replies import RejectionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.server import BaseHTTPRequestHandler

Body = TypeVar("Body", bound=msgspec.Struct)
JSON: Final = "application/json"
_EVERY_ANSWER: Final = {
    "vary": "origin, access-control-request-method, access-control-request-headers",
    "access-control-allow-origin": "*",
}
_LARGEST_DISCARD_BYTES: Final = 64 * 1024**2
_PART_BYTES: Final = 64 * 1024


class Exchange:
    """Wraps the standard library's handler, so that routes don't deal with sockets."""

    def __init__(self, handler: BaseHTTPRequestHandler, payload_limit: int) -> None:
        self._handler = handler
        self._payload_limit = payload_limit
        self._unread = _length(handler.headers.get("Content-Length"))
        self._chunked = "chunked" in (handler.headers.get("Transfer-Encoding") or "")

    def header(self, name: str) -> str | None:
        return self._handler.headers.get(name)

    def read(self, kind: type[Body]) -> Body:
        """Return the body.

        Raises:
            RejectionError: 400, 413, 415 or 422, like the web framework.
        """
        return reading.read(self._body(), kind)

    def read_object(self) -> tuple[dict[str, Any], str]:
        """Return a body whose type follows from its members, and its text.

        Raises:
            RejectionError: as `read`.
        """
        return reading.read_object(self._body())

    def _body(self) -> bytes:
        kind = (self.header("Content-Type") or "").partition(";")[0]
        if kind != JSON and not (kind.startswith("application/") and kind.endswith("+json")):
            raise RejectionError(415, "Expected request with `Content-Type: application/json`")
        raw = b"".join(self._chunks()) if self._chunked else b""
        if max(self._unread, len(raw)) > self._payload_limit:
            raise RejectionError(413, "Failed to buffer the request body: length limit exceeded")
        raw += self._handler.rfile.read(self._unread)
        self._unread = 0
        return raw

    def _chunks(self) -> list[bytes]:
        file, chunks = self._handler.rfile, []
        while size := int(file.readline().partition(b";")[0] or b"0", 16):
            chunks.append(file.read(size))
            file.readline()
        while file.readline().strip():
            pass
        self._chunked = False
        return chunks

    def send(
        self, status: int, body: bytes = b"", *, kind: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._settle()
        handler = self._handler
        kinds = {"content-type": kind} if kind is not None else {}
        ends = {"connection": "close"} if handler.close_connection else {}
        self._start(status, {**kinds, **(headers or {}), "content-length": str(len(body)), **ends})
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def send_json(self, status: int, value: object, *, headers: Mapping[str, str] | None = None) -> None:
        self.send(status, _compact(value).encode(), kind=JSON, headers=headers)

    def send_text(self, status: int, text: str, *, kind: str = "text/plain; charset=utf-8") -> None:
        self.send(status, text.encode(), kind=kind)

    def start_events(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of server-sent events: the status is 200 whatever happens later."""
        self._settle()
        stream = {"content-type": "text/event-stream", "cache-control": "no-cache"}
        self._start(200, {**stream, **headers, "transfer-encoding": "chunked"})

    def _start(self, status: int, headers: Mapping[str, str]) -> None:
        handler = self._handler
        handler.send_response_only(status)
        for name, value in {**headers, **_EVERY_ANSWER, "date": handler.date_time_string()}.items():
            handler.send_header(name, value)
        handler.end_headers()

    def send_event(self, value: object) -> None:
        data = value if isinstance(value, str) else _compact(value)
        self._chunk(f"data: {data}\n\n".encode())

    def end_events(self) -> None:
        self._chunk(b"")

    def _chunk(self, body: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))

    def _settle(self) -> None:
        """Read the rest of the body, which would otherwise be taken for the connection's next request."""
        if self._unread > _LARGEST_DISCARD_BYTES or self._chunked:
            self._handler.close_connection = True
            return
        while self._unread:
            part = self._handler.rfile.read(min(self._unread, _PART_BYTES))
            if not part:
                break
            self._unread -= len(part)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _length(header: str | None) -> int:
    return int(header) if header is not None and header.isascii() and header.isdigit() else 0
