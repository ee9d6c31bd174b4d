"""The HTTP server: requests and replies, routes, access, and a graceful shutdown."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine import native, openai_routes
from tgi_deploy.sandbox.engine.messages import (
    ApiError,
    RejectionError,
    Reply,
    Request,
    Stream,
    compact,
    reply_json,
    reply_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

    from tgi_deploy.sandbox.engine.inference import Inference

_EVERY_ANSWER: Final = {
    "vary": "origin, access-control-request-method, access-control-request-headers",
    "access-control-allow-origin": "*",
}
_EVENTS: Final = {"content-type": "text/event-stream", "cache-control": "no-cache"}
_LARGEST_BODY_BYTES: Final = 64 * 1024**2
_DEFAULT_PAYLOAD_LIMIT: Final = 2_000_000
_BACKLOG: Final = 128


@dataclass(frozen=True, slots=True)
class Route:
    """What answers. `protected`: it needs the API key; `newer`: it came with the launcher's `--api-key`."""

    answer: Callable[[Inference, Request], Reply | Stream]
    protected: bool = False
    newer: bool = False


def _describe(inference: Inference, _request: Request) -> Reply:
    """Return the release's routes as an OpenAPI document, without bodies."""
    ok = {"responses": {"200": {"description": "as the engine answers"}}}
    paths: dict[str, dict[str, object]] = {}
    for method, path in _ROUTES:
        if _route(inference, method, path):
            paths.setdefault(path, {})[method.lower()] = ok
    about = {"title": "Text Generation Inference", "description": "Text Generation Webserver"}
    info = {**about, "version": inference.version}
    return reply_json({"openapi": "3.0.3", "info": info, "paths": paths})


_ROUTES: Final[Mapping[tuple[str, str], Route]] = {
    ("GET", "/"): Route(native.health),
    ("GET", "/health"): Route(native.health),
    ("GET", "/ping"): Route(native.health),
    ("GET", "/info"): Route(native.info),
    ("GET", "/metrics"): Route(native.metrics),
    ("GET", "/docs"): Route(native.docs),
    ("GET", "/docs/"): Route(native.docs_page),
    ("GET", native.DESCRIPTION): Route(_describe),
    ("GET", "/v1/models"): Route(openai_routes.models, newer=True),
    ("POST", "/"): Route(native.compatible, protected=True),
    ("POST", "/generate"): Route(native.generate, protected=True),
    ("POST", "/generate_stream"): Route(native.generate_stream, protected=True),
    ("POST", "/tokenize"): Route(native.tokenize, protected=True),
    ("POST", "/v1/chat/completions"): Route(openai_routes.chat_completions, protected=True),
    ("POST", "/v1/completions"): Route(openai_routes.completions, protected=True),
    ("POST", "/invocations"): Route(openai_routes.invocations, protected=True),
    ("POST", "/vertex"): Route(openai_routes.vertex, protected=True),
    ("POST", "/chat_tokenize"): Route(openai_routes.chat_tokenize, newer=True),
}


def _route(inference: Inference, method: str, path: str) -> Route | None:
    found = _ROUTES.get((method, path))
    return None if found and found.newer and not inference.has("api-key") else found


def answer(inference: Inference, request: Request, method: str, path: str) -> Reply | Stream:
    """Find the route, check the key, answer, and convert rejections into replies."""
    route = _route(inference, "GET" if method == "HEAD" else method, path)
    if method == "OPTIONS":
        return Reply()
    if route is None:
        shown = {"GET": "GET,HEAD", "POST": "POST"}
        allowed = [words for known, words in shown.items() if _route(inference, known, path)]
        return Reply(status=405, headers={"allow": ",".join(allowed)}) if allowed else Reply(status=404)
    given = request.headers.get("Authorization") or ""
    key = inference.api_key
    if route.protected and key is not None and given.lower() != f"bearer {key}".lower():
        return Reply(status=401)
    try:
        return route.answer(inference, request)
    except RejectionError as rejection:
        return reply_text(rejection.text, status=rejection.status)
    except ApiError as error:
        return reply_json(error.body(), status=error.status)


class EngineServer(ThreadingHTTPServer):
    """The server; its threads are daemons. After `leave`, connections are closed when idle."""

    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(self, address: tuple[str, int], inference: Inference, *, port_held: bool = False) -> None:
        self.inference = inference
        self.allow_reuse_port = port_held
        self.payload_limit = inference.situation.arguments.get("payload-limit", _DEFAULT_PAYLOAD_LIMIT)
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
