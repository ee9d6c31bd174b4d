"""`logs`: prints the engine's log, from the machine's console."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options, name_argument
from tgi_deploy.cli.output import Result, printed, use_color
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tgi_deploy.api import Client

_COLORS: Final = (
    (re.compile(r"^\[tgi-deploy\] "), "cyan"),
    (re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|\bpanicked at\b|^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b"), "red"),
    (re.compile(r"\bWARN(?:ING)?\b"), "yellow"),
)


@command(
    "logs",
    examples=(
        "tgi-deploy logs llama3-13b",
        "tgi-deploy logs llama3-13b -f --tail 20",
        "tgi-deploy logs llama3-13b --raw > console.txt",
    ),
)
@name_argument
@click.option("-f", "--follow", "following", is_flag=True, help="Keep printing new lines until the machine stops.")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Print only the last N lines.")
@click.option(
    "--raw", is_flag=True, help="Print lines as logged, prefixes and escapes included. Secrets are still removed."
)
@cloud_options
def logs_command(*, client: Client, name: str, following: bool, tail: int | None, raw: bool) -> Result:
    """Print the log of the machine and the engine, with secrets removed."""
    _check_followable(following=following)
    if following:
        with suppress(KeyboardInterrupt):  # Ctrl-C is the way to stop reading
            _print(client.follow_logs(name, tail=tail, raw=raw), colored=not raw)
        return Result(data={"name": name})
    found = client.logs(name, tail=tail, raw=raw)
    return printed(found, found.outcome if raw else "\n".join(map(_colored, found.data.lines)))


def _check_followable(*, following: bool) -> None:
    invocation = click.get_current_context().find_root().obj
    if following and invocation.as_json:
        raise InputError(
            "conflicting_options",
            "--follow and --json exclude each other: --json prints one object at the end, and --follow has no end",
            hint="leave one of them out; 'tgi-deploy logs NAME --tail 100 --json' prints the log so far",
        )


def _print(lines: Iterable[str], *, colored: bool) -> None:
    bright = colored and use_color(sys.stdout)
    for line in lines:
        sys.stdout.write(f"{_colored(line) if bright else line}\n")
        sys.stdout.flush()


def _colored(line: str) -> str:
    """Return the line colored by its severity. The writer removes colors if there is no terminal."""
    color = next((color for pattern, color in _COLORS if pattern.search(line)), None)
    return line if color is None else click.style(line, fg=color)
