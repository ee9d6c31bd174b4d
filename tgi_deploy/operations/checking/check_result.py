"""What a check comes to, and how bad that is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Severity = Literal["ok", "warning", "error"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """`code` is stable, `remedy` what to do about it; `data` are the numbers, for programs."""

    severity: Severity
    code: str
    message: str
    remedy: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        words = {"severity": self.severity, "code": self.code, "message": self.message, "remedy": self.remedy}
        return {**words, "data": dict(self.data)}


def ok(code: str, message: str, **data: object) -> CheckResult:
    return CheckResult(severity="ok", code=code, message=message, data=data)


def warning(code: str, message: str, remedy: str | None, **data: object) -> CheckResult:
    return CheckResult(severity="warning", code=code, message=message, remedy=remedy, data=data)


def error(code: str, message: str, remedy: str | None, **data: object) -> CheckResult:
    return CheckResult(severity="error", code=code, message=message, remedy=remedy, data=data)
