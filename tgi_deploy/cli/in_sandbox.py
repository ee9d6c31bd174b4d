"""Adds `--sandbox` to the commands that a result suggests while the sandbox is used.

Pasted without it, the same line would call a real account, and `up` would rent machines there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.base import plain, replaced

if TYPE_CHECKING:
    from tgi_deploy.cli.output import Result
    from tgi_deploy.errors import Problem

# Every command that calls a cloud. A test checks that the list is complete.
COMMANDS: Final = (
    "up", "scale", "rollback", "down", "stop", "start", "restart", "smoke", "extend", "gc", "status", "list", "logs",
    "diagnose", "runbook", "open", "ask", "exec", "doctor", "costs",
)  # fmt: skip
_LINE: Final = re.compile(rf"\btgi-deploy ({'|'.join(COMMANDS)})\b(?!-)(?![^'\n]* --sandbox)")
_HASH: Final = "sha256"


def in_sandbox(result: Result) -> Result:
    """Return the result with --sandbox added to its commands. Hashed parts stay unchanged."""
    return replaced(
        result,
        data=_data(plain(result.data)),
        text=with_option(result.text),
        warnings=tuple(_problem(item) for item in result.warnings),
        errors=tuple(_problem(item) for item in result.errors),
        failure_text=with_option(result.failure_text),
    )


def with_option(text: str) -> str:
    return _LINE.sub(lambda found: f"{found[0]} --sandbox", text)


def _problem(item: Problem) -> Problem:
    return replaced(item, message=with_option(item.message), hint=with_option(item.hint or "") or None)


def _data(value: Any) -> Any:  # noqa: ANN401 -- any value of a result
    if isinstance(value, str):
        return with_option(value)
    if isinstance(value, Mapping):
        return value if _HASH in value else {key: _data(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return tuple(_data(item) for item in value)
    return value
