"""What a check comes to, and how bad that is."""

from __future__ import annotations

from typing import Any

from tgi_deploy.errors import Problem


def ok(code: str, message: str, **data: object) -> Problem:
    return Problem(severity="ok", code=code, message=message, data=data)


def error(code: str, message: str, hint: str | None, **data: object) -> Problem:
    return Problem(code=code, message=message, hint=hint, data=data)


def document(problem: Problem) -> dict[str, Any]:
    """Return a result as `--json` prints it."""
    words = {"severity": problem.severity, "code": problem.code, "message": problem.message, "remedy": problem.hint}
    return {**words, "data": dict(problem.data)}
