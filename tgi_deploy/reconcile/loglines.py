"""Log text as lines of plain messages: no colours, no console prefix, no JSON around them, no secrets."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# "[   12.345678] run-engine[812]: ", as the journal writes to a console.
_CONSOLE: Final = re.compile(r"^\[\s*\d+\.\d+\] (?:[\w@.:-]+(?:\[\d+\])?: )?")
_SECRETS: Final = (
    # The launcher prints its own arguments, the API key among them.
    (re.compile(r"\bArgs \{.*"), "Args { … }"),
    (re.compile(r"\bhf_(?!transfer\b)[A-Za-z0-9]{8,}"), "hf_***"),
    (re.compile(r"(?i)\b(bearer) \S+"), r"\1 ***"),
)


def log_lines(text: str) -> tuple[str, ...]:
    """Every non-empty line, in order. A JSON record becomes its level and message; multi-line messages split."""
    cleaned = (_clean(line) for line in _ESCAPES.sub("", text).splitlines())
    return tuple(line for lines in cleaned for line in lines if line)


def _clean(line: str) -> tuple[str, ...]:
    bare = _CONSOLE.sub("", line).strip()
    if bare.startswith("{") and bare.endswith("}"):
        return tuple(_redact(part.strip()) for part in _message_of(bare).splitlines())
    return (_redact(bare),)


def _message_of(line: str) -> str:
    """The launcher nests its message in `fields`, the router does not."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    fields = record.get("fields")
    message = fields.get("message") if isinstance(fields, dict) else record.get("message")
    return line if not isinstance(message, str) else _ESCAPES.sub("", _with_level(record, message))


def _with_level(record: dict[str, Any], message: str) -> str:
    """Errors keep their level, as in the text form; the message of anything else stands alone."""
    return f"ERROR {message}" if record.get("level") == "ERROR" else message


def _redact(line: str) -> str:
    for pattern, replacement in _SECRETS:
        line = pattern.sub(replacement, line)
    return line
