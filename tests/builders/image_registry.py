"""A registry with one image of noise on loopback: what `docker pull` asks for, with a password if wanted."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer(size_bytes: int) -> tuple[bytes, str]:
    """(what travels, the digest of what it unpacks to): noise, so that it stays as large as it is."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        noise = os.urandom(size_bytes)
        entry = tarfile.TarInfo(f"noise-{noise[:4].hex()}")
        entry.size = size_bytes
        archive.addfile(entry, io.BytesIO(noise))
    raw = content.getvalue()
    return gzip.compress(raw, compresslevel=1), digest(raw)


@dataclass
class Registry:
    """`sizes_bytes` of the layers of its only image, `name`:1. `served` are the blobs that were fetched."""

    sizes_bytes: tuple[int, ...] = (2_000_000, 5_000_000)
    name: str = "tiny"
    locked: bool = False
    served: list[str] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes = b""
    layers_bytes: int = 0

    def __enter__(self) -> Self:
        self._make_image()
        handler = type("Handler", (_Handler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def image(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}/{self.name}:1"

    def _make_image(self) -> None:
        layers = [layer(size) for size in self.sizes_bytes]
        self.layers_bytes = sum(len(packed) for packed, _ in layers)
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Cmd": ["/bin/true"]},
                "rootfs": {"type": "layers", "diff_ids": [unpacked for _, unpacked in layers]},
            }
        ).encode()
        self.blobs = {digest(blob): blob for blob in (config, *(packed for packed, _ in layers))}
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _described(config, _CONFIG),
                "layers": [_described(packed, _LAYER) for packed, _ in layers],
            }
        ).encode()


def _described(content: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "size": len(content), "digest": digest(content)}


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        registry, name = self.registry, self.path.rpartition("/")[2]
        if registry.locked and not self.headers.get("Authorization"):
            self._send(401, b"{}", "application/json", body=body, extra={"WWW-Authenticate": 'Basic realm="tests"'})
        elif self.path == "/v2/":
            self._send(200, b"{}", "application/json", body=body)
        elif "/manifests/" in self.path and name in {"1", digest(registry.manifest)}:
            self._send(200, registry.manifest, _MANIFEST, body=body)
        elif name in registry.blobs:
            registry.served.append(name)
            self._send(200, registry.blobs[name], "application/octet-stream", body=body)
        else:
            missing = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).encode()
            self._send(404, missing, "application/json", body=body)

    def _send(self, status: int, content: bytes, kind: str, *, body: bool, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Docker-Content-Digest", digest(content))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's own word
        pass
