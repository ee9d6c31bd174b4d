"""Writes to stderr while a command runs: progress, a live line on a terminal, and questions.

Without a terminal for the answer, a question fails, and nothing is created or deleted.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import click

from tgi_deploy.cli.output import use_color, write_stderr
from tgi_deploy.errors import InputError
from tgi_deploy.text import one_line
from tgi_deploy.values.progress import PhaseEvent, StepEvent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.status import Status

    from tgi_deploy.api import Client
    from tgi_deploy.values.progress import ProgressEvent

# Without a terminal, the progress of a phase is printed only this often.
_SHOW_EVERY_S = 30.0
# A longer live line would leave copies of itself when the terminal becomes narrower and wraps it.
_LIVE_CHARS = 74


class Progress:
    """Shows each event. Leaving the context manager ends the live line."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._phase = ""
        self._last_shown = ("", 0.0)
        self._live = use_color(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the live line, before other output or a question."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __call__(self, event: ProgressEvent) -> None:
        if isinstance(event, PhaseEvent):
            self._phase_of(event)
        elif isinstance(event, StepEvent) and event.begun:
            self._show(str(event))
        else:
            self._print(str(event))

    def _phase_of(self, event: PhaseEvent) -> None:
        if event.phase != self._phase:
            self._phase = event.phase
            expected = f" (about {event.expected_s:.0f} s)" if event.expected_s else ""
            self._print(f"{event.phase.replace('_', ' ')}{expected}")
            self._last_shown = ("", event.elapsed_s)
        self._show(str(event))
        if not self._live and event.detail and self._due(event.detail, event.elapsed_s):
            self._print(str(event))

    def _due(self, detail: str, elapsed_s: float) -> bool:
        before, shown_s = self._last_shown
        if detail == before or elapsed_s - shown_s < _SHOW_EVERY_S:
            return False
        self._last_shown = (detail, elapsed_s)
        return True

    def _print(self, text: str) -> None:
        self.stop()
        write_stderr(f"{one_line(text)}\n")

    def _show(self, text: str) -> None:
        """Show the current activity; only a terminal has a live line."""
        if not self._live:
            return
        from rich.text import Text  # noqa: PLC0415 -- needed only for a live line

        if self._status is None:
            self._status = _new_status()
            self._status.start()
        self._status.update(Text(one_line(text, limit=_LIVE_CHARS), no_wrap=True, overflow="ellipsis"))


def _new_status() -> Status:
    from rich.console import Console  # noqa: PLC0415 -- see _show
    from rich.status import Status  # noqa: PLC0415 -- startup time

    return Status("", console=Console(stderr=True), spinner="dots")


@contextmanager
def connected(**where: Any) -> Iterator[tuple[Client, Progress]]:  # noqa: ANN401 -- the arguments of a client
    """Yield a client that shows its progress, and the progress, which pauses for a question."""
    from tgi_deploy.api import Client  # noqa: PLC0415 -- not needed for --help

    with Progress() as progress:
        yield Client(**where, progress=progress, command=command_line()), progress


def command_line() -> str:
    """Return the command line, which a lock records about its holder."""
    return " ".join(("tgi-deploy", *sys.argv[1:]))


def can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def need_answer(what: str, *, dry_run: bool = True) -> None:
    """Raise InputError `confirmation_needed` without a terminal. `dry_run` is whether the command has --dry-run."""
    if not can_ask():
        raise InputError(
            "confirmation_needed",
            f"{what} needs a confirmation, but there is no terminal to ask on",
            hint="add --yes to continue without confirmation"
            + (", or --dry-run to see what would be done" if dry_run else ""),
        )


def confirm(question: str, *, yes: bool, what: str, dry_run: bool = True) -> bool:
    """Return whether to continue. Raises InputError `confirmation_needed` without a terminal and without --yes."""
    if yes:
        return True
    need_answer(what, dry_run=dry_run)
    return asked(question, default=False)


def asked(question: str, *, default: bool) -> bool:
    """Return the answer. Raises KeyboardInterrupt on Ctrl-C."""
    try:
        return click.confirm(question, default=default, err=True)
    except (click.Abort, EOFError):
        raise KeyboardInterrupt from None
