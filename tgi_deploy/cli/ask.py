"""Questions on stderr. Where nobody can answer, nothing is spent and nothing destroyed."""

from __future__ import annotations

import sys

import click

from tgi_deploy.errors import InputError


def can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def need_answer(what: str, *, dry_run: bool = True) -> None:
    """Raise InputError `confirmation_needed` if there is no terminal to ask on; `dry_run`: the command has one."""
    if not can_ask():
        raise InputError(
            "confirmation_needed",
            f"{what} needs a confirmation, and there is no terminal to ask on",
            hint="add --yes to go on without being asked"
            + (", or --dry-run to see what would be done" if dry_run else ""),
        )


def confirm(question: str, *, yes: bool, what: str) -> bool:
    """Whether to go on. Raises InputError `confirmation_needed` without a terminal and without --yes."""
    if yes:
        return True
    need_answer(what)
    return click.confirm(question, default=False, err=True)
