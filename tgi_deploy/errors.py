"""What can go wrong, by what the caller should do about it.

Every error a user can cause is a `DeployError`: a stable code, a sentence that says what was being done and what
happened, and a hint that says what to do now. The class decides the exit code. Standard library only: every layer
may raise these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class DeployError(Exception):
    """The cloud or the engine failed (exit 1), unless a subclass says otherwise."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self, code: str, message: str, *, hint: str | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.data: Mapping[str, Any] = data or {}


class InputError(DeployError):
    """Bad usage or input: the caller mends the command line, a file or the environment."""

    exit_code = 2


class NoFeasiblePlanError(DeployError):
    """Nothing in the catalogue meets the wish: the caller relaxes it."""

    exit_code = 3


class ConflictError(DeployError):
    """Somebody or something else holds the name, the lock or a newer plan."""

    exit_code = 4


class NotHealthyError(DeployError):
    """The deployment exists but was not healthy before its deadline."""

    exit_code = 5


class LeftBehindError(DeployError):
    """Something that may cost money is still there; its ids are in the message and the data."""

    exit_code = 6


class DefectError(DeployError):
    """A defect of this program: `cause` was raised where nothing is known to raise it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("internal_error", f"something unforeseen happened: {type(cause).__name__}: {cause}")
        self.cause = cause


class InterruptedByUserError(DeployError):
    """Ctrl-C or a termination signal."""

    exit_code = 130
