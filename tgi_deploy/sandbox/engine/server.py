"""The HTTP server: reads requests, sends replies and streams, and shuts down gracefully."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine.bodies import Reply, Request
from tgi_deploy.sandbox.engine.routes import Api

if TYPE_CHECKING:
    from collections.abc import Generator

    from tgi_deploy.sandbox.engine.inference import Inference

_EVERY_ANSWER: Final = {
    "vary": "origin, access-control-request-method, access-control-request-headers",
    "access-control-allow-origin": "*",
}
_EVENTS: Final = {"content-type": "text/event-stream", "cache-control": "no-cache", "transfer-encoding": "chunked"}
_LARGEST_BODY_BYTES: Final = 64 * 1024**2


class EngineServer(ThreadingHTTPServer):
    """The server; its threads are daemons. After `leave`, connections are closed when idle."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], inference: Inference, *, port_held: bool = False) -> None:
        self.inference = inference
        self.api = Api(inference)
        self.allow_reuse_port = port_held
        self.payload_limit = inference.situation.arguments.get("payload-limit", 2_000_000)
        self.leaving = False
        self.changed = threading.Condition()
        self.busy = set[socket.socket]()
        self.open = set[socket.socket]()
        super().__init__(address, _RequestHandler)

    def leave(self) -> None:
        """Stop accepting connections, and read no more requests from those that are idle."""
        self.shutdown()
        self.server_close()
        with self.changed:
            self.leaving = True
            for connection in self.open - self.busy:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)

    def drain(self, timeout_s: float) -> bool:
        """Return whether all requests in flight ended in time."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.busy, timeout_s)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- as the base class has it
        """Ignore clients that disconnect; log anything else, which is a bug."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: EngineServer

    def handle(self) -> None:
        """Serve a connection."""
        with self.server.changed:
            self.server.open.add(self.connection)
        try:
            super().handle()
        finally:
            with self.server.changed:
                self.server.open.discard(self.connection)

    def do_GET(self) -> None:
        server = self.server
        with server.changed:
            server.busy.add(self.connection)
            self.close_connection |= server.leaving
        try:
            request = Request(headers=self.headers, body=self._body(), limit_bytes=server.payload_limit)
            self._send(server.api.answer(request, self.command, self.path.partition("?")[0]))
        finally:
            with server.changed:
                server.busy.discard(self.connection)
                self.close_connection |= server.leaving
                server.changed.notify_all()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_GET  # noqa: N815 -- as the base class asks

    def log_message(self, *_arguments: object) -> None:
        """Log nothing: the routes write the engine's line."""

    def _body(self) -> bytes:
        """Read the whole body: a remainder would be parsed as the connection's next request."""
        file, headers = self.rfile, self.headers
        if "chunked" in headers.get("Transfer-Encoding", ""):
            chunks = []
            while size := int(file.readline().partition(b";")[0] or b"0", 16):
                chunks.append(file.read(size))
                file.readline()
            while file.readline().strip():
                pass
            return b"".join(chunks)
        length = headers.get("Content-Length", "")
        size = int(length) if length.isascii() and length.isdigit() else 0
        self.close_connection |= size > _LARGEST_BODY_BYTES
        return file.read(min(size, _LARGEST_BODY_BYTES))

    def _send(self, reply: Reply) -> None:
        """Send a reply. Server-sent events have status 200, even if an error follows."""
        length = {"content-length": str(len(reply.body))} if reply.events is None else _EVENTS
        ends = {"connection": "close"} if self.close_connection else {}
        self.send_response_only(reply.status)
        for name, value in {
            **length,
            **reply.headers,
            **ends,
            **_EVERY_ANSWER,
            "date": self.date_time_string(),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if reply.events is not None:
            self._send_events(reply.events)
        elif self.command != "HEAD":
            self.wfile.write(reply.body)

    def _send_events(self, events: Generator[str]) -> None:
        with closing(events):
            for event in events:
                data = f"data: {event}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")
