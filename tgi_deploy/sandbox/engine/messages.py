"""What the server and the routes exchange: requests, replies, and the two kinds of errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from email.message import Message

_PREFIXES: Final = {"validation": "Input validation error: ", "template_error": "Template error: "}
_STATUS: Final = {"generation": 424, "overloaded": 429, "healthcheck": 503}  # 422 for all the others
_SHAPES: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("replies.json").read_text(encoding="utf-8"))
_MISSING: Final = object()
_JSON: Final = re.compile(r"application/(json|.*\+json)")


class ApiError(Exception):
    """An API error: JSON with `error` and `error_type`, or the same as an event of a stream."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.bare = message
        self.message = _PREFIXES.get(kind, "") + message
        self.status = _STATUS.get(kind, 422)

    def body(self) -> dict[str, str]:
        return {"error": self.message, "error_type": self.kind}


class RejectionError(Exception):
    """The web framework rejects the body before the API sees it: plain text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Request(Frozen, frozen=True, kw_only=True):
    headers: Message
    body: bytes
    limit_bytes: int

    def json_text(self) -> str:
        """Return the body. Raises RejectionError 413 or 415, like the web framework."""
        if not _JSON.fullmatch((self.headers.get("Content-Type") or "").partition(";")[0]):
            raise RejectionError(415, "Expected request with `Content-Type: application/json`")
        if len(self.body) > self.limit_bytes:
            raise RejectionError(413, "Failed to buffer the request body: length limit exceeded")
        return self.body.decode("utf-8", "replace")


class Reply(Frozen, frozen=True, kw_only=True):
    """A reply; `events` are the data of server-sent events, in place of a body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}
    events: Generator[str] | None = None


def reply_text(text: str, *, status: int = 200, kind: str = "text/plain; charset=utf-8") -> Reply:
    return Reply(status=status, body=text.encode(), headers={"content-type": kind})


def reply_json(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    every = {"content-type": "application/json", **(headers or {})}
    return Reply(status=status, body=compact(value).encode(), headers=every)


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shaped(name: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return a shape of `replies.json` with values for its `$names`; a member without a value is left out."""
    found: dict[str, Any] = _filled(_SHAPES[name], values)
    return found


def _filled(shape: Any, values: Mapping[str, object]) -> Any:  # noqa: ANN401 -- any JSON value
    if isinstance(shape, str) and shape.startswith("$"):
        return values.get(shape[1:], _MISSING)
    if isinstance(shape, list):
        return [_filled(item, values) for item in shape]
    if isinstance(shape, dict):
        return {name: found for name, item in shape.items() if (found := _filled(item, values)) is not _MISSING}
    return shape
