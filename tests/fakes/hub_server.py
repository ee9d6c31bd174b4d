"""A hub on loopback that serves folders: model info, files and ranges, gated and missing models. Records requests."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_INFO = re.compile(r"/api/models/([\w.-]+/[\w.-]+)/revision/([\w.-]+)$")
_FILE = re.compile(r"/([\w.-]+/[\w.-]+)/resolve/([\w.-]+)/(.+)$")
TOKEN = "hf_made_up_for_tests"


class FakeHub:
    """`add` folders to it; `requests` lists what was asked: path, range and token."""

    def __init__(self):
        self.models: dict[str, Path] = {}
        self.tags: dict[str, list[str]] = {}
        self.gated: set[str] = set()
        self.requests: list[tuple[str, str | None, str | None]] = []
        self.fails_with: int | None = None
        self.knows_ranges = True
        self.endpoint = ""

    def add(self, hub_id, folder, *, gated=False, tags=()):
        self.models[hub_id] = folder
        self.tags[hub_id] = list(tags)
        if gated:
            self.gated.add(hub_id)

    def commit(self, hub_id):
        """Return a digest of the config as the commit: a changed config is another commit."""
        config = self.models[hub_id] / "config.json"
        content = config.read_bytes() if config.is_file() else b""
        return hashlib.sha1(hub_id.encode() + content).hexdigest()  # noqa: S324 -- what git has

    @property
    def bytes_asked(self):
        return [(path, piece) for path, piece, _ in self.requests if "/resolve/" in path]


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # a body would wait 40 ms for the acknowledgment of its headers
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_args):
        pass

    def do_GET(self):
        self.hub.requests.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        path = self.path.partition("?")[0]
        if self.hub.fails_with:
            self._answer(self.hub.fails_with, b"{}")
        elif match := _INFO.match(path):
            self._info(*match.groups())
        elif match := _FILE.match(path):
            self._file(*match.groups())
        else:
            self._answer(404, b"")

    def _info(self, hub_id, revision):
        if hub_id not in self.hub.models:
            self._answer(404, b'{"error": "Repository not found"}', **{"X-Error-Code": "RepoNotFound"})
            return
        commit = self.hub.commit(hub_id)
        if revision not in {"main", "v1", commit}:
            self._answer(404, b'{"error": "Invalid rev id"}', **{"X-Error-Code": "RevisionNotFound"})
            return
        folder = self.hub.models[hub_id]
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        info = {
            "_id": "0", "id": hub_id, "modelId": hub_id, "sha": commit, "private": False, "tags": self.hub.tags[hub_id],
            "gated": "manual" if hub_id in self.hub.gated else False, "downloads": 0, "likes": 0,
            "siblings": [
                {"rfilename": path.relative_to(folder).as_posix(), "size": path.stat().st_size} for path in files
            ],
        }  # fmt: skip
        self._answer(200, json.dumps(info).encode(), **{"Content-Type": "application/json"})

    def _file(self, hub_id, revision, name):
        if hub_id in self.hub.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, b"", **{"X-Error-Code": "GatedRepo", "X-Error-Message": "restricted"})
            return
        assert revision == self.hub.commit(hub_id), "files are asked for at the commit"
        path = self.hub.models[hub_id] / name
        if not path.is_file():
            self._answer(404, b"", **{"X-Error-Code": "EntryNotFound"})
            return
        self._piece(path)

    def _piece(self, path):
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if asked is None or not self.hub.knows_ranges:
            self._answer(200, path.read_bytes())
            return
        start, end = int(asked[1]), min(int(asked[2]), path.stat().st_size - 1)
        with path.open("rb") as file:
            file.seek(start)
            content = file.read(end - start + 1)
        self._answer(206, content, **{"Content-Range": f"bytes {start}-{end}/{path.stat().st_size}"})

    def _answer(self, status, content, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # the client may have read enough
            self.wfile.write(content)


@contextmanager
def running_hub():
    hub = FakeHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
