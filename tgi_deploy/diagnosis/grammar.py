"""The log grammar: phases, progress, exits, redactions and known failures, as one value.

Validates and compiles plain data: the patterns of `profiles/engines/*/phases.json` and of the machine, with the
failures of `profiles/diagnosis/` as `codes`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.diagnosis.machine_filter import LogFilter, log_filter_from
from tgi_deploy.diagnosis.patterns import STARTUP_PHASES, any_of, bad_table, pages_from, patterns_from
from tgi_deploy.diagnosis.progress import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tgi_deploy.diagnosis.patterns import FailurePattern, Page

# The kind in the table's `error_lines` for an exception's own line.
EXCEPTION: Final = "exception"
# The most informative first.
_ERROR_KINDS: Final = ("tool", EXCEPTION, "message", "daemon", "level", "panic")
# Engines need not have all kinds.
_NEVER: Final = re.compile(r"(?!)")
_UNKNOWN_CODE: Final = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseMarkers:
    """Patterns that begin a phase. `restarts` also begin a new engine start if they recur."""

    name: str
    begins: re.Pattern[str] | None
    restarts: re.Pattern[str] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressPattern:
    kind: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorLine:
    """A pattern of lines that report an error. `kind` `exception`: an exception's own line."""

    kind: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class HangRule:
    """The code of a hang, and how often a waiting shard writes a line."""

    code: str
    line_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LineMeaning:
    """The meaning of a single line. Phases are positions in STARTUP_PHASES.

    `error_rank`: 0 is the strongest; `exception`: an exception's own line, not a consequence.
    """

    restart: int | None
    begins: int | None
    progress: tuple[tuple[str, re.Match[str]], ...]
    error_rank: int | None
    exception: bool
    exit_code: int | None
    gave_up: bool
    failed: bool
    stops: bool
    survived: bool


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LogGrammar:
    """Compared by identity. `final_exit_codes`: the machine does not restart the engine after these.

    `failures` are patterns that only failed starts show, `stops` those of an engine that was asked to stop, `survived`
    those of errors after which the engine continues, including tracebacks. `error_lines`: the most informative first.
    `spans` precede the message and can quote users. `log_filter` runs on machines.
    """

    phases: tuple[PhaseMarkers, ...]
    progress: tuple[ProgressPattern, ...]
    pages: Mapping[str, Page]
    patterns: tuple[FailurePattern, ...]
    consequences: re.Pattern[str]
    failures: re.Pattern[str]
    stops: re.Pattern[str]
    survived: re.Pattern[str]
    error_lines: tuple[ErrorLine, ...]
    exited: re.Pattern[str]
    final_exit_codes: tuple[int, ...]
    gave_up: re.Pattern[str]
    spans: re.Pattern[str]
    redactions: tuple[tuple[re.Pattern[str], str], ...]
    hang: HangRule | None
    log_filter: LogFilter


def grammar_from(data: Mapping[str, Any]) -> LogGrammar:
    """Return an engine's log grammar.

    Raises:
        InputError: `bad_profile` with the missing or invalid key.
    """
    try:
        return _grammar(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise bad_table(f"missing or invalid key {error}") from error
    except re.error as error:
        raise bad_table(f"bad pattern {error.pattern!r}: {error}") from error


def _grammar(data: Mapping[str, Any]) -> LogGrammar:
    phases = tuple(
        PhaseMarkers(name=item["name"], begins=_optional(item["begins"]), restarts=_optional(item["restarts"]))
        for item in data["phases"]
    )
    if tuple(phase.name for phase in phases) != STARTUP_PHASES:
        raise bad_table(f"phases must be {', '.join(STARTUP_PHASES)}, in this order")
    exits, pages = data["exits"], pages_from(data["codes"])
    return LogGrammar(
        phases=phases,
        progress=tuple(_progress(item) for item in data["progress"]),
        pages=pages,
        patterns=patterns_from(data["codes"]),
        consequences=any_of(data["consequences"]),
        failures=any_of(data["failures"]),
        stops=any_of(data["stops"]),
        survived=_optional(data.get("survived", ())) or _NEVER,
        error_lines=_error_lines(data["error_lines"]),
        exited=_with_code(exits["match"]),
        final_exit_codes=tuple(int(code) for code in exits["final_codes"]),
        gave_up=any_of(exits["gave_up"]),
        spans=_optional(data.get("spans", {}).get("match", ())) or _NEVER,
        redactions=tuple((re.compile(item["match"]), item["by"]) for item in data["redactions"]),
        hang=_hang(data["hang"], pages) if "hang" in data else None,
        log_filter=log_filter_from(data),
    )


def _progress(item: Mapping[str, Any]) -> ProgressPattern:
    if item["kind"] not in KINDS:
        raise bad_table(f"unknown kind of progress {item['kind']!r}")
    return ProgressPattern(kind=item["kind"], pattern=re.compile(item["match"]))


def _error_lines(items: Sequence[Mapping[str, Any]]) -> tuple[ErrorLine, ...]:
    unknown = {item["kind"] for item in items}.difference(_ERROR_KINDS)
    if unknown:
        raise bad_table(f"unknown kinds of error_lines: {', '.join(sorted(unknown))}")
    lines = tuple(
        ErrorLine(kind=item["kind"], pattern=re.compile(item["match"]))
        for item in sorted(items, key=lambda item: _ERROR_KINDS.index(item["kind"]))
    )
    if not any(line.kind == EXCEPTION for line in lines):
        raise bad_table(f"no kind of error_lines is {EXCEPTION!r}")
    return lines


def _with_code(pattern: str) -> re.Pattern[str]:
    compiled = re.compile(pattern)
    if "code" not in compiled.groupindex:
        raise bad_table("the pattern of an exit has no group 'code'")
    return compiled


def _hang(item: Mapping[str, Any], pages: Mapping[str, Page]) -> HangRule:
    if item["code"] not in pages:
        raise bad_table(f"hang: there is no code {item['code']!r}")
    return HangRule(code=item["code"], line_s=float(item["line_s"]))


def _optional(patterns: Sequence[Any]) -> re.Pattern[str] | None:
    return any_of(patterns) if patterns else None


# A growing log is reread at every poll; its lines keep their meaning.
@lru_cache(maxsize=8192)
def meaning_of(grammar: LogGrammar, text: str, message: str) -> LineMeaning:
    """Return the meaning of a line: `text` is the whole line, `message` has no quoted requests."""
    progress = ((item.kind, item.pattern.search(message)) for item in grammar.progress)
    error = _first(text, [line.pattern for line in grammar.error_lines])
    consequence = error is not None and grammar.consequences.search(text) is not None
    return LineMeaning(
        restart=restart_at(grammar, message),
        begins=_first(text, [phase.begins for phase in grammar.phases]),
        progress=tuple((kind, match) for kind, match in progress if match is not None),
        # Consequences rank after all errors.
        error_rank=error if error is None or not consequence else error + len(grammar.error_lines),
        exception=error is not None and not consequence and grammar.error_lines[error].kind == EXCEPTION,
        exit_code=_exit_code(grammar, message),
        gave_up=grammar.gave_up.search(message) is not None,
        failed=grammar.failures.search(message) is not None,
        stops=grammar.stops.search(message) is not None,
        survived=grammar.survived.search(message) is not None,
    )


@lru_cache(maxsize=8192)
def matches_of(grammar: LogGrammar, message: str) -> tuple[tuple[FailurePattern, re.Match[str]], ...]:
    """Return the known failures that match a line."""
    found = ((item, item.pattern.search(message)) for item in grammar.patterns)
    return tuple(
        (item, match)
        for item, match in found
        if match is not None and (item.unless is None or item.unless.search(message) is None)
    )


def restart_at(grammar: LogGrammar, text: str) -> int | None:
    """Return the phase that this line restarts, or None."""
    return _first(text, [phase.restarts for phase in grammar.phases])


def _first(line: str, patterns: Iterable[re.Pattern[str] | None]) -> int | None:
    return next((at for at, item in enumerate(patterns) if item is not None and item.search(line)), None)


def _exit_code(grammar: LogGrammar, line: str) -> int | None:
    match = grammar.exited.search(line)
    return None if match is None else int(match["code"] or _UNKNOWN_CODE)
