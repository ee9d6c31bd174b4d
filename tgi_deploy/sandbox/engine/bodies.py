"""Requests and replies: bodies read by the router's structs (`bodies.json`), answers in the shapes of `replies.json`.

Errors have the texts of the router's web framework and parser: axum, serde and serde_path_to_error.
"""

from __future__ import annotations

import json
import re
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.base import Frozen, replaced

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from email.message import Message

# The members of a struct are its attributes.
Body = SimpleNamespace
Members = dict[str, Any]
_TABLE: Final = json.loads(Path(__file__).with_name("bodies.json").read_text(encoding="utf-8"))
_SHAPES: Final[Members] = json.loads(Path(__file__).with_name("replies.json").read_text(encoding="utf-8"))
_STRUCTS: Final[dict[str, dict[str, str]]] = _TABLE["structs"]
_SCALARS: Final[dict[str, Any]] = _TABLE["scalars"]
_DEFAULTS: Final[dict[str, type]] = {"bool": bool, "Vec": list}
_PREFIXES: Final = {"validation": "Input validation error: ", "template_error": "Template error: "}
_STATUS: Final = {"generation": 424, "overloaded": 429, "healthcheck": 503}  # 422 for all the others
_MISSING: Final = object()
_JSON: Final = re.compile(r"application/(json|.*\+json)")


class Reply(Frozen, frozen=True, kw_only=True):
    """A reply; `events` are the data of server-sent events, in place of a body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}
    events: Generator[str] | None = None


class RejectionError(Exception):
    """A reply in place of an answer: plain text if the web framework rejects the body before the API sees it."""

    def __init__(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        super().__init__(text)
        self.reply = replaced(reply_text(text, kind), status=status)


class ApiError(RejectionError):
    """An API error: JSON with `error` and `error_type`, or the same as an event of a stream."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.bare = kind, message
        self.body = {"error": _PREFIXES.get(kind, "") + message, "error_type": kind}
        super().__init__(_STATUS.get(kind, 422), compact(self.body), "application/json")


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


def reply_text(text: str, kind: str = "text/plain; charset=utf-8") -> Reply:
    return Reply(body=text.encode(), headers={"content-type": kind})


def reply_json(value: object, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(body=compact(value).encode(), headers={"content-type": "application/json", **(headers or {})})


# Built once, because `json.dumps` builds one for each call.
compact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def shaped(name: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return a shape of `replies.json` with values for its `$names`; a member without a value is left out."""
    found: dict[str, Any] = _filled(_SHAPES[name], values)
    return found


def _filled(shape: Any, values: Mapping[str, object]) -> Any:  # noqa: ANN401 -- any JSON value
    if isinstance(shape, str):
        return values.get(shape[1:], _MISSING) if shape[:1] == "$" else shape
    if isinstance(shape, dict):
        return {name: found for name, item in shape.items() if (found := _filled(item, values)) is not _MISSING}
    return [_filled(item, values) for item in shape] if isinstance(shape, list) else shape


class _TypeMismatchError(Exception):
    """A value has the wrong type. `path` is where it is; each caller prepends its step."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words
        self.path: list[str | int] = []


def parsed(text: str) -> object:
    """Parse the first JSON value, ignoring the rest. Raises RejectionError 400.

    The router's parser also reports the enclosing member, and rejects duplicate members.
    """
    try:
        value = JSONDecoder(parse_constant=_no_constant).raw_decode(text.lstrip())[0]
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is not text
    except (ValueError, RecursionError) as error:
        cut = isinstance(error, JSONDecodeError) and error.pos >= len(text.rstrip())
        problem = f"EOF while parsing {'an object' if text else 'a value'}" if cut else "expected value"
        raise RejectionError(400, f"Failed to parse the request body as JSON: {problem}{_place(text)}") from error
    return value


def _no_constant(name: str) -> float:
    raise ValueError(name)


def undeserializable(problem: str) -> RejectionError:
    return RejectionError(422, f"Failed to deserialize the JSON body into the target type: {problem}")


def read(value: object, struct: str, text: str = "") -> Body:
    """Return the struct of a value that was parsed from `text`. Raises RejectionError 422."""
    try:
        return _struct(value, struct)
    except _TypeMismatchError as mismatch:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in mismatch.path).lstrip(".")
        where = _end(text, mismatch.path, custom="expected" not in mismatch.words)
        raise undeserializable(f"{steps}{': ' if steps else ''}{mismatch.words}{where}") from mismatch


def parameters(**given: object) -> Body:
    """Return `parameters` of a generate request, in the order of the engine's log."""
    return _struct(given, "GenerateParameters")


def _struct(value: Any, name: str) -> Body:  # noqa: ANN401 -- any JSON value
    """Read an object, or a list that has the members in order."""
    fields = _STRUCTS[name]
    if isinstance(value, list):
        members = dict(zip(fields, enumerate(value), strict=False))
    elif isinstance(value, dict):
        members = {_TABLE["aliases"].get(step, step): (step, item) for step, item in value.items()}
    else:
        raise _mismatch(value, name)
    found = {}
    for field, kind in fields.items():
        if field in members:
            found[field] = _member(*members[field], kind)
        elif field in _TABLE["required"]:
            raise _TypeMismatchError(f"missing field `{field}`")
        else:
            default = _DEFAULTS.get(kind.partition("<")[0], type(None))
            found[field] = _struct({}, kind) if kind in _STRUCTS else default()
    if name == "Message" and not isinstance(found["content"], str | list) and found["tool_calls"] is None:
        raise _TypeMismatchError("data did not match any variant of untagged enum MessageBody")
    return Body(**found)


def _member(step: str | int, value: object, kind: str) -> Any:  # noqa: ANN401 -- as `_read`
    try:
        return _read(value, kind)
    except _TypeMismatchError as mismatch:
        mismatch.path.insert(0, step)
        raise


def _read(value: Any, kind: str) -> Any:  # noqa: ANN401 -- any JSON value
    outer, _, inner = kind.removesuffix(">").partition("<")
    if outer == "Option":
        return None if value is None else _read(value, inner)
    if outer in _STRUCTS:
        return _struct(value, outer)
    if outer == "Prompt":
        return _prompts(value)
    scalar = _SCALARS[outer]
    if type(value).__name__ not in scalar.get("types", _TABLE["described"]):
        raise _mismatch(value, outer)
    if "least" in scalar and not scalar["least"] <= value <= scalar["most"]:
        raise _mismatch(value, outer, "value")
    if value not in scalar.get("variants", (value,)):
        known = ", ".join(f"`{name}`" for name in scalar["variants"])
        raise _TypeMismatchError(f"unknown variant `{value}`, expected one of {known}")
    if outer == "Vec":
        return [_member(place, item, inner) for place, item in enumerate(value)]
    return float(value) if outer == "f32" else value


def _prompts(value: object) -> list[str]:
    """Return one prompt or several."""
    prompts: list[Any] = value if isinstance(value, list) else [value]
    if not prompts:
        raise _TypeMismatchError("Empty array detected. Do not use an empty array for the prompt.")
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise _TypeMismatchError("data did not match any variant of untagged enum PromptDeserializer")
    return prompts


def _mismatch(value: object, kind: str, wrong: str = "type") -> _TypeMismatchError:
    """Return the error of a value that is not of this kind, in serde's words."""
    expected = _TABLE["expected"].get(kind, f"struct {kind}" if kind in _STRUCTS else kind)
    described = _TABLE["described"][type(value).__name__].format(json.dumps(value, ensure_ascii=False))
    return _TypeMismatchError(f"invalid {wrong}: {described}, expected {expected}")


def _end(text: str, path: list[str | int], *, custom: bool) -> str:
    """Return where a value ends. Errors other than type mismatches are reported after a following brace."""
    import yaml  # noqa: PLC0415 -- few requests are rejected, and importing it takes as long as half of the server

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
