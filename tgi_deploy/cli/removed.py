"""Removed commands, with their replacements."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from tgi_deploy.cli.frame import PROGRAM
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Removed(NamedTuple):
    """A removed command. The command `now` replaces it, and `usage` is its usage.

    `option` is the option that replaces the second argument.
    """

    words: str
    now: str
    usage: str
    option: str = ""


REMOVED: Final = (
    Removed("why-not", "plan", "plan MODEL --why-not TYPE", option="--why-not"),
    Removed("what-if", "plan", "plan MODEL --sweep NAME=VALUES"),
    Removed("renew", "extend", "extend NAME --ttl DURATION"),
    Removed("init", "profile init", "profile init MODEL"),
    Removed("catalog compare", "catalog list", "catalog list TYPE..."),
)


def check_removed(group: click.Group, words: str, rest: Sequence[str]) -> None:
    """Raise InputError `unknown_command` with today's command line if `words` are a removed command."""
    row = next((row for row in REMOVED if row.words == words), None)
    if row is None:
        return
    line = shlex.join([*row.now.split(), *_converted(group, row, rest)]) if rest else row.usage
    raise InputError(
        "unknown_command", f"'{PROGRAM} {words}' was removed: '{PROGRAM} {row.usage}' does the same",
        hint=f"run: {PROGRAM} {line}",
    )  # fmt: skip


def _converted(group: click.Group, row: Removed, rest: Sequence[str]) -> Sequence[str]:
    """Return the user's arguments, with the option in front of the second one."""
    if not row.option:
        return rest
    command = group.get_command(click.Context(group), row.now)
    if command is None:
        return rest
    extra = command.make_context(row.now, list(rest), resilient_parsing=True, allow_extra_args=True).args
    return [word for item in rest for word in ((row.option, item) if item in extra else (item,))]
