"""The table that logs are read by: phases, progress, exits and known failures, as values.

It comes as plain data from `profiles/engines/*/phases.json`, with the failures of `profiles/diagnosis/` as `codes`;
here it is checked and its patterns are compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.reconcile.attempts import EXCEPTION, HEARD
from tgi_deploy.reconcile.signatures import PHASES, any_of, bad_table, pages_from, signatures_from

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.reconcile.signatures import Page, Signature

__all__ = ["PHASES", "PROGRESS_KINDS", "PhaseMarkers", "PhaseTable", "ProgressPattern", "table_from"]
PROGRESS_KINDS: Final = tuple(HEARD)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseMarkers:
    """Texts that begin a phase. `restarts` also begin a new attempt when they come again."""

    name: str
    begins: re.Pattern[str] | None
    restarts: re.Pattern[str] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressPattern:
    kind: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorLine:
    """How a line looks that tells of an error. `kind`: `exception` is an exception's own line; others are only told."""

    kind: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PhaseTable:
    """`final_exit_codes`: the machine does not start the engine again after these. Equal only to itself.

    `failures` are texts that only an attempt that failed shows, `stops` those of an engine that was asked to end,
    `survived` those that an engine goes on after, their tracebacks included.
    `error_lines`: the most telling first.
    """

    phases: tuple[PhaseMarkers, ...]
    progress: tuple[ProgressPattern, ...]
    pages: Mapping[str, Page]
    signatures: tuple[Signature, ...]
    consequences: re.Pattern[str]
    failures: re.Pattern[str]
    stops: re.Pattern[str]
    survived: re.Pattern[str]
    error_lines: tuple[ErrorLine, ...]
    exited: re.Pattern[str]
    final_exit_codes: tuple[int, ...]
    gave_up: re.Pattern[str]


def table_from(data: Mapping[str, Any]) -> PhaseTable:
    """The phase table as values.

    Raises:
        InputError: `bad_phase_table` with the key that is missing or wrong.
    """
    try:
        return _table(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise bad_table(f"missing or wrong key {error}") from error
    except re.error as error:
        raise bad_table(f"bad pattern {error.pattern!r}: {error}") from error


def _table(data: Mapping[str, Any]) -> PhaseTable:
    phases = tuple(
        PhaseMarkers(name=item["name"], begins=_optional(item["begins"]), restarts=_optional(item["restarts"]))
        for item in data["phases"]
    )
    if tuple(phase.name for phase in phases) != PHASES:
        raise bad_table(f"phases must be {', '.join(PHASES)}, in this order")
    exits = data["exits"]
    return PhaseTable(
        phases=phases,
        progress=tuple(_progress(item) for item in data["progress"]),
        pages=pages_from(data["codes"]),
        signatures=signatures_from(data["codes"]),
        consequences=any_of(data["consequences"]),
        failures=any_of(data["failures"]),
        stops=any_of(data["stops"]),
        survived=any_of(data["survived"]),
        error_lines=_error_lines(data["error_lines"]),
        exited=_with_code(exits["match"]),
        final_exit_codes=tuple(int(code) for code in exits["final_codes"]),
        gave_up=any_of(exits["gave_up"]),
    )


def _progress(item: Mapping[str, Any]) -> ProgressPattern:
    if item["kind"] not in PROGRESS_KINDS:
        raise bad_table(f"unknown kind of progress {item['kind']!r}")
    return ProgressPattern(kind=item["kind"], pattern=re.compile(item["match"]))


def _error_lines(items: Sequence[Mapping[str, Any]]) -> tuple[ErrorLine, ...]:
    lines = tuple(ErrorLine(kind=item["kind"], pattern=re.compile(item["match"])) for item in items)
    if not any(line.kind == EXCEPTION for line in lines):
        raise bad_table(f"no kind of error_lines is {EXCEPTION!r}")
    return lines


def _with_code(pattern: str) -> re.Pattern[str]:
    compiled = re.compile(pattern)
    if "code" not in compiled.groupindex:
        raise bad_table("the pattern of an exit has no group 'code'")
    return compiled


def _optional(patterns: Sequence[Any]) -> re.Pattern[str] | None:
    return any_of(patterns) if patterns else None
