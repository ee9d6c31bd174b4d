"""One HTTP exchange: the request's body as the framework reads it, and the ways to answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine.replies import RejectionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.server import BaseHTTPRequestHandler

JSON: Final = "application/json"
_LARGEST_DISCARD_BYTES: Final = 64 * 1024**2
_PART_BYTES: Final = 64 * 1024


class Exchange:
    """Wraps the standard library's handler, so that routes know nothing about sockets."""

    def __init__(self, handler: BaseHTTPRequestHandler, payload_limit: int) -> None:
        self._handler = handler
        self._payload_limit = payload_limit
        self._unread = _length(handler.headers.get("Content-Length"))

    def header(self, name: str) -> str | None:
        return self._handler.headers.get(name)

    def json_object(self) -> dict[str, Any]:
        """The body.

        Raises:
            RejectionError: 400, 413, 415 or 422, as the web framework refuses bodies.
        """
        if "chunked" in (self.header("Transfer-Encoding") or ""):
            self._handler.close_connection = True
            raise RejectionError(411, "Length Required")
        if self._unread > self._payload_limit:
            raise RejectionError(413, "Failed to buffer the request body: length limit exceeded")
        if not (self.header("Content-Type") or "").startswith(JSON):
            raise RejectionError(415, "Expected request with `Content-Type: application/json`")
        raw = self._handler.rfile.read(self._unread)
        self._unread = 0
        try:
            body = json.loads(raw, parse_constant=_no_constant)
            if b"\\u" in raw:
                json.dumps(body, ensure_ascii=False).encode()  # a lone surrogate is not text
        except (ValueError, RecursionError) as error:
            raise RejectionError(400, f"Failed to parse the request body as JSON: {error}") from error
        if not isinstance(body, dict):
            raise RejectionError(
                422, "Failed to deserialize the JSON body into the target type: expected a JSON object"
            )
        return body

    def send(
        self, status: int, body: bytes = b"", *, kind: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._settle()
        handler = self._handler
        handler.send_response(status)
        if kind is not None:
            handler.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        if handler.close_connection:
            handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(body)

    def send_json(self, status: int, value: object, *, headers: Mapping[str, str] | None = None) -> None:
        self.send(status, json.dumps(value, ensure_ascii=False).encode(), kind=JSON, headers=headers)

    def send_text(self, status: int, text: str, *, kind: str = "text/plain; charset=utf-8") -> None:
        self.send(status, text.encode(), kind=kind)

    def start_events(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of server-sent events: the status is 200 whatever happens later."""
        self._settle()
        handler = self._handler
        handler.send_response(200)
        sent = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", **headers}
        for name, value in {**sent, "Transfer-Encoding": "chunked"}.items():
            handler.send_header(name, value)
        handler.end_headers()

    def send_event(self, value: object) -> None:
        data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self._chunk(f"data: {data}\n\n".encode())

    def end_events(self) -> None:
        self._chunk(b"")

    def _chunk(self, body: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))

    def _settle(self) -> None:
        """A body left unread would be taken for the next request of the connection."""
        if self._unread > _LARGEST_DISCARD_BYTES:
            self._handler.close_connection = True
            return
        while self._unread:
            part = self._handler.rfile.read(min(self._unread, _PART_BYTES))
            if not part:
                break
            self._unread -= len(part)


def _no_constant(name: str) -> float:
    raise ValueError(f"expected value, found {name}")


def _length(header: str | None) -> int:
    return int(header) if header is not None and header.isascii() and header.isdigit() else 0
