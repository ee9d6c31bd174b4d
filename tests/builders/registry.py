"""A read-only registry with one image and without TLS, for `docker pull`. Docker accepts such a registry on a loopback
address, or if `insecure-registries` lists its network.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
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
_UNKNOWN = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).encode()


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """`layers` are digests; `blobs` has the file of each, and of the config."""

    config: str
    layers: tuple[str, ...]
    blobs: dict[str, Path]

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        return tuple(self.blobs[layer].stat().st_size for layer in self.layers)

    @property
    def manifest(self) -> bytes:
        document = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._described(self.config, _CONFIG),
            "layers": [self._described(layer, _LAYER) for layer in self.layers],
        }
        return json.dumps(document).encode()

    def _described(self, name: str, media_type: str) -> dict[str, Any]:
        return {"mediaType": media_type, "size": self.blobs[name].stat().st_size, "digest": name}


def saved_image(archive: Path, folder: Path) -> Image:
    """Return the image that `docker save` wrote to `archive`, unpacked in `folder`."""
    with tarfile.open(archive) as saved:
        # `extractall(filter=…)` came with Python 3.11.4; before it, this attribute is without effect.
        saved.extraction_filter = getattr(tarfile, "data_filter", None)
        saved.extractall(folder)  # noqa: S202 -- an archive that docker wrote for this test
    listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))[0]
    return _image(folder / listed["Config"], [folder / layer for layer in listed["Layers"]])


def noise_image(folder: Path, sizes_bytes: tuple[int, ...] = (2_000_000, 5_000_000)) -> Image:
    """Return an image with a random layer of each size, which no other test has pulled."""
    layers = [_noise(folder / f"layer-{at}.tar", size) for at, size in enumerate(sizes_bytes)]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/true"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in layers]},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return _image(path, layers)


def _noise(path: Path, size_bytes: int) -> Path:
    with tarfile.open(path, mode="w") as archive:
        noise = os.urandom(size_bytes)
        entry = tarfile.TarInfo(f"noise-{noise[:4].hex()}")
        entry.size = size_bytes
        archive.addfile(entry, io.BytesIO(noise))
    return path


def _image(config: Path, layers: list[Path]) -> Image:
    names = {_digest(path): path for path in (config, *layers)}
    return Image(config=_digest(config), layers=tuple(_digest(layer) for layer in layers), blobs=names)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(kw_only=True, slots=True)
class Registry:
    """Any name with the tag returns the one image. The first `refusals` requests get 503. `locked`: it requires a
    login; `bytes_per_s` limits each layer's stream; `asked` lists the requests.
    """

    image: Image
    tag: str = "1"
    address: str = ""
    locked: bool = False
    refusals: int = 0
    bytes_per_s: float | None = None
    asked: list[str] = field(default_factory=list)

    def reference(self, tag: str | None = None) -> str:
        return f"{self.address}/huggingface/text-generation-inference:{tag or self.tag}"

    @property
    def fetched(self) -> list[str]:
        """Blobs, in order."""
        return [path for path in self.asked if "/blobs/" in path]


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
        manifest = registry.image.manifest
        digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
        if registry.refusals > 0:
            registry.refusals -= 1
            self._send(503)
        elif registry.locked and not self.headers.get("Authorization"):
            self._send(401, headers={"WWW-Authenticate": 'Basic realm="tests"'})
        elif self.path == "/v2/":
            self._send(200)
        elif found and found["kind"] == "manifests" and found["reference"] in {registry.tag, digest}:
            headers = {"Content-Type": _MANIFEST, "Docker-Content-Digest": digest}
            self._send(200, manifest, headers, with_body=with_body)
        elif found and found["reference"] in registry.image.blobs:
            self._send_file(registry.image.blobs[found["reference"]], with_body=with_body)
        else:
            self._send(404, _UNKNOWN, {"Content-Type": "application/json"}, with_body=with_body)

    def _send(
        self, status: int, content: bytes = b"", headers: dict[str, str] | None = None, *, with_body: bool = True
    ) -> None:
        self._start(status, len(content), headers or {})
        if with_body:
            self.wfile.write(content)

    def _send_file(self, path: Path, *, with_body: bool) -> None:
        self._start(200, path.stat().st_size, {"Content-Type": "application/octet-stream"})
        rate = self.registry.bytes_per_s
        with path.open("rb") as file:
            while with_body and (chunk := file.read(_CHUNK_BYTES)):
                self.wfile.write(chunk)
                if rate:
                    time.sleep(len(chunk) / rate)

    def _start(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        always = {"Docker-Distribution-Api-Version": "registry/2.0", "Content-Length": str(length)}
        for name, value in (always | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Print nothing: the requests are in `asked`."""


@contextmanager
def serving(image: Image, *, host: str = "127.0.0.1", **conduct: Any) -> Iterator[Registry]:
    """Run a registry for `image` that behaves as configured."""
    registry = Registry(image=image, **conduct)
    server = ThreadingHTTPServer((host, 0), type("Handler", (_Handler,), {"registry": registry}))
    server.daemon_threads = True
    registry.address = f"{host}:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
