"""The patterns by which a machine judges an engine's start on its own, in bash's syntax and small enough to send.

A failure marked `final` in `profiles/diagnosis/` would recur, so the machine does not try again. Once the phase `ready`
has begun, the log contains users' text and proves nothing about the configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.diagnosis.patterns import STARTUP_PHASES, bad_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Python syntax that differs in glibc's POSIX extended regular expressions.
_TOKEN: Final = re.compile(
    r"(?P<group>\(\?:|\(\?P<\w+>)"
    r"|(?P<special>\(\?)"
    r"|(?P<digit>\\d)"
    r"|(?P<escape>\\[wWsSb.\\()\[\]{}|*+?^$])"
    r"|(?P<plain>\\[^\w\s])"
    r"|(?P<foreign>\\.)"
    r"|(?P<bracket>\[\^?\]?[^\]\\]*\])"
    r"|(?P<class>\[)"
    r"|(?P<lazy>[*+?}][?+])"
    r"|(?P<begin>\^)"
    r"|(?P<end>\$)",
    re.DOTALL,
)
_REFUSED: Final = frozenset({"special", "foreign", "class", "lazy"})
# A message in a JSON record begins and ends with a quote.
_REPLACED: Final = {"group": "(", "digit": "[0-9]", "begin": '(^|")', "end": '("|$)'}


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFilter:
    """POSIX extended regular expressions, matched case-insensitively.

    `refused`: the next start would fail the same way. `ready`: the engine serves.
    """

    refused: str
    ready: str


def log_filter_from(data: Mapping[str, Any]) -> LogFilter:
    """Return the filter of an engine's table, plain data with the failures as `codes`.

    Raises:
        InputError: `bad_profile` for a pattern that bash can't read.
    """
    final = (text for page in data["codes"] for text in page["signatures"] if text.get("final", False))
    ready = next(phase for phase in data["phases"] if phase["name"] == STARTUP_PHASES[-1])
    return LogFilter(
        refused=_any_of(pattern for text in final for pattern in text["match"]), ready=_any_of(ready["begins"])
    )


def _any_of(patterns: Iterable[str]) -> str:
    return "|".join(dict.fromkeys(extended(pattern) for pattern in patterns))


def extended(pattern: str) -> str:
    """Convert a Python pattern to a POSIX extended one. Raises InputError `bad_profile` if that is impossible."""

    def replaced(token: re.Match[str]) -> str:
        if token.lastgroup in _REFUSED:
            raise bad_table(f"the pattern {pattern!r} is final, but bash does not support {token[0]!r}")
        kind = token.lastgroup or ""
        return token[0][1:] if kind == "plain" else _REPLACED.get(kind, token[0])

    return _TOKEN.sub(replaced, pattern)
