"""The HTTP server: exchanges, which read bodies like the web framework, routes, access, and a graceful shutdown."""

from __future__ import annotations

import json
import socket
import sys
import threading
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tgi_deploy.sandbox.engine import native, openai_routes
from tgi_deploy.sandbox.engine.failures import ApiError, RejectionError
from tgi_deploy.sandbox.engine.reading import parsed, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from tgi_deploy.sandbox.engine.inference import Inference

    Handler = Callable[[Inference, "Exchange"], None]

Body = TypeVar("Body", bound=msgspec.Struct)
JSON: Final = "application/json"
_EVERY_ANSWER: Final = {
    "vary": "origin, access-control-request-method, access-control-request-headers",
    "access-control-allow-origin": "*",
}
_LARGEST_BODY_BYTES: Final = 64 * 1024**2


class Exchange:
    """A request and its answer, so that routes don't deal with sockets."""

    def __init__(self, handler: BaseHTTPRequestHandler, payload_limit: int) -> None:
        self._handler = handler
        self._payload_limit = payload_limit
        # All of it, because the rest would be taken for the connection's next request.
        self._raw = _chunked(handler) if "chunked" in (self.header("Transfer-Encoding") or "") else self._counted()

    def header(self, name: str) -> str | None:
        return self._handler.headers.get(name)

    def _counted(self) -> bytes:
        length = self.header("Content-Length") or ""
        size = int(length) if length.isascii() and length.isdigit() else 0
        self._handler.close_connection |= size > _LARGEST_BODY_BYTES
        return self._handler.rfile.read(min(size, _LARGEST_BODY_BYTES))

    def read(self, kind: type[Body]) -> Body:
        """Return the body.

        Raises:
            RejectionError: 400, 413, 415 or 422, like the web framework.
        """
        return typed(self.value(), kind, self.text())

    def value(self) -> object:
        """Return a body whose type follows from its members.

        Raises:
            RejectionError: 400, 413, 415 or 422.
        """
        kind = (self.header("Content-Type") or "").partition(";")[0]
        if kind != JSON and not (kind.startswith("application/") and kind.endswith("+json")):
            raise RejectionError(415, "Expected request with `Content-Type: application/json`")
        if len(self._raw) > self._payload_limit:
            raise RejectionError(413, "Failed to buffer the request body: length limit exceeded")
        return parsed(self.text())

    def text(self) -> str:
        return self._raw.decode("utf-8", "replace")

    def send(
        self, status: int, body: bytes = b"", *, kind: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
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

    def send_events(
        self,
        headers: Mapping[str, str],
        events: Generator[object],
        *,
        failure: Callable[[ApiError], object],
        last: str | None = None,
    ) -> None:
        """Send a stream of server-sent events: the status is 200 whatever happens later."""
        stream = {"content-type": "text/event-stream", "cache-control": "no-cache"}
        self._start(200, {**stream, **headers, "transfer-encoding": "chunked"})
        with closing(events):
            try:
                for event in events:
                    self._send_event(_compact(event))
            except ApiError as error:
                self._send_event(_compact(failure(error)))
        if last is not None:
            self._send_event(last)
        self._chunk(b"")

    def _start(self, status: int, headers: Mapping[str, str]) -> None:
        handler = self._handler
        handler.send_response_only(status)
        for name, value in {**headers, **_EVERY_ANSWER, "date": handler.date_time_string()}.items():
            handler.send_header(name, value)
        handler.end_headers()

    def _send_event(self, data: str) -> None:
        self._chunk(f"data: {data}\n\n".encode())

    def _chunk(self, body: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))


def _chunked(handler: BaseHTTPRequestHandler) -> bytes:
    file, chunks = handler.rfile, []
    while size := int(file.readline().partition(b";")[0] or b"0", 16):
        chunks.append(file.read(size))
        file.readline()
    while file.readline().strip():
        pass
    return b"".join(chunks)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_DEFAULT_PAYLOAD_LIMIT: Final = 2_000_000
_BACKLOG: Final = 128

_PROTECTED: Final[Mapping[str, Handler]] = {
    "/": native.compatible,
    "/generate": native.generate,
    "/generate_stream": native.generate_stream,
    "/tokenize": native.tokenize,
    "/v1/chat/completions": openai_routes.chat_completions,
    "/v1/completions": openai_routes.completions,
    "/invocations": openai_routes.invocations,
    "/vertex": openai_routes.vertex,
}


def _describe(inference: Inference, exchange: Exchange) -> None:
    """Return the release's routes as an OpenAPI document, without bodies."""
    ok = {"responses": {"200": {"description": "as the engine answers"}}}
    paths: dict[str, dict[str, object]] = {}
    for path in (*_OPEN_GET, *_OPEN_POST, *_PROTECTED):
        methods = [method for method in ("GET", "POST") if _route(inference, method, path)[0] is not None]
        if methods:
            paths[path] = {method.lower(): ok for method in methods}
    about = {"title": "Text Generation Inference", "description": "Text Generation Webserver"}
    info = {**about, "version": inference.version}
    exchange.send_json(200, {"openapi": "3.0.3", "info": info, "paths": paths})


_OPEN_GET: Final[Mapping[str, Handler]] = {
    "/": native.health,
    "/health": native.health,
    "/ping": native.health,
    "/info": native.info,
    "/metrics": native.metrics,
    "/docs": native.docs,
    "/docs/": native.docs_page,
    native.DESCRIPTION: _describe,
    "/v1/models": openai_routes.models,
}
_OPEN_POST: Final[Mapping[str, Handler]] = {"/chat_tokenize": openai_routes.chat_tokenize}

# Added by the release that added `--api-key`.
_NEWER: Final = frozenset({"/v1/models", "/chat_tokenize"})


class EngineServer(ThreadingHTTPServer):
    """The server; its threads are daemons. After `leave`, connections are closed when idle."""

    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(self, address: tuple[str, int], inference: Inference, *, port_held: bool = False) -> None:
        self.inference = inference
        self.allow_reuse_port = port_held
        self.payload_limit = inference.situation.arguments.required_number("payload-limit", _DEFAULT_PAYLOAD_LIMIT)
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
        self.server.begin(self.connection)
        self.close_connection = self.close_connection or self.server.leaving
        try:
            dispatch(self.server.inference, Exchange(self, self.server.payload_limit), self.command, self.path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.server.end()

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_GET  # noqa: N815 -- as the base class asks

    def log_message(self, *_arguments: object) -> None:
        """Log nothing: the routes write the engine's line."""

    def handle_one_request(self) -> None:
        self.server.rest(self.connection)
        super().handle_one_request()


def dispatch(inference: Inference, exchange: Exchange, method: str, target: str) -> None:
    """Find the route, check the key, answer, and convert rejections into replies."""
    path = target.partition("?")[0]
    handler, protected = _route(inference, "GET" if method == "HEAD" else method, path)
    if method == "OPTIONS":
        exchange.send(200)
    elif handler is None:
        shown = {"GET": "GET,HEAD", "POST": "POST"}
        allowed = [words for known, words in shown.items() if _route(inference, known, path)[0] is not None]
        exchange.send(405 if allowed else 404, headers={"allow": ",".join(allowed)} if allowed else {})
    elif protected and not _authorized(inference.api_key, exchange):
        exchange.send(401)
    else:
        try:
            handler(inference, exchange)
        except RejectionError as rejection:
            exchange.send_text(rejection.status, rejection.text)
        except ApiError as error:
            exchange.send_json(error.status, error.body())


def _route(inference: Inference, method: str, path: str) -> tuple[Handler | None, bool]:
    if path in _NEWER and not inference.has("api-key"):
        return None, False
    if method == "GET":
        return _OPEN_GET.get(path), False
    if method == "POST":
        return _OPEN_POST.get(path) or _PROTECTED.get(path), path in _PROTECTED
    return None, False


def _authorized(api_key: str | None, exchange: Exchange) -> bool:
    """Compare the whole header, ignoring case."""
    return api_key is None or (exchange.header("Authorization") or "").lower() == f"bearer {api_key}".lower()
