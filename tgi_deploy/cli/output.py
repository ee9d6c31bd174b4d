"""What a command returns, and the two ways it is written: text for people, one JSON object for programs.

stdout carries the result only; warnings and errors of text mode go to stderr, one line each.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from tgi_deploy.text import encodable, one_line
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem

SCHEMA: Final = 1
_MONEY_DIGITS: Final = 6


class Result(Frozen, frozen=True, kw_only=True):
    """A command's outcome. `text` is printed as it is, without a newline added to what ends in one.

    `already_shown`: codes of warnings that the text has. `failure_text` is what people read in place of the errors.
    """

    data: Mapping[str, Any] = {}
    text: str = ""
    warnings: tuple[Problem, ...] = ()
    exit_code: int = 0
    errors: tuple[Problem, ...] = ()
    already_shown: frozenset[str] = frozenset()
    failure_text: str = ""


def envelope(command: str, result: Result) -> dict[str, Any]:
    """The one object `--json` prints: the same keys on success and failure."""
    return {
        "schema": SCHEMA,
        "command": command,
        "status": "error" if result.exit_code else "ok",
        "exit_code": result.exit_code,
        "data": plain(result.data),
        "warnings": [{"code": item.code, "message": one_line(item.message)} for item in result.warnings],
        "errors": [
            {"code": item.code, "message": one_line(item.message), "hint": one_line(item.hint or "") or None}
            for item in result.errors
        ],
    }


def plain(value: Any) -> Any:  # noqa: ANN401 -- takes and gives whatever JSON can hold
    """`value` as JSON can hold it: money as a number of at most 6 decimals, what is not finite as null."""
    if hasattr(value, "__struct_fields__"):  # a value of values/, which --help does without
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, AbstractSet):
        return sorted(plain(item) for item in value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, Decimal | float):
        return _number(value)
    return value if value is None or isinstance(value, bool | int) else encodable(str(value))


def _number(value: Decimal | float) -> float | None:
    if not math.isfinite(value):
        return None
    return round(float(value), _MONEY_DIGITS) if isinstance(value, Decimal) else value


def use_colour(stream: IO[str]) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def tell(text: str) -> None:
    """Write `text` to stderr. A reader that has gone away is no reason to cut what is being done."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text if use_colour(sys.stderr) else click.unstyle(text))
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def silence(stream: IO[str]) -> None:
    """Send what is still buffered nowhere: the reader has gone, and the interpreter flushes once more."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def write_result(command: str, result: Result, *, as_json: bool) -> None:
    """Write `result` to stdout and stderr. Raises OSError when stdout can't be written."""
    if as_json:
        text = json.dumps(envelope(command, result), indent=2, allow_nan=False)
        _write(sys.stdout, text)
        return
    _write(sys.stdout, result.text)
    for line in _message_lines(result):
        _write(sys.stderr, line)


def _message_lines(result: Result) -> list[str]:
    lines = [
        f"{click.style(f'warning[{item.code}]', fg='yellow')}: {one_line(item.message)}"
        for item in result.warnings
        if item.code not in result.already_shown
    ]
    if result.failure_text:
        return [*lines, result.failure_text]
    return [*lines, *(line for error in result.errors for line in error_lines(error))]


def error_lines(error: Problem) -> Iterator[str]:
    yield f"{click.style(f'error[{error.code}]', fg='red', bold=True)}: {one_line(error.message)}"
    if error.hint:
        yield f"{click.style('hint', bold=True)}: {one_line(error.hint)}"


def _write(stream: IO[str] | None, text: str) -> None:
    if stream is None or not text:
        return
    if not use_colour(stream):
        text = click.unstyle(text)
    stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()
