"""How a run of the launcher can end early."""

from __future__ import annotations


class StoppedError(Exception):
    """The launcher received SIGTERM, SIGINT or SIGHUP: exit 0, at any time."""


class UsageError(Exception):
    """The command line is invalid; the text goes to stderr. Exit 2."""


class HelpAskedError(Exception):
    """`--help` or `--version`; the text goes to stdout. Exit 0."""


class LauncherError(Exception):
    """The launcher gives up with `Error: VARIANT`. Exit 1."""

    def __init__(self, variant: str) -> None:
        super().__init__(variant)
        self.variant = variant


class PanicError(Exception):
    """The launcher panics; the text goes to stderr. Exit 101."""


class ArgumentValidationError(LauncherError):
    def __init__(self, message: str) -> None:
        super().__init__(f'ArgumentValidation("{message}")')
