"""Errors, by what the caller should do about them.

Every error a user can cause is a `DeployError`: a stable code, a sentence about what was being done and what happened,
and a hint about what to do now. The class decides the exit code. This module imports nothing from the package, so that
every layer may raise these. (Every command pays for these classes; a dataclass takes ten times as long to create.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, Self

from msgspec import Struct
from msgspec.structs import asdict, replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from decimal import Decimal


Severity = Literal["ok", "warning", "error"]

# Descriptions of what happened to a failed run's resources.
CREATED_WAS_REMOVED: Final = "what this run created was removed; what already existed is kept"
ALL_WAS_REMOVED: Final = "everything was removed; --on-failure keep would keep the machine and its log"


class Problem(Struct, frozen=True, kw_only=True):
    """A message with a code.

    `hint` is what to do now; `data` has the values behind it, keys with units. A check without findings is `ok`.
    """

    code: str
    message: str
    severity: Severity = "error"
    hint: str | None = None
    data: Mapping[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """Return the keys of a check's result in `--json`."""
        words = {"severity": self.severity, "code": self.code, "message": self.message, "remedy": self.hint}
        return {**words, "data": dict(self.data)}


def ok(code: str, message: str, **data: object) -> Problem:
    """Return the result of a check without findings."""
    return Problem(severity="ok", code=code, message=message, data=data)


def error(code: str, message: str, hint: str | None, **data: object) -> Problem:
    return Problem(code=code, message=message, hint=hint, data=data)


def warning(code: str, message: str, hint: str | None = None, **data: object) -> Problem:
    """Return a warning, which does not change the outcome."""
    return Problem(code=code, message=message, severity="warning", hint=hint, data=data)


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Why it failed. `finding` is a diagnosis code, `line` a line of the machine's log."""

    finding: str | None = None
    cause: str | None = None
    evidence: str | None = None
    line: int | None = None
    remedy: str | None = None
    command: str | None = None


class StillRunning(Struct, frozen=True, kw_only=True):
    """A machine that is or may still be running: its cost, and the command that removes it."""

    machine: str | None
    region: str
    usd_per_hour: Decimal | None
    ends_at: datetime | None
    ends_with: str


class ResourceRef(Struct, frozen=True, kw_only=True):
    """An existing resource."""

    kind: str
    id: str
    region: str


class RecordedResource(ResourceRef, frozen=True, kw_only=True):
    """A recorded resource. One that was requested but not confirmed has no id: it may exist."""

    phase: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id or '(requested, not confirmed)'} in {self.region}"


class LeftResource(ResourceRef, frozen=True, kw_only=True):
    """A resource that a removal left behind, with the command that removes it by hand, or None."""

    command: str | None


class Healed(Struct, frozen=True, kw_only=True):
    """A change to the plan after a failure. `code` is the failure's code, `what` describes the change."""

    code: str
    edit: str
    what: str


class Bill(Protocol):
    """The times and costs in a removal's receipt."""

    @property
    def seconds(self) -> int | None: ...
    @property
    def usd(self) -> Decimal | None: ...
    def document(self) -> dict[str, Any]:
        """Return the whole receipt."""


class Failure(Struct, frozen=True, kw_only=True):
    """Facts about a failed deployment in addition to the problem; unknown parts are None.

    `step` is the failed probe of the proof. `outcome` is what happened to its machine. `before` are kept resources from
    before this run, `exists` the recorded ones, `not_removed` those that a removal could not delete. `healed` are
    changes to the plan that did not help.
    """

    phase: str | None = None
    step: str | None = None
    diagnosis: Diagnosis | None = None
    deployment: str | None = None
    outcome: Literal["kept", "removed", "not_removed"] | None = None
    still_running: StillRunning | None = None
    receipt: Bill | None = None
    before: tuple[ResourceRef, ...] | None = None
    exists: tuple[RecordedResource, ...] | None = None
    not_removed: tuple[ResourceRef, ...] | None = None
    receipt_files: tuple[str | None, ...] | None = None
    healed: tuple[Healed, ...] | None = None

    def document(self) -> dict[str, Any]:
        """Return the parts by their keys in `--json`."""
        receipt = self.receipt.document() if self.receipt else None
        ended = {"outcome": self.outcome, "still_billed": None, "receipt": receipt} if self.outcome else {}
        if self.still_running is not None:
            ends_at = self.still_running.ends_at
            ended["still_billed"] = {**asdict(self.still_running), "ends_at": ends_at and ends_at.isoformat()}
        words = {"phase": self.phase, "step": self.step, "deployment": self.deployment}
        lists = {
            "before": self.before,
            "exists": self.exists,
            "not_removed": self.not_removed,
            "healed": self.healed,
        }
        return {
            **{name: word for name, word in words.items() if word is not None},
            **(asdict(self.diagnosis) if self.diagnosis else {}),
            **ended,
            **{name: [asdict(item) for item in items] for name, items in lists.items() if items is not None},
            **({} if self.receipt_files is None else {"receipt_files": list(self.receipt_files)}),
        }


class DeployError(Exception):
    """The cloud or the engine failed (exit 1). Subclasses have other exit codes.

    `refused`: the cloud, or a check before the call, rejected the request for good, so resources created for it are
    useless.
    """

    exit_code: ClassVar[int] = 1
    refused: ClassVar[bool] = False

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        data: Mapping[str, Any] | None = None,
        failure: Failure | None = None,
    ) -> None:
        super().__init__(message)
        self.problem = Problem(code=code, message=message, hint=hint, data=data or {})
        self.failure = failure

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def message(self) -> str:
        return self.problem.message

    @property
    def hint(self) -> str | None:
        return self.problem.hint

    @property
    def data(self) -> Mapping[str, Any]:
        """The data in `--json`, for other programs. This program uses `problem` and `failure`."""
        return {**self.problem.data, **(self.failure.document() if self.failure else {})}

    def hint_and(self, words: str) -> str:
        """Return the hint with another one appended."""
        return f"{self.hint}; {words}" if self.hint else words

    def copy(self, *, failure: Failure | None = None, **changes: Any) -> Self:  # noqa: ANN401 -- fields of Problem
        """Return an error of the same class with changes to its problem or with additional facts."""
        problem = replace(self.problem, **changes)
        again = type(self).__new__(type(self), problem.message)
        again.__dict__.update(self.__dict__, problem=problem, failure=failure or self.failure)
        return again


class InputError(DeployError):
    """Bad usage or input: the caller fixes the command line, a file or the environment."""

    exit_code = 2
    refused = True


class NoFeasiblePlanError(DeployError):
    """Nothing in the catalog meets the request: the caller relaxes it."""

    exit_code = 3


class ConflictError(DeployError):
    """Someone or something else holds the name, the lock or a newer plan."""

    exit_code = 4


class NotHealthyError(DeployError):
    """The deployment exists but was not healthy before its deadline."""

    exit_code = 5


class LeftBehindError(DeployError):
    """Resources that may cost money still exist; their ids are in the message and in `left`."""

    exit_code = 6

    @property
    def left(self) -> tuple[ResourceRef, ...]:
        return (self.failure.not_removed if self.failure else None) or ()


class DefectError(DeployError):
    """A bug in this program: `cause` was raised unexpectedly."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("internal_error", f"an unexpected error occurred: {type(cause).__name__}: {cause}")
        self.cause = cause


class InterruptedByUserError(DeployError):
    """Ctrl-C or a termination signal."""

    exit_code = 130
