"""The wire between the SDK and its cloud: counts the requests, and spoils what comes back.

What is spoiled are the bytes below the SDK's own parsers. A request has taken effect by then, unless its kind of
reply comes from something in between (`INTERCEPTED`): a login page lets nothing through.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
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
    """What the SDK's parsers get to see."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/html"})

    def stream(self, *_size: int, **_options: Any) -> Iterator[bytes]:
        yield self.body


def _cut(body: bytes) -> bytes:
    return body[: len(body) * 6 // 10]


def _without_members(body: bytes) -> bytes:
    """The same kind of document with nothing in it but the cloud's request id."""
    if not body.lstrip().startswith(b"<"):
        return b"{}"
    root = ET.fromstring(body)  # noqa: S314 -- the sandbox's own
    for child in list(root):
        if not _KEPT.fullmatch(child.tag):
            root.remove(child)
    return ET.tostring(root)


def _of_other_types(body: bytes) -> bytes:
    """Texts where numbers and moments are expected, numbers where texts and lists are."""
    if not body.lstrip().startswith(b"<"):
        return json.dumps({name: _of_another_type(value) for name, value in json.loads(body or b"{}").items()}).encode()
    root = ET.fromstring(body)  # noqa: S314 -- likewise
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


# Kinds of replies that come after the request has taken effect: (status or None for its own, body → body).
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

    def watch(self) -> None:
        """Count anew, and spoil nothing."""
        self.calls, self.kind = [], ""

    def spoil(self, kind: str, *, at: int, times: int = 1) -> None:
        """Count anew, and spoil."""
        self.calls, self.kind, self.at, self.times = [], kind, at, times

    @property
    def struck(self) -> str:
        """The action whose reply was spoiled first; empty when that many requests were never made."""
        return self.calls[self.at] if self.kind and self.at < len(self.calls) else ""

    def attach(self, events: Any) -> None:
        """Stand on the wire of all clients that are made of this SDK session from now on."""
        events.register_last("before-send", self._send)

    def _send(self, request: Any, event_name: str, **_rest: Any) -> AWSResponse | None:
        number = len(self.calls)
        self.calls.append(event_name.rpartition(".")[2])
        if not self.kind or not self.at <= number < self.at + self.times:
            return None
        return response(request.url, INTERCEPTED.get(self.kind) or spoiled(self.kind, request))


def spoiled(kind: str, request: Any) -> Spoiled:
    """Have the request take effect, then spoil its reply."""
    status, spoil = SPOILED[kind]
    real = URLLib3Session(proxies={}).send(request)
    return Spoiled(status or real.status_code, spoil(real.content), dict(real.headers))


def response(url: str, reply: Spoiled) -> AWSResponse:
    return AWSResponse(url, reply.status, HeadersDict(reply.headers), reply)
