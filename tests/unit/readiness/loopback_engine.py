"""A tiny engine on loopback that answers what a test scripts."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INFO = {
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "max_input_tokens": 8191,
    "max_total_tokens": 8192,
    "version": "3.3.6-dev0",
}
PLAIN = {"generated_text": " a kind of machine learning", "details": {"generated_tokens": 5}}
TOKEN = {"index": 1, "token": {"id": 1, "text": " a"}, "generated_text": None, "details": None}
LAST = TOKEN | {"generated_text": " a kind", "details": {"generated_tokens": 2}}
CHAT = {"choices": [{"message": {"role": "assistant", "content": "It is"}}], "usage": {"completion_tokens": 2}}


def sse(*events: Any, end: str = "") -> bytes:
    return "".join(f"data:{json.dumps(event)}\n\n" for event in events).encode() + end.encode()


def healthy() -> dict[str, tuple[int, Any]]:
    """Path → status and body; a body in bytes is an event stream."""
    return {
        "/health": (200, None),
        "/info": (200, dict(INFO)),
        "/generate": (200, dict(PLAIN)),
        "/generate_stream": (200, sse(TOKEN, LAST)),
        "/v1/chat/completions": (200, dict(CHAT)),
    }


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # a body would wait 40 ms for the acknowledgment of its headers
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer()

    def do_POST(self):
        self._answer()

    def _answer(self):
        size = int(self.headers.get("Content-Length") or 0)
        sent = json.loads(self.rfile.read(size)) if size else None
        self.server.requests.append((self.command, self.path, sent, dict(self.headers)))
        status, body = self.server.routes.get(self.path, (404, "no such route"))
        if callable(body):
            body(self)
            return
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if status in range(300, 400):
            self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Type", "text/event-stream" if isinstance(body, bytes) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@contextmanager
def serving(routes=None, *, tls=None):
    """`tls` is the context of a server that answers over TLS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    server.routes = healthy() if routes is None else routes
    server.requests = []
    server.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def raw_server(reply: bytes | None, *, drips: bool = False):
    """Accepts one connection and answers bytes; None: never answers; `drips`: then byte by byte, without end.

    Closes when the test is over.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            if reply is None:
                over.wait(10)
            else:
                connection.sendall(reply)
            with suppress(OSError):
                while drips and not over.wait(0.01):
                    connection.sendall(b" ")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        thread.join(10)
        listener.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
