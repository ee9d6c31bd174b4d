"""The wire between the SDK and its cloud: counts requests, and corrupts replies below the SDK's parsers. The request
has taken effect by then, unless the reply comes from an intermediary (`INTERCEPTED`), such as a login page.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.httpsession import URLLib3Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAGE = (
    b"<!DOCTYPE html><html><head><meta charset=utf-8><title>Welcome</title></head><body>Log in<br>first</body></html>"
)
_NEAT_PAGE = b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>Log in first</p></body></html>'
_KEPT = re.compile(r"(?:\{.*\})?(requestId|RequestId|RequestID|ResponseMetadata)")


@dataclass
class Spoiled:
    """A corrupted reply, as the SDK's parsers read it."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/html"})

    def stream(self, *_size: int, **_options: Any) -> Iterator[bytes]:
        yield self.body


def _cut(body: bytes) -> bytes:
    return body[: len(body) * 6 // 10]


def _without_members(body: bytes) -> bytes:
    """Return the same kind of document with only the cloud's request id."""
    if not body.lstrip().startswith(b"<"):
        return b"{}"
    root = ET.fromstring(body)  # noqa: S314 -- the sandbox's own
    for child in list(root):
        if not _KEPT.fullmatch(child.tag):
            root.remove(child)
    return ET.tostring(root)


def _of_other_types(body: bytes) -> bytes:
    """Replace numbers and times with texts, and texts and lists with numbers."""
    if not body.lstrip().startswith(b"<"):
        return json.dumps({name: _of_another_type(value) for name, value in json.loads(body or b"{}").items()}).encode()
    root = ET.fromstring(body)  # noqa: S314 -- as above
    for node in root.iter():
        if not list(node) and not _KEPT.fullmatch(node.tag):
            node.text = "?"
    return ET.tostring(root)


def _of_another_type(value: object) -> object:
    return [value] if isinstance(value, dict) else "?" if isinstance(value, (int, float)) else 5


def _other_protocol(body: bytes) -> bytes:
    return b'{"Reservations": [], "Return": true}' if body.lstrip().startswith(b"<") else b"<Response><ok/></Response>"


def _failure(body: bytes) -> bytes:
    if body.lstrip().startswith(b"<"):
        return (
            b"<Response><Errors><Error><Code>InternalError</Code><Message>sorry</Message></Error></Errors></Response>"
        )
    return b'{"__type": "InternalServerError", "message": "sorry"}'


# Corrupted replies after the request has taken effect: (status, or None for the original one; body → body).
SPOILED: dict[str, tuple[int | None, Callable[[bytes], bytes]]] = {
    "cut": (None, _cut),
    "empty": (None, lambda _body: b""),
    "without members": (None, _without_members),
    "of other types": (None, _of_other_types),
    "of another protocol": (None, _other_protocol),
    "a failure after its effect": (500, _failure),
}
INTERCEPTED: dict[str, Spoiled] = {
    "a login page": Spoiled(200, _PAGE),
    "a neat login page": Spoiled(200, _NEAT_PAGE),
    "a redirect to a login page": Spoiled(
        302, _PAGE, {"Content-Type": "text/html", "Location": "http://login.example/"}
    ),
    "a proxy's refusal": Spoiled(407, _PAGE),
    "a gateway's failure": Spoiled(502, _PAGE),
}
KINDS = (*SPOILED, *INTERCEPTED)


@dataclass
class Wire:
    """`calls` are the actions of all requests. From the `at`-th on, the replies to `times` requests are spoiled."""

    calls: list[str] = field(default_factory=list)
    kind: str = ""
    at: int = 0
    times: int = 0
    _http: URLLib3Session = field(default_factory=lambda: URLLib3Session(proxies={}))

    def close(self) -> None:
        self._http.close()

    def watch(self) -> None:
        """Reset the count, and spoil nothing."""
        self.calls, self.kind = [], ""

    def spoil(self, kind: str, *, at: int, times: int = 1) -> None:
        """Reset the count, and spoil."""
        self.calls, self.kind, self.at, self.times = [], kind, at, times

    @property
    def struck(self) -> str:
        """Return the action whose reply was corrupted first; empty if there were fewer requests."""
        return self.calls[self.at] if self.kind and self.at < len(self.calls) else ""

    def attach(self, events: Any) -> None:
        """Handle the requests of all clients that are created from this SDK session from now on."""
        events.register_last("before-send", self._send)

    def _send(self, request: Any, event_name: str, **_rest: Any) -> AWSResponse | None:
        number = len(self.calls)
        self.calls.append(event_name.rpartition(".")[2])
        if not self.kind or not self.at <= number < self.at + self.times:
            return None
        return response(request.url, INTERCEPTED.get(self.kind) or self._spoiled(request))

    def _spoiled(self, request: Any) -> Spoiled:
        """Let the request take effect, then corrupt its reply."""
        status, spoil = SPOILED[self.kind]
        real = self._http.send(request)
        return Spoiled(status or real.status_code, spoil(real.content), dict(real.headers))


def response(url: str, reply: Spoiled) -> AWSResponse:
    return AWSResponse(url, reply.status, HeadersDict(reply.headers), reply)


@dataclass
class Tape:
    """Records replies by action, or plays recorded ones: in their order, and the last of them from then on.

    `changed` is the body of the one played reply, (action, number), that is not as it was recorded.
    """

    replies: dict[str, list[Spoiled]] = field(default_factory=dict)
    recording: bool = True
    changed: tuple[str, int, bytes] = ("", 0, b"")
    _played: dict[str, int] = field(default_factory=dict)
    _http: URLLib3Session = field(default_factory=lambda: URLLib3Session(proxies={}))

    def close(self) -> None:
        self._http.close()

    def record(self) -> dict[str, list[Spoiled]]:
        """Start a recording and return it; it is filled later."""
        self.replies = {}
        return self.replies

    def play(self, replies: dict[str, list[Spoiled]], action: str, number: int, body: bytes) -> None:
        self.recording, self.replies, self.changed, self._played = False, replies, (action, number, body), {}

    def attach(self, events: Any) -> None:
        events.register_last("before-send", self._send)

    def _send(self, request: Any, event_name: str, **_rest: Any) -> AWSResponse:
        action = event_name.rpartition(".")[2]
        if self.recording:
            real = self._http.send(request)
            self.replies.setdefault(action, []).append(Spoiled(real.status_code, real.content, dict(real.headers)))
            return real
        known = self.replies[action]
        number = min(self._played.get(action, 0), len(known) - 1)
        self._played[action] = number + 1
        reply = replace(known[number], body=self.changed[2]) if self.changed[:2] == (action, number) else known[number]
        return response(request.url, reply)


def variants(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the reply with one member missing, empty or of another type; in a list, only in its first item."""
    if body.lstrip().startswith(b"<"):
        yield from _xml_variants(body)
    elif body:
        yield from _json_variants(json.loads(body))


def _xml_variants(body: bytes) -> Iterator[tuple[str, bytes]]:
    root = ET.fromstring(body)  # noqa: S314 -- the sandbox's own
    for path, parent, node in list(_members(root, "")):
        at = list(parent).index(node)
        parent.remove(node)
        yield f"{path} missing", ET.tostring(root)
        for what, other in (("empty", ET.Element(node.tag)), ("another text", _element(node.tag, "?"))):
            parent.insert(at, other)
            yield f"{path} {what}", ET.tostring(root)
            parent.remove(other)
        parent.insert(at, node)


def _members(node: ET.Element, path: str) -> Iterator[tuple[str, ET.Element, ET.Element]]:
    seen = set()
    for child in node:
        name = child.tag.rpartition("}")[2]
        if name not in seen:
            seen.add(name)
            yield f"{path}/{name}", node, child
            yield from _members(child, f"{path}/{name}")


def _element(tag: str, text: str) -> ET.Element:
    made = ET.Element(tag)
    made.text = text
    return made


def _json_variants(document: Any) -> Iterator[tuple[str, bytes]]:
    for path, holder, key in list(_places(document, "")):
        known = holder[key]
        for other in (None, "", "?", 5, True, 1e400, [], {}, [5], {"?": 5}):
            holder[key] = other
            yield f"{path} is {other}", json.dumps(document).encode()
        holder[key] = known


def _places(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(min(1, len(value))) if isinstance(value, list) else ()
    for key in keys:
        yield f"{path}/{key}", value, key
        yield from _places(value[key], f"{path}/{key}")
