"""The HTTP server: routes, access, and a graceful shutdown."""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox.engine import native, openai_routes, pages
from tgi_deploy.sandbox.engine.exchange import Exchange
from tgi_deploy.sandbox.engine.replies import ApiError, RejectionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.sandbox.engine.service import Service

    Handler = Callable[[Service, Exchange], None]

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
    "/vertex": native.vertex,
}


def _describe(service: Service, exchange: Exchange) -> None:
    """Return the release's routes as an OpenAPI document, without bodies."""
    ok = {"responses": {"200": {"description": "as the engine answers"}}}
    paths: dict[str, dict[str, object]] = {}
    for path in (*_OPEN_GET, *_OPEN_POST, *_PROTECTED):
        paths[path] = {method.lower(): ok for method in ("GET", "POST") if _route(service, method, path)[0] is not None}
    known = {path: methods for path, methods in paths.items() if methods}
    about = {"title": "Text Generation Inference", "description": "Text Generation Webserver"}
    info = {**about, "version": service.version}
    exchange.send_json(200, {"openapi": "3.0.3", "info": info, "paths": known})


_OPEN_GET: Final[Mapping[str, Handler]] = {
    "/": pages.health,
    "/health": pages.health,
    "/ping": pages.health,
    "/info": pages.info,
    "/metrics": pages.metrics,
    "/docs": pages.docs,
    "/docs/": pages.docs_page,
    pages.DESCRIPTION: _describe,
    "/v1/models": openai_routes.models,
}
_OPEN_POST: Final[Mapping[str, Handler]] = {"/chat_tokenize": openai_routes.chat_tokenize}

# Added by the release that added `--api-key`.
_NEWER: Final = frozenset({"/v1/models", "/chat_tokenize"})


class EngineServer(ThreadingHTTPServer):
    """The server; its threads are daemons. After `leave`, connections are closed when idle."""

    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(self, address: tuple[str, int], service: Service, *, port_held: bool = False) -> None:
        self.service = service
        self.allow_reuse_port = port_held
        limit = service.inference.situation.arguments.number("payload-limit")
        self.payload_limit = _DEFAULT_PAYLOAD_LIMIT if limit is None else limit
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
            dispatch(self.server.service, Exchange(self, self.server.payload_limit), self.command, self.path)
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


def dispatch(service: Service, exchange: Exchange, method: str, target: str) -> None:
    """Find the route, check the key, answer, and convert rejections into replies."""
    path = target.partition("?")[0]
    handler, protected = _route(service, "GET" if method == "HEAD" else method, path)
    allowed = _allowed(service, path)
    if method == "OPTIONS":
        exchange.send(200)
    elif handler is None:
        exchange.send(405 if allowed else 404, headers={"allow": allowed} if allowed else {})
    elif protected and not _authorized(service, exchange):
        exchange.send(401)
    else:
        _answer(handler, service, exchange)


def _route(service: Service, method: str, path: str) -> tuple[Handler | None, bool]:
    if path in _NEWER and not service.has("api-key"):
        return None, False
    if method == "GET":
        return _OPEN_GET.get(path), False
    if method == "POST":
        return _OPEN_POST.get(path) or _PROTECTED.get(path), path in _PROTECTED
    return None, False


def _allowed(service: Service, path: str) -> str:
    methods = {"GET": "GET,HEAD", "POST": "POST"}
    return ",".join(shown for method, shown in methods.items() if _route(service, method, path)[0] is not None)


def _authorized(service: Service, exchange: Exchange) -> bool:
    """Compare the whole header, ignoring case."""
    if service.api_key is None:
        return True
    sent = exchange.header("Authorization") or ""
    return sent.lower() == f"bearer {service.api_key}".lower()


def _answer(handler: Handler, service: Service, exchange: Exchange) -> None:
    try:
        handler(service, exchange)
    except RejectionError as rejection:
        exchange.send_text(rejection.status, rejection.text)
    except ApiError as error:
        exchange.send_json(error.status, error.body())
