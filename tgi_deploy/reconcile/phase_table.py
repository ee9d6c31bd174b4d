"""The table that `reconcile.phases` reads logs by: phases, progress, exits and known failure texts, as values.

It comes as plain data from `profiles/engines/*/phases.json`; here it is checked and its patterns are compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PHASES: Final = ("launching", "booting", "pulling", "downloading", "loading", "warming_up", "ready")
PROGRESS_KINDS: Final = (
    "image",
    "files",
    "files_present",
    "shard_count",
    "shard_started",
    "shard_ready",
    "kv_cache",
    "batch_tokens",
    "max_total_tokens",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """A known failure text. `vague`: several causes share it, any exact one counts more.

    `phase` is where the failure belongs: once the log has gone past it the line was no failure. With `only_in_phase`
    the text means this cause in that phase alone.
    """

    code: str
    phase: str
    pattern: re.Pattern[str]
    vague: bool
    only_in_phase: bool
    cause: str
    remedy: str


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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PhaseTable:
    """`final_exit_codes`: the machine does not start the engine again after these. Equal only to itself."""

    phases: tuple[PhaseMarkers, ...]
    progress: tuple[ProgressPattern, ...]
    signatures: tuple[Signature, ...]
    consequences: re.Pattern[str]
    error_lines: tuple[re.Pattern[str], ...]
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
        raise _bad(f"missing or wrong key {error}") from error
    except re.error as error:
        raise _bad(f"bad pattern {error.pattern!r}: {error}") from error


def signatures_from(data: Mapping[str, Any]) -> tuple[Signature, ...]:
    """The failure signatures alone, in table order.

    Raises:
        InputError: `bad_phase_table` for a signature of no known phase.
    """
    return tuple(_signature(item) for item in data["signatures"])


def _table(data: Mapping[str, Any]) -> PhaseTable:
    phases = tuple(
        PhaseMarkers(name=item["name"], begins=_any_of(item["begins"]), restarts=_any_of(item["restarts"]))
        for item in data["phases"]
    )
    if tuple(phase.name for phase in phases) != PHASES:
        raise _bad(f"phases must be {', '.join(PHASES)}, in this order")
    exits = data["exits"]
    return PhaseTable(
        phases=phases,
        progress=tuple(_progress(item) for item in data["progress"]),
        signatures=signatures_from(data),
        consequences=_all_of(data["consequences"]),
        error_lines=tuple(re.compile(text) for text in data["error_lines"]),
        exited=_with_code(exits["match"]),
        final_exit_codes=tuple(int(code) for code in exits["final_codes"]),
        gave_up=_all_of(exits["gave_up"]),
    )


def _signature(item: Mapping[str, Any]) -> Signature:
    if item["phase"] not in PHASES:
        raise _bad(f"signature {item['code']}: unknown phase {item['phase']!r}")
    return Signature(
        code=item["code"],
        phase=item["phase"],
        pattern=_all_of(item["match"]),
        vague=bool(item["vague"]),
        only_in_phase=bool(item["only_in_phase"]),
        cause=item["cause"],
        remedy=item["remedy"],
    )


def _progress(item: Mapping[str, Any]) -> ProgressPattern:
    if item["kind"] not in PROGRESS_KINDS:
        raise _bad(f"unknown kind of progress {item['kind']!r}")
    return ProgressPattern(kind=item["kind"], pattern=re.compile(item["match"]))


def _with_code(pattern: str) -> re.Pattern[str]:
    compiled = re.compile(pattern)
    if "code" not in compiled.groupindex:
        raise _bad("the pattern of an exit has no group 'code'")
    return compiled


def _any_of(patterns: Sequence[Any]) -> re.Pattern[str] | None:
    return _all_of(patterns) if patterns else None


def _all_of(patterns: Sequence[Any]) -> re.Pattern[str]:
    if not patterns or not all(isinstance(text, str) and text for text in patterns):
        raise _bad("a list of patterns is empty or holds something else than text")
    return re.compile("|".join(f"(?:{text})" for text in patterns))


def _bad(reason: str) -> InputError:
    return InputError("bad_phase_table", f"reading the engine's phase table: {reason}", hint="mend phases.json")
