"""Mutations of JSON documents and of bytes, as an attacker would try them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Raw:
    """JSON text that goes in as it stands, valid or not."""

    text: str


ODD = (
    *(None, True, False, 0, 1, -1, 2, 7, 0.5, -0.0, 1e308, 2**31, 2**53 + 1, 2**63, 2**64, 10**12, 10**18, 10**30),
    *("", " ", "a", "9", "1e400", "0x10", "true", "../../x", "/etc/passwd", ".."),
    *("a/b", "a\0b", "\x1b[31m", "\n", "é", "🚀", "{{ 7 * 7 }}", "$(id)", "\u202e", "\u2028", "-" * 50),
    *("x" * 501, "x" * 70_000, "NaN"),
    *([], {}, [[]], [None], [0], [1, 2], ["x"], {"": 0}, {"a": {"b": {}}}, [1] * 1000, {"x": [{}] * 50}),
    *map(Raw, ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 39, "9" * 41, "9" * 5000, "-" + "9" * 5000)),
    *map(Raw, ('"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\uFEFF"')),
    *(Raw("[" * depth + "]" * depth) for depth in (60, 70, 500, 5_000)),
    *(Raw('{"a":' * depth + "0" + "}" * depth) for depth in (60, 70, 500, 5_000)),
    *(Raw(text) for text in ("", "nul", "{", "}", "[", "]", '"', "'x'", "//", "0x1", "01", "+1", ".5", "1.")),
)  # fmt: skip
KEYS = ("", "x", "__metadata__", "__proto__", "a\0b", "\x1b", "../x", "k" * 600, "\u2028", "model_type")
BYTES = (
    b"",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'"',
    b"\\",
    b",",
    b"}",
    b" " * 100_000,
)


def dump(value) -> bytes:
    """JSON text of a document that may hold `Raw`."""
    if isinstance(value, Raw):
        return value.text.encode()
    if isinstance(value, dict):
        return b"{" + b",".join(json.dumps(key).encode() + b":" + dump(item) for key, item in value.items()) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(dump, value)) + b"]"
    return json.dumps(value).encode()


def places(document, path=()):
    """Return the path to every value in a document, including itself."""
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, item in items:
        yield from places(item, (*path, key))


def _at(document, path):
    for key in path:
        document = document[key]
    return document


def _copied(document):
    if isinstance(document, dict):
        return {key: _copied(item) for key, item in document.items()}
    return [_copied(item) for item in document] if isinstance(document, list) else document


@st.composite
def changed_document(draw, document, *, most=3, odd=ODD, keys=KEYS):
    """The document with one to `most` values, keys or entries changed."""
    found = _copied(document)
    for _ in range(draw(st.sampled_from((1, 1, 1, *range(1, most + 1))))):
        path = draw(st.sampled_from(list(places(found))))
        if not path:
            if draw(st.integers(0, 19)) == 0:
                return _copied(draw(st.sampled_from(odd)))
            continue
        found = _changed_at(draw, found, path, odd, keys)
    return found


def _changed_at(draw, document, path, odd, keys):
    parent, key = _at(document, path[:-1]), path[-1]
    change = draw(st.sampled_from(("replace", "replace", "replace", "near", "remove", "rename", "add", "elsewhere")))
    if change == "near" and type(parent[key]) is int:
        parent[key] = draw(st.sampled_from((parent[key] + 1, parent[key] - 1, -parent[key], parent[key] * 1000)))
    elif change == "remove":
        del parent[key]
    elif change == "rename" and isinstance(parent, dict):
        parent[draw(st.sampled_from(keys))] = parent.pop(key)
    elif change == "add" and isinstance(parent, dict):
        parent[draw(st.sampled_from(keys))] = _copied(draw(st.sampled_from(odd)))
    elif change == "elsewhere":
        parent[key] = _copied(_at(document, draw(st.sampled_from(list(places(document))))))
    else:
        parent[key] = _copied(draw(st.sampled_from(odd)))
    return document


@st.composite
def changed_bytes(draw, content: bytes):
    """The content cut, with a piece put in, taken out or doubled, a byte changed, or in another encoding."""
    at, to = sorted((draw(st.integers(0, len(content))), draw(st.integers(0, len(content)))))
    change = draw(st.sampled_from(("cut", "insert", "remove", "double", "flip", "encode")))
    if change == "cut":
        return content[:at]
    if change == "insert":
        return content[:at] + draw(st.sampled_from(BYTES)) + content[at:]
    if change == "remove":
        return content[:at] + content[to:]
    if change == "double":
        return content[:to] + content[at:to] + content[to:]
    if change == "encode":
        return content.decode("latin-1").encode(draw(st.sampled_from(("utf-16", "utf-32", "utf-8-sig"))))
    return content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]


@st.composite
def changed_text(draw, document, **more):
    """A document's bytes, with changes to its values (mostly), to its bytes, or to both."""
    content = dump(draw(changed_document(document, **more)))
    return draw(changed_bytes(content)) if draw(st.integers(0, 4)) == 0 else content
