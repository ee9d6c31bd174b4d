"""Parses untrusted JSON (of a model, a hub, a record, a log) with limits on size, depth, numbers and memory.

The standard parser accepts input that causes problems later: NaN, lone surrogates, nesting up to the interpreter's
limit, and small texts that need thirty times their size in memory. The last of duplicate keys counts, as in the engine
and in Python.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

MOST_BYTES: Final = 32 * 2**20
MOST_DEPTH: Final = 64
# transformers writes int(1e30) as the length of a tokenizer without a limit: 31 digits.
_MOST_DIGITS: Final = 40
# The memory that one document may need during parsing, by the estimate below.
_MOST_MEMORY_BYTES: Final = 128 * 2**20
# Never less than CPython 3.11 needs, measured with tracemalloc: 184 and a pointer for an object with one key.
_CONTAINER_BYTES: Final = 200
_ENTRY_BYTES: Final = 100
# Copies of the text: the bytes, the characters, the strings in the document; beyond ASCII, each at up to four bytes per
# character, and one more to find lone surrogates.
_ASCII_COPIES: Final = 3
_WIDE_COPIES: Final = 13


def parse(content: bytes | str, *, infinite: bool = False) -> Any:  # noqa: ANN401 -- any JSON value
    """Return the document in `content`; `infinite` allows NaN and Infinity.

    Raises:
        ValueError: with the reason as the end of a sentence.
    """
    data = content.encode() if isinstance(content, str) else content
    _check_size(data)
    try:
        document = (_LENIENT if infinite else _STRICT).decode(data.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except json.JSONDecodeError as problem:
        raise ValueError(f"it is not JSON: {problem}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(document)
    if b"\\ud" in data or b"\\uD" in data:
        _check_pairs(document)
    return document


def parse_object(content: bytes | str, *, infinite: bool = False) -> dict[str, Any]:
    """Return the JSON object in `content`. Raises ValueError for anything else, with the reason like `parse`."""
    document = parse(content, infinite=infinite)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 -- the content is invalid, not the type of the argument
    return document


_TOO_DEEP: Final = f"it is nested more than {MOST_DEPTH} deep"


def _check_size(data: bytes) -> None:
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES // 2**20} MiB")
    containers = data.count(b"[") + data.count(b"{")
    is_narrow = data.isascii() and b"\\u" not in data
    needed = (
        containers * _CONTAINER_BYTES
        + data.count(b",") * _ENTRY_BYTES
        + len(data) * (_ASCII_COPIES if is_narrow else _WIDE_COPIES)
    )
    if needed > _MOST_MEMORY_BYTES:
        raise ValueError("it is larger than its memory limit")


def _check_depth(document: object) -> None:
    """Check level by level: a recursive function would itself exceed the depth limit."""
    level: list[Any] = [document] if type(document) in {dict, list} else []
    for _ in range(MOST_DEPTH):
        if not level:
            return
        level = [
            value
            for container in level
            for value in (container.values() if type(container) is dict else container)
            if type(value) is dict or type(value) is list  # half the time of isinstance, which matters for every value
        ]
    if level:
        raise ValueError(_TOO_DEEP)


def _check_pairs(document: object) -> None:
    """Reject lone surrogates: JSON escapes can contain them, but files and terminals can't."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a string in it has half of a surrogate pair") from None


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits):,} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("it has a number that is out of range")
    return number


def _constant(name: str) -> float:
    raise ValueError(f"it has {name}, which is not a number")


_STRICT: Final = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_constant)
_LENIENT: Final = json.JSONDecoder(parse_int=_integer)
