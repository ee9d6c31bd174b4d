"""Writes the result of a command, as text for people or as one JSON object for programs.

stdout has only the result; in text mode, warnings and errors go to stderr, one line each.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from tgi_deploy.text import hint_line, one_line
from tgi_deploy.values.base import Frozen, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tgi_deploy.errors import Problem
    from tgi_deploy.values import base
    from tgi_deploy.values.base import Value

SCHEMA: Final = 2
# Commands whose text is a file, a log or lines to paste: it is printed unchanged.
_VERBATIM: Final = frozenset({
    "completion", "exec", "logs", "open", "profile init", "profile new", "profile show", "render", "runbook",
    "sandbox start",
})  # fmt: skip
_NOTHING: Final[Mapping[str, Any]] = {}


class Result(Frozen, frozen=True, kw_only=True):
    """A command's outcome. `text` is printed with a newline at the end, unless it has one.

    `data` is converted to JSON only for `--json`. `already_shown` are codes of warnings that the text includes.
    `failure_text` replaces the errors in text mode.
    """

    data: Mapping[str, Any] | Value = _NOTHING
    text: str = ""
    warnings: tuple[Problem, ...] = ()
    exit_code: int = 0
    errors: tuple[Problem, ...] = ()
    already_shown: frozenset[str] = frozenset()
    failure_text: str = ""


def printed(found: base.Result[Any, Any], text: str = "", *, already_shown: Iterable[Problem] = ()) -> Result:
    """Return a result of the API as the result of a command, with its text."""
    return Result(
        data=found.data,
        text=text,
        warnings=found.warnings,
        exit_code=found.exit_code,
        errors=found.errors,
        already_shown=frozenset(item.code for item in already_shown),
    )


def envelope(command: str, result: Result) -> dict[str, Any]:
    """Return the object that `--json` prints, with the same keys on success and on failure."""
    return {
        "schema": SCHEMA,
        "command": command,
        "status": "error" if result.exit_code else "ok",
        "exit_code": result.exit_code,
        "data": plain(result.data),
        "warnings": [{"code": item.code, "message": one_line(item.message)} for item in result.warnings],
        "errors": [
            {"code": item.code, "message": one_line(item.message), "hint": hint_line(item.hint or "") or None}
            for item in result.errors
        ],
    }


def use_color(stream: IO[str]) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def write_stderr(text: str) -> None:
    """Write `text` to stderr; a closed pipe does not stop the command."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(_as_shown(text, sys.stderr))
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def silence(stream: IO[str]) -> None:
    """Discard buffered output after the pipe was closed, because the interpreter flushes it at exit."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def write_result(command: str, result: Result, *, as_json: bool) -> None:
    """Write `result` to stdout and stderr. Raises OSError when stdout can't be written."""
    if as_json:
        text = json.dumps(envelope(command, result), indent=2, allow_nan=False)
        _write(sys.stdout, text, as_it_is=True)
        return
    _write(sys.stdout, result.text, as_it_is=command in _VERBATIM)
    for line in _message_lines(result):
        _write(sys.stderr, line)


def _message_lines(result: Result) -> list[str]:
    lines = [message_line(item) for item in result.warnings if item.code not in result.already_shown]
    if result.failure_text:
        return [*lines, result.failure_text]
    return [*lines, *(line for error in result.errors for line in error_lines(error))]


def message_line(item: Problem) -> str:
    return f"{click.style(f'warning[{item.code}]', fg='yellow')}: {one_line(item.message)}"


def error_lines(error: Problem) -> Iterator[str]:
    yield f"{click.style(f'error[{error.code}]', fg='red', bold=True)}: {one_line(error.message)}"
    if error.hint:
        yield f"{click.style('hint', bold=True)}: {hint_line(error.hint)}"


def _write(stream: IO[str] | None, text: str, *, as_it_is: bool = False) -> None:
    if stream is None or not text:
        return
    text = _as_shown(text, stream, as_it_is=as_it_is)
    stream.write(text if text.endswith("\n") else f"{text}\n")
    stream.flush()


def _as_shown(text: str, stream: IO[str], *, as_it_is: bool = False) -> str:
    """Return `text` with colors and in the terminal's width if there is one."""
    if stream.isatty() and not as_it_is:
        from tgi_deploy.cli.views.text import folded  # noqa: PLC0415 -- not needed for pipes

        text = folded(text, stream)
    return text if use_color(stream) else click.unstyle(text)
