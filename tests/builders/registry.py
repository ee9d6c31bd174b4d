"""A registry of images, read-only and without TLS: what `docker pull` asks for, out of what `docker save` wrote.

Docker takes such a registry on a loopback address, and where `insecure-registries` names its network.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DOCKER = "application/vnd.docker"
_MANIFEST = f"{_DOCKER}.distribution.manifest.v2+json"
_CONFIG = f"{_DOCKER}.container.image.v1+json"
_LAYER = f"{_DOCKER}.image.rootfs.diff.tar"
_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/]+)")
_CHUNK_BYTES = 256 * 1024


@dataclass(kw_only=True, slots=True)
class Registry:
    """Any name and tag leads to the one image. `refusals` is how many requests are answered with 503 first.

    `bytes_per_s` limits each layer's stream; `asked` is what was asked for, in order.
    """

    address: str = ""
    manifest: bytes = b""
    blobs: dict[str, Path] = field(default_factory=dict)
    refusals: int = 0
    bytes_per_s: float | None = None
    asked: list[str] = field(default_factory=list)

    def image(self, tag: str) -> str:
        return f"{self.address}/huggingface/text-generation-inference:{tag}"

    def load(self, archive: Path, folder: Path) -> None:
        with tarfile.open(archive) as saved:
            saved.extractall(folder, filter="data")
        listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))[0]
        document = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._blob(folder / listed["Config"], _CONFIG),
            "layers": [self._blob(folder / layer, _LAYER) for layer in listed["Layers"]],
        }
        self.manifest = json.dumps(document).encode()

    def _blob(self, path: Path, media_type: str) -> dict[str, Any]:
        with path.open("rb") as file:
            digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        self.blobs[digest] = path
        return {"mediaType": media_type, "size": path.stat().st_size, "digest": digest}


class _Handler(BaseHTTPRequestHandler):
    registry: Registry
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def do_GET(self) -> None:
        self._serve(with_body=True)

    def _serve(self, *, with_body: bool) -> None:
        registry, found = self.registry, _PATH.fullmatch(self.path)
        registry.asked.append(self.path)
        if registry.refusals > 0:
            registry.refusals -= 1
            self._start(503, 0)
        elif self.path == "/v2/":
            self._start(200, 0)
        elif found and found["kind"] == "manifests":
            digest = "sha256:" + hashlib.sha256(registry.manifest).hexdigest()
            self._start(200, len(registry.manifest), {"Content-Type": _MANIFEST, "Docker-Content-Digest": digest})
            if with_body:
                self.wfile.write(registry.manifest)
        elif found and found["reference"] in registry.blobs:
            self._send(registry.blobs[found["reference"]], with_body=with_body)
        else:
            self._start(404, 0)

    def _start(self, status: int, length: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        version = {"Docker-Distribution-Api-Version": "registry/2.0"}
        for name, value in (version | {"Content-Length": str(length)} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, path: Path, *, with_body: bool) -> None:
        self._start(200, path.stat().st_size, {"Content-Type": "application/octet-stream"})
        rate = self.registry.bytes_per_s
        with path.open("rb") as file:
            while with_body and (chunk := file.read(_CHUNK_BYTES)):
                self.wfile.write(chunk)
                if rate:
                    time.sleep(len(chunk) / rate)

    def log_message(self, *_arguments: object) -> None:
        """What was asked is in `asked`."""


@contextmanager
def serving(archive: Path, folder: Path, *, host: str = "127.0.0.1") -> Iterator[Registry]:
    """A registry of the image that `docker save` wrote to `archive`; `folder` is its own."""
    registry = Registry()
    registry.load(archive, folder)
    server = ThreadingHTTPServer((host, 0), type("Handler", (_Handler,), {"registry": registry}))
    server.daemon_threads = True
    registry.address = f"{host}:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
