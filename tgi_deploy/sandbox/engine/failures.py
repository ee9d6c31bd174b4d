"""How a run of the launcher can end early."""

from __future__ import annotations

from typing import Final


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


PREFIXES: Final = {"validation": "Input validation error: ", "template_error": "Template error: "}
_STATUS: Final = {"generation": 424, "overloaded": 429, "healthcheck": 503}  # 422 for all the others


class ApiError(Exception):
    """An API error: JSON with `error` and `error_type`, or the same as an event of a stream."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.bare = message
        self.message = PREFIXES.get(kind, "") + message

    @property
    def status(self) -> int:
        return _STATUS.get(self.kind, 422)

    def body(self) -> dict[str, str]:
        return {"error": self.message, "error_type": self.kind}

    def chat_event(self) -> dict[str, object]:
        """Return the error as an event in a stream of the OpenAI routes."""
        return {"error": {"message": self.message, "http_status_code": self.status}}


class RejectionError(Exception):
    """The web framework rejects the body before the API sees it: plain text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
