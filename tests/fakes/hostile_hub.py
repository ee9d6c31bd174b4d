"""A hub on loopback with scripted answers: any status, any header, and truncated, slow or endless bodies."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

INFO = "the answer about the model"
_FILE = re.compile(r"/[^?]*?/resolve/[^/]+/([^?]+)")
_PIECE = b" " * 65536


@dataclass(frozen=True, kw_only=True)
class Reply:
    """`promised`: what Content-Length says where that is not true. `drips`: a byte at a time, without end."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None
    knows_ranges: bool = True
    endless: bool = False
    drips: bool = False
    drips_headers: bool = False


class HostileHub:
    """`replies`: by file name, and `INFO`; whatever is not there is a 404."""

    def __init__(self):
        self.replies: dict[str, Reply] = {}
        self.endpoint = ""
        self.requests: list[tuple[str, str | None]] = []
        self.stopped = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # a body would wait 40 ms for the acknowledgment of its headers
    protocol_version = "HTTP/1.1"
    hub: HostileHub

    def log_message(self, *_args):
        pass

    def do_GET(self):
        self.hub.requests.append((self.path, self.headers.get("Authorization")))
        file = _FILE.match(self.path)
        name = unquote(file[1]) if file else INFO
        with suppress(ConnectionError):
            self._answer(self.hub.replies.get(name, Reply(status=404)))

    def _answer(self, reply):
        if reply.drips_headers:
            self._drip(b"HTTP/1.1 200 OK\r\nX-Long: ")
            return
        status, body = reply.status, reply.body
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if asked and reply.knows_ranges and status == 200:
            status, body = 206, body[int(asked[1]) : int(asked[2]) + 1]
        self.send_response(status)
        if not (reply.endless or reply.drips):
            self.send_header("Content-Length", str(len(body) if reply.promised is None else reply.promised))
        for header, value in reply.headers.items():
            self.send_header(header, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(body)
        if reply.drips:
            self._drip(b"")
        while reply.endless and not self.hub.stopped.is_set():
            self.wfile.write(_PIECE)

    def _drip(self, start):
        self.close_connection = True
        self.wfile.write(start)
        while not self.hub.stopped.wait(0.01):
            self.wfile.write(b" ")


@contextmanager
def running_hostile_hub():
    hub = HostileHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
