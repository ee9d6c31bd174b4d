"""Pulls an image on a host, reporting the megabytes downloaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.docker.errors import FAILURES, refused
from tgi_deploy.targets.reply import Reply, understood

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tgi_deploy.reconcile.ports import Clock, Listener
    from tgi_deploy.targets.docker.api import Api

_MB: Final = 10**6
_SHOW_EVERY_S: Final = 0.2
_DONE: Final = frozenset({"Download complete", "Pull complete", "Already exists"})
_COUNTED: Final = frozenset({"Downloading", *_DONE})
_UNPACKING: Final = "Extracting"


@dataclass(slots=True)
class Layers:
    """Download progress of an image's layers, from Docker's messages, in bytes over the network."""

    done: dict[str, int] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)
    unpacking: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)

    def add(self, message: Reply) -> None:
        layer, status = message.optional_text("id"), message.optional_text("status")
        if status not in {*_COUNTED, _UNPACKING} or not layer:
            return
        if status == "Downloading":
            self._count(layer, message.optional_part("progressDetail"))
        elif status == _UNPACKING:
            self.unpacking.add(layer)
        else:
            self.done[layer] = self.total.get(layer, 0)
            if status != "Download complete":
                self.unpacking.discard(layer)
                self.finished.add(layer)

    def _count(self, layer: str, detail: Reply) -> None:
        current, total = detail.integer("current"), detail.integer("total")
        self.done[layer] = current
        self.total[layer] = max(current, total)

    @property
    def done_bytes(self) -> int:
        return sum(self.done.values())

    @property
    def total_bytes(self) -> int:
        return sum(self.total.values())

    def __str__(self) -> str:
        received = f"{self.done_bytes / _MB:,.0f} of {self.total_bytes / _MB:,.0f} MB"
        return f"{received}, unpacking" if self.unpacking and self.done_bytes == self.total_bytes else received


def pull(api: Api, image: str, *, listener: Listener, clock: Clock) -> bool:
    """Pull `image` unless the host has it, and return whether it was pulled.

    Raises HostRefusedError (`image_not_found`, `image_access_denied`, `disk_full`, …), or the unreachable host's error.
    """
    if api.look("looking for the image", lambda client: client.inspect_image(image), _has_id):
        return False
    began, layers = clock.monotonic(), Layers()

    def read(stream: Iterable[object]) -> None:
        show = _Throttled(began=began, listener=listener, clock=clock)
        for message in _messages(stream):
            if message.has("error"):
                raise refused(message.text("error"), api.table, doing=f"pulling {image}")
            layers.add(message)
            show(layers)

    api.ask(f"pulling {image}", lambda client: client.pull(image, stream=True, decode=True), read)
    listener.line(f"pulled {image}: {layers.total_bytes / _MB:,.0f} MB in {clock.monotonic() - began:.0f} s")
    return True


def _has_id(image: object) -> bool:
    return bool(Reply.of(image).text("Id"))


def _messages(stream: Iterable[object]) -> Iterator[Reply]:
    """Yield the messages. A broken or invalid stream raises FAILURES or ReplyError."""
    with understood(FAILURES):
        yield from map(Reply.of, stream)


@dataclass(slots=True)
class _Throttled:
    """Reports a few of the hundreds of messages per second that Docker sends."""

    began: float
    listener: Listener
    clock: Clock
    last_shown_s: float = float("-inf")

    def __call__(self, layers: Layers) -> None:
        now = self.clock.monotonic()
        if now - self.last_shown_s >= _SHOW_EVERY_S:
            self.last_shown_s = now
            self.listener.phase("pulling", str(layers), now - self.began, 0.0)
