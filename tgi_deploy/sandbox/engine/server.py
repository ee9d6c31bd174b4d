"""The HTTP server: reads requests, sends replies and streams, and shuts down gracefully."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine.messages import ApiError, Request, Stream, compact
from tgi_deploy.sandbox.engine.routes import answer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from tgi_deploy.sandbox.engine.inference import Inference
    from tgi_deploy.sandbox.engine.messages import Reply

_EVERY_ANSWER: Final = {
    "vary": "origin, access-control-request-method, access-control-request-headers",
    "access-control-allow-origin": "*",
}
_EVENTS: Final = {"content-type": "text/event-stream", "cache-control": "no-cache"}
_LARGEST_BODY_BYTES: Final = 64 * 1024**2


class EngineServer(ThreadingHTTPServer):
    """The server; its threads are daemons. After `leave`, connections are closed when idle."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], inference: Inference, *, port_held: bool = False) -> None:
        self.inference = inference
        self.allow_reuse_port = port_held
        self.payload_limit = inference.situation.arguments.get("payload-limit", 2_000_000)
        self.leaving = False
        self._idle = set[socket.socket]()
        self._busy = 0
        self._changed = threading.Condition()
        super().__init__(address, _RequestHandler)

    def begin(self, connection: socket.socket) -> None:
        with self._changed:
            self._idle.discard(connection)
            self._busy += 1

    def end(self) -> None:
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()

    def rest(self, connection: socket.socket) -> None:
        """Mark the connection as idle between two requests."""
        with self._changed:
            self._idle.add(connection)
            if self.leaving:
                _read_no_more(connection)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 -- as the base class has it
        with self._changed:
            self._idle.discard(request)
        super().shutdown_request(request)

    def leave(self) -> None:
        """Stop accepting connections."""
        self.shutdown()
        self.server_close()
        with self._changed:
            self.leaving = True
            for connection in self._idle:
                _read_no_more(connection)

    def drain(self, timeout_s: float) -> bool:
        """Return whether all requests in flight ended in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._busy == 0, timeout_s)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 -- as the base class has it
        """Ignore clients that disconnect; log anything else, which is a bug."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _read_no_more(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: EngineServer

    def do_GET(self) -> None:
        server = self.server
        server.begin(self.connection)
        self.close_connection = self.close_connection or server.leaving
        try:
            request = Request(headers=self.headers, body=self._body(self.headers), limit_bytes=server.payload_limit)
            found = answer(server.inference, request, self.command, self.path.partition("?")[0])
            if isinstance(found, Stream):
                self._send_stream(found)
            else:
                self._send(found)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            server.end()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_GET  # noqa: N815 -- as the base class asks

    def log_message(self, *_arguments: object) -> None:
        """Log nothing: the routes write the engine's line."""

    def handle_one_request(self) -> None:
        self.server.rest(self.connection)
        super().handle_one_request()

    def _body(self, headers: Message) -> bytes:
        """Read all of it, because the rest would be taken for the connection's next request."""
        file = self.rfile
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
        ends = {"connection": "close"} if self.close_connection else {}
        self._start(reply.status, {**reply.headers, "content-length": str(len(reply.body)), **ends})
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def _send_stream(self, stream: Stream) -> None:
        """Send server-sent events: the status is 200 whatever happens later."""
        self._start(200, {**_EVENTS, **stream.headers, "transfer-encoding": "chunked"})
        with closing(stream.events) as events:
            try:
                for event in events:
                    self._send_event(compact(event))
            except ApiError as error:
                self._send_event(compact(stream.failure(error)))
        if stream.last:
            self._send_event(stream.last)
        self._chunk(b"")

    def _send_event(self, data: str) -> None:
        self._chunk(f"data: {data}\n\n".encode())

    def _chunk(self, body: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))

    def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**headers, **_EVERY_ANSWER, "date": self.date_time_string()}.items():
            self.send_header(name, value)
        self.end_headers()
