"""How a run of the launcher ends, and how a request fails."""

from __future__ import annotations

from typing import Final


class ExitError(Exception):
    """The launcher exits: 0 after a stop signal or for `--help`, 1 as it gives up, 2 for usage, 101 for a panic."""

    def __init__(self, code: int, last_words: str = "") -> None:
        super().__init__(last_words)
        self.code = code


def given_up(variant: str) -> ExitError:
    return ExitError(1, f"Error: {variant}")


def invalid(message: str) -> ExitError:
    """Return the launcher's error for a value."""
    return given_up(f'ArgumentValidation("{message}")')


_PREFIXES: Final = {"validation": "Input validation error: ", "template_error": "Template error: "}
_STATUS: Final = {"generation": 424, "overloaded": 429, "healthcheck": 503}  # 422 for all the others


class ApiError(Exception):
    """An API error: JSON with `error` and `error_type`, or the same as an event of a stream."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.bare = message
        self.message = _PREFIXES.get(kind, "") + message
        self.status = _STATUS.get(kind, 422)

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
