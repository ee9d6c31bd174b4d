"""`logs`: the engine's log, from the machine's console."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.options import cloud_options, name_argument
from tgi_deploy.cli.output import Result, printed, use_colour
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tgi_deploy.api import Client

_COLOURS: Final = (
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
@click.option("-f", "--follow", "following", is_flag=True, help="Go on with what comes, until the machine ends.")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N lines.")
@click.option("--raw", is_flag=True, help="Lines as they were written: with prefixes and escapes, in JSON. No secrets.")
@cloud_options
def logs_command(*, client: Client, name: str, following: bool, tail: int | None, raw: bool) -> Result:
    """Print what the machine and the engine have said, without secrets."""
    _check_followable(following=following)
    if following:
        with suppress(KeyboardInterrupt):  # that is how one stops reading
            _print(client.follow_logs(name, tail=tail, raw=raw), coloured=not raw)
        return Result(data={"name": name})
    found = client.logs(name, tail=tail, raw=raw)
    return printed(found, found.outcome if raw else "\n".join(map(_coloured, found.data.lines)))


def _check_followable(*, following: bool) -> None:
    invocation = click.get_current_context().find_root().obj
    if following and invocation.as_json:
        raise InputError(
            "conflicting_options",
            "--follow never ends and --json prints one object at the end: they exclude each other",
            hint="leave one of them out; 'logs NAME --tail 100 --json' prints what there is",
        )


def _print(lines: Iterable[str], *, coloured: bool) -> None:
    bright = coloured and use_colour(sys.stdout)
    for line in lines:
        sys.stdout.write(f"{_coloured(line) if bright else line}\n")
        sys.stdout.flush()


def _coloured(line: str) -> str:
    """The line in the colour of what it tells; the writer takes colours out where there is no terminal."""
    colour = next((colour for pattern, colour in _COLOURS if pattern.search(line)), None)
    return line if colour is None else click.style(line, fg=colour)
