"""Requests, whose bodies are parsed with the errors of the router's parser (axum, serde_path_to_error), and replies."""

from __future__ import annotations

import json
import re
from json import JSONDecodeError, JSONDecoder
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import yaml

from tgi_deploy.sandbox.engine.bodies import EXPECTED, Prompts
from tgi_deploy.values.base import Frozen, converted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from email.message import Message

_PREFIXES: Final = {"validation": "Input validation error: ", "template_error": "Template error: "}
_STATUS: Final = {"generation": 424, "overloaded": 429, "healthcheck": 503}  # 422 for all the others


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

    def chat_event(self) -> dict[str, object]:
        """Return the error as an event in a stream of the OpenAI routes."""
        return {"error": {"message": self.message, "http_status_code": self.status}}


class RejectionError(Exception):
    """The web framework rejects the body before the API sees it: plain text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


Body = TypeVar("Body", bound=msgspec.Struct)
_JSON: Final = re.compile(r"application/(json|.*\+json)")


class Reply(Frozen, frozen=True, kw_only=True):
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


def reply_text(text: str, *, status: int = 200, kind: str = "text/plain; charset=utf-8") -> Reply:
    return Reply(status=status, body=text.encode(), headers={"content-type": kind})


def reply_json(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(
        status=status, body=compact(value).encode(), headers={"content-type": "application/json", **(headers or {})}
    )


class Stream(Frozen, frozen=True, kw_only=True):
    """Server-sent events. `failure` makes an event of an error, `last` ends the stream."""

    events: Generator[object]
    headers: Mapping[str, str]
    failure: Callable[[ApiError], object]
    last: str = ""


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Request(Frozen, frozen=True, kw_only=True):
    headers: Message
    body: bytes
    limit_bytes: int

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def read(self, kind: type[Body]) -> Body:
        """Return the body. Raises RejectionError 400, 413, 415 or 422, like the web framework."""
        return typed(self.value(), kind, self.text)

    def value(self) -> object:
        """Return a body whose type follows from its members. Raises RejectionError 400, 413, 415 or 422."""
        if not _JSON.fullmatch((self.headers.get("Content-Type") or "").partition(";")[0]):
            raise RejectionError(415, "Expected request with `Content-Type: application/json`")
        if len(self.body) > self.limit_bytes:
            raise RejectionError(413, "Failed to buffer the request body: length limit exceeded")
        return _parsed(self.text)


def typed(value: object, kind: type[Body], text: str) -> Body:
    """Convert the value to the struct; a list has the members in order. Raises RejectionError 422."""
    names, members = kind.__struct_fields__, value
    if isinstance(members, list):
        members = dict(zip(names, members, strict=False))
    if isinstance(members, dict) and "max_completion_tokens" in members:
        members = {"max_tokens": members["max_completion_tokens"], **members}
    if isinstance(members, dict) and members.get("parameters") == []:
        members = {**members, "parameters": {}}
    try:
        return converted(members, kind, hook=lambda _kind, prompt: Prompts.parse(prompt))
    except msgspec.ValidationError as error:
        path, words = _complaint(str(error), members)
        if isinstance(value, list) and path:
            path = (names.index(str(path[0])), *path[1:])
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
        place = _end(text, path, custom="expected" not in words)
        raise undeserializable(f"{steps}{': ' if path else ''}{words}", place) from error


def undeserializable(reason: str, place: str = "") -> RejectionError:
    return RejectionError(422, f"Failed to deserialize the JSON body into the target type: {reason}{place}")


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _parsed(text: str) -> object:
    """Parse the first JSON value, ignoring the rest. Raises RejectionError 400.

    The router's parser also reports the enclosing member, and rejects duplicate members.
    """
    try:
        value = JSONDecoder(parse_constant=_no_constant).raw_decode(text.lstrip())[0]
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is not text
    except (ValueError, RecursionError) as error:
        if isinstance(error, JSONDecodeError) and error.pos >= len(text.rstrip()):
            problem = f"EOF while parsing {'an object' if text else 'a value'}{_place(text)}"
        else:
            problem = f"expected value{_place(text)}"
        raise RejectionError(400, f"Failed to parse the request body as JSON: {problem}") from error
    return value


_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_COMPLAINT: Final = re.compile(r"(?P<words>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)


def _complaint(message: str, body: object) -> tuple[tuple[str | int, ...], str]:
    """Return the position of a type mismatch in the body, and the parser's message."""
    parts = _COMPLAINT.fullmatch(message)
    words, steps = (parts["words"], parts["path"] or "") if parts else (message, "")
    path = tuple(name or int(number) for name, number in _STEP.findall(steps))
    if words.startswith("Object missing required field"):
        return path, f"missing field {words.rpartition(' ')[2]}"
    value: Any = body
    for step in path:
        value = value[step]
    if words.startswith("Invalid enum"):
        return path, f"unknown variant `{value}`, expected one of `json`, `json_object`, `regex`, `json_schema`"
    return path, _mismatch(words, path, value) if words.startswith("Expected") else words


def _mismatch(words: str, path: tuple[str | int, ...], value: object) -> str:
    kind = re.search(r"`(\w+)", words)
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    by_kind = EXPECTED.get(kind[1], kind[1]) if kind else ""
    wrong = "value" if re.search(r"[<>]=", words) else "type"
    expected = by_kind if path and isinstance(path[-1], int) else EXPECTED.get(name, by_kind)
    return f"invalid {wrong}: {_unexpected(value)}, expected {expected}"


def _unexpected(value: object) -> str:
    """Describe a value like serde."""
    if value is None or isinstance(value, list | dict):
        return "null" if value is None else "sequence" if isinstance(value, list) else "map"
    if isinstance(value, bool):
        return f"boolean `{str(value).lower()}`"
    if isinstance(value, str):
        return f'string "{value}"'
    return f"{'integer' if isinstance(value, int) else 'floating point'} `{value}`"


def _end(text: str, path: tuple[str | int, ...], *, custom: bool) -> str:
    """Return where a value ends. Errors other than type mismatches are reported after a following brace."""
    node: Any = yaml.compose(text or "{}", Loader=yaml.SafeLoader)
    for step in path if text else ():
        members = node.value if isinstance(step, int) else {key.value: value for key, value in node.value}
        node = members[step]
    end = int(node.end_mark.index)
    closed = re.match(r"\s*}", text[end:]) if custom and not isinstance(node, yaml.MappingNode) else None
    return _place(text[: end + closed.end()] if closed else text[:end])


def _place(before: str) -> str:
    line = before.count("\n") + 1
    return f" at line {line} column {len(before) - before.rfind(chr(10)) - 1}"
