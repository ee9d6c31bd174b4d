"""Reads a log: the state of the latest engine start, and what went wrong, in one value. Pure.

A log is a sequence of engine starts: a restarted container repeats an early phase. Within a start, phases only advance,
and a completed phase cancels its errors. The meaning of a line depends on its writer and time: an info line is not a
failure, and once the engine serves, the log also contains users' text.

The first error of a start that names a cause wins; consequences and wrappers never do. If a line matches two causes,
both are reported with what distinguishes them. A log of an engine that serves, or was asked to stop, has no cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.diagnosis.finding import LINE_CHARS, Evidence, findings_of, hang_of
from tgi_deploy.diagnosis.grammar import matches_of, meaning_of, restart_at
from tgi_deploy.diagnosis.lines import LogLine, read_lines
from tgi_deploy.diagnosis.patterns import STARTUP_PHASES, STRENGTHS
from tgi_deploy.diagnosis.progress import RECOVERS, Progress, advanced
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from tgi_deploy.diagnosis.grammar import LineMeaning, LogGrammar
    from tgi_deploy.diagnosis.patterns import FailurePattern
    from tgi_deploy.values.results import Finding

READY: Final = len(STARTUP_PHASES) - 1
# A 70B model was observed to load for 530 s; only longer waiting is a hang (threads 1838, 2763).
HANG_S: Final = 600.0
_DOWNLOADING: Final = STARTUP_PHASES.index("downloading")
_LOADING: Final = STARTUP_PHASES.index("loading")
# Boxed tracebacks show source lines, with texts of errors that did not happen.
_BOXED: Final = ("│", "┃", "╭", "╰", "|   ")
# In a traceback the source line precedes the exception's own and contains its text or pattern.
_RAISES: Final = ("raise ", "assert ")
_FRAME_LINES: Final = 6
# Long messages are wrapped at the terminal's width.
_MAX_WRAPS: Final = 3
_QUIET: Final = frozenset({"TRACE", "DEBUG", "INFO"})
_EARLIER_SHARE: Final = 0.8
_MARK: Final = "error: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """Facts about a log's engine from outside the log.

    `facts` fill the remedies: `name`, `model`, `num_shard`, `prefill`, `context`, `disk_gib`, `instance`. `planned`: it
    is a deployment, planned with accelerators. `hang_s`: how long loading shards may only wait. `state_label`
    introduces the cloud's reason for the machine's state.
    """

    facts: Mapping[str, str] = field(default_factory=dict)
    planned: bool = False
    hang_s: float = HANG_S
    state_label: str = "state of the machine"


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedError:
    """A line that reports an error. `rank`: 0 is the strongest."""

    rank: int
    text: str
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineStart:
    """The state of one engine start. `phase` is a position in STARTUP_PHASES; `phase_seen`: a line names it.

    `exit_code`: -1 if the engine exited with an unknown code, None while it runs. `unmatched` is the first exception
    without a matching pattern. `restarts` are the phases that this start has begun.
    """

    phase: int = 0
    phase_seen: bool = False
    restarts: frozenset[int] = frozenset()
    progress: Progress = field(default_factory=Progress)
    evidence: tuple[Evidence, ...] = ()
    unmatched: LogLine | None = None
    error: LoggedError | None = None
    failed: bool = False
    stopping: bool = False
    exit_code: int | None = None

    @property
    def serves(self) -> bool:
        return self.phase == READY and self.exit_code is None

    @property
    def died(self) -> bool:
        """Whether it ended on its own; an engine that is asked to stop exits with 0."""
        return self.exit_code not in {None, 0}

    @property
    def forbids(self) -> Evidence | None:
        """The first line that shows that this start does not run on the planned hardware."""
        first = next((item for item in self.evidence if item.forbids), None)
        return None if first is None else replace(first, rank=first.pattern.strength)

    def best(self, *, planned: bool) -> Evidence | None:
        """The strongest line, the first of equals. A wrapper after an unknown exception doesn't count.

        An engine without the planned accelerators fails in many misleading ways.
        """
        if self.forbids is not None and (planned or not self.failed):
            return self.forbids
        counted = [item for item in self.evidence if self._counts(item)]
        best = min(counted, key=lambda item: (item.rank, item.line.number), default=None)
        if best is None or (best.rank >= STRENGTHS["wrapper"] and self.unmatched is not None):
            return None
        return _own_line(_settled(best, counted), counted)

    def _counts(self, item: Evidence) -> bool:
        return not item.pattern.request if self.failed else not item.pending

    def carried(self) -> EngineStart:
        """Return what remains valid if a later part of the log lacks the beginning of this start."""
        known: dict[tuple[str, str, bool], Evidence] = {}
        for item in self.evidence:  # parts of a log overlap
            key = (item.pattern.code, item.line.text, item.forbids)
            known.setdefault(key, replace(item, line=replace(item.line, number=0)))
        return replace(
            self,
            progress=self.progress.carried(),
            evidence=tuple(known.values()),
            error=None if self.error is None else replace(self.error, number=0),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The result of reading a log.

    `findings`: what went wrong, the most likely first. `cause_of_end`: of the last failed start; None if unknown, or if
    the engine has served since. `forbids_ready`: the latest start does not run on the planned hardware, so its answers
    don't make it ready. `hangs`: the finding is that shards only wait. `exits` counts failed starts; `final`: the
    machine won't try again. `error_before` is the previous start's error.
    """

    latest: EngineStart = field(default_factory=EngineStart)
    earlier: tuple[EngineStart, ...] = ()
    findings: tuple[Finding, ...] = ()
    cause_of_end: Finding | None = None
    forbids_ready: Finding | None = None
    hangs: bool = False
    exits: int = 0
    final: bool = False
    error_before: LoggedError | None = None
    last_line: str | None = None

    @property
    def startup_phase(self) -> str:
        return STARTUP_PHASES[self.latest.phase]

    @property
    def phase_seen(self) -> bool:
        return self.latest.phase_seen

    @property
    def progress(self) -> Progress:
        return self.latest.progress

    @property
    def starts(self) -> int:
        return len(self.earlier) + 1

    @property
    def failed(self) -> bool:
        """Whether something is wrong, even without a known cause."""
        return bool(self.findings) or (self.latest.failed and not self.latest.stopping)

    @property
    def unexplained(self) -> LoggedError | None:
        """The first error, if no cause is known."""
        return self.latest.error if self.failed and not self.findings else None

    @property
    def error_line(self) -> str | None:
        """The first line that looks like an error and is not a consequence of one."""
        before = None if self.latest.serves else self.error_before
        error = self.latest.error or before
        return None if error is None else error.text


def read(
    log_text: str, grammar: LogGrammar, *, subject: Subject | None = None, before: Reading | None = None
) -> Reading:
    """Read a log or a part of it.

    A console keeps only the last part of a log (64 KiB on EC2). If that lacks the beginning of the latest start,
    `before`, the reading of an earlier part, supplies it. A machine's state can be a line of the log, by `state_line`.
    """
    lines = read_lines(log_text, grammar)
    continues = before is not None and not any(restart_at(grammar, line.text) is not None for line in lines)
    reader = _Reader(grammar, before if continues else None)
    for line in lines:
        reader.take(line)
    return reader.reading(subject or Subject())


def cause_of_state(why: str, grammar: LogGrammar, subject: Subject) -> Finding | None:
    """Return the finding from the reason for a machine's state, or None."""
    found = read(state_line(why, subject), grammar, subject=subject).findings
    return without_mark(found[0]) if found else None


def state_line(why: str, subject: Subject) -> str:
    """Return the reason as a log line; empty without a reason."""
    return f"{_MARK}{subject.state_label}: {why}" if why else ""


def without_mark(finding: Finding) -> Finding:
    """Return the finding of a state line without the line, which is not part of the log."""
    return replaced(finding, line=0, evidence=finding.evidence.removeprefix(_MARK))


class _Reader:
    """Reads a log line by line. `_now` is the latest start, without its evidence, which is collected separately."""

    def __init__(self, grammar: LogGrammar, before: Reading | None) -> None:
        known = before or Reading()
        self._grammar = grammar
        self._now = known.latest.carried()
        self._evidence = list(self._now.evidence)
        self._earlier = list(known.earlier)
        self._error_before = known.error_before
        self._exits = known.exits
        self._final = known.final
        self._last_line = known.last_line
        self._survived = False
        self._wrapped: LogLine | None = None
        self._wraps = 0

    def reading(self, subject: Subject) -> Reading:
        latest = self._finished()
        return _judged(
            Reading(
                latest=latest,
                earlier=tuple(self._earlier),
                exits=self._exits,
                final=self._final,
                error_before=self._error_before,
                last_line=None if self._last_line is None else self._last_line[:LINE_CHARS],
            ),
            self._grammar,
            subject,
        )

    def take(self, line: LogLine) -> None:
        meaning = meaning_of(self._grammar, line.text, line.message)
        self._take_phase(meaning)
        for kind, match in meaning.progress:
            self._now = replace(self._now, progress=advanced(self._now.progress, kind, match, line))
            if kind == RECOVERS:
                self._drop_completed(_DOWNLOADING + 1)
        self._take_end(line, meaning)
        self._take_evidence(line, meaning)
        self._take_error(line, meaning)
        if meaning.exit_code is not None:
            self._exit(meaning.exit_code)
        self._final = self._final or meaning.gave_up
        self._last_line = line.text

    def _finished(self) -> EngineStart:
        return replace(self._now, evidence=tuple(self._evidence))

    def _take_phase(self, meaning: LineMeaning) -> None:
        if meaning.restart is not None:
            self._restart(meaning.restart)
            self._reach(meaning.restart)
        elif meaning.begins is not None and self._now.exit_code is None:
            self._reach(meaning.begins)

    def _restart(self, index: int) -> None:
        again = index in self._now.restarts or index < self._now.phase
        if self._now.exit_code is not None or (self._now.phase_seen and again):
            self._error_before = self._now.error or self._error_before
            self._earlier.append(self._finished())
            self._now, self._evidence = EngineStart(), []
            self._survived, self._wrapped = False, None
        self._now = replace(self._now, restarts=self._now.restarts | {index})

    def _reach(self, index: int) -> None:
        now = self._now
        if index <= now.phase:
            self._now = now if now.phase_seen else replace(now, phase_seen=True)
            return
        failed = now.failed and index < READY
        self._now = replace(now, phase=index, phase_seen=True, unmatched=None, failed=failed, error=None)
        self._drop_completed(index)

    def _drop_completed(self, before: int) -> None:
        """Drop the evidence of earlier phases, which completed."""
        kept = (item for item in self._evidence if item.forbids or STARTUP_PHASES.index(item.phase) >= before)
        self._evidence = list(kept)

    def _take_end(self, line: LogLine, meaning: LineMeaning) -> None:
        if meaning.stops and not self._now.failed:
            self._now = replace(self._now, stopping=True)
        if meaning.failed and not self._now.stopping and not self._echoes(line):
            self._now = replace(self._now, failed=True)

    def _take_evidence(self, line: LogLine, meaning: LineMeaning) -> None:
        self._survived = meaning.survived or (self._survived and line.inherited)
        if self._survived or self._take_matches(line) or self._now.stopping:
            return
        if meaning.exception and line.level not in _QUIET and not matches_of(self._grammar, line.message):
            self._wrapped, self._wraps = line, 0
            self._now = replace(self._now, unmatched=self._now.unmatched or line)
        elif self._wrapped is not None:
            self._take_wrapped(self._wrapped, line)

    def _take_matches(self, line: LogLine) -> bool:
        """Return whether the line matches a failure that is possible here."""
        if self._now.phase == READY and line.level in _QUIET:
            return False
        matches = [pair for pair in matches_of(self._grammar, line.message) if self._is_possible(pair[0], line)]
        seen = [self._evidence_of(item, match, line) for item, match in matches]
        best = min((item for item in seen if item is not None), key=lambda item: item.rank, default=None)
        if best is not None:
            self._evidence.append(best)
        return best is not None

    def _take_wrapped(self, first: LogLine, line: LogLine) -> None:
        """Join an exception's message that continues on the next lines."""
        same_record = line.inherited or (line.level is None and first.level is None)
        continues = same_record and self._wraps < _MAX_WRAPS
        whole = replace(first, text=f"{first.text} {line.text}", message=f"{first.message} {line.message}")
        self._wrapped, self._wraps = (whole, self._wraps + 1) if continues else (None, 0)
        if continues and self._take_matches(whole):
            unmatched = self._now.unmatched
            if unmatched is not None and unmatched.number == first.number:
                self._now = replace(self._now, unmatched=None)
            self._wrapped = None

    def _is_possible(self, pattern: FailurePattern, line: LogLine) -> bool:
        if line.text.startswith(_BOXED) and not pattern.frame:
            return False
        if self._now.stopping and not pattern.machine:
            return False
        if pattern.phases and self._now.phase_seen:
            return STARTUP_PHASES[self._now.phase] in pattern.phases
        return STARTUP_PHASES.index(pattern.phase) >= self._now.phase or not pattern.vague

    def _evidence_of(self, pattern: FailurePattern, match: re.Match[str], line: LogLine) -> Evidence | None:
        serving = self._now.phase == READY
        known = Evidence(
            pattern=pattern,
            phase=self._phase_of(pattern),
            line=line,
            match=match,
            rank=pattern.strength,
            pending=False,
        )
        if pattern.forbids_ready:
            # Once the engine serves, the text may be a user's; without a visible start, that of a quiet record may be.
            forbids = self._now.phase_seen and not self._now.failed
            pending = self._now.phase_seen or line.level in _QUIET
            return None if serving else replace(known, rank=known.rank + 1, pending=pending, forbids=forbids)
        if line.system:
            # The kernel and systemd write about other processes, too.
            return replace(known, pending=pattern.vague and self._now.phase_seen and self._now.phase >= _DOWNLOADING)
        quiet = line.level in _QUIET and (serving or not line.inherited)
        if quiet or line.level == "WARN":
            shown = line.level == "WARN" or pattern.info
            return replace(known, rank=known.rank + 1, pending=True) if shown and not serving else None
        certain = pattern.machine or (pattern.serving and _is_loud(line) and not self._echoes(line))
        return replace(known, pending=serving and not certain)

    def _phase_of(self, pattern: FailurePattern) -> str:
        """Return the current phase if the failure can occur in it, else the one it belongs to."""
        first, last = STARTUP_PHASES.index(pattern.since), STARTUP_PHASES.index(pattern.phase)
        here = self._now.phase_seen and first <= self._now.phase <= last
        return STARTUP_PHASES[self._now.phase] if here else pattern.home

    def _echoes(self, line: LogLine) -> bool:
        """Return whether it may continue a user's text: it directly follows an info record."""
        return self._now.phase == READY and line.level is None and not line.system and line.after in _QUIET

    def _take_error(self, line: LogLine, meaning: LineMeaning) -> None:
        rank, known = meaning.error_rank, self._now.error
        if rank is not None and (known is None or rank < known.rank):
            self._now = replace(
                self._now, error=LoggedError(rank=rank, text=line.text[:LINE_CHARS], number=line.number)
            )

    def _exit(self, code: int) -> None:
        """Record an exit. A later part of the log can repeat the line: it counts once."""
        now = self._now
        if code != 0 and now.exit_code is None:
            self._exits += 1
            now = replace(now, failed=now.failed or not now.stopping)
        self._now = replace(now, exit_code=code)
        self._final = self._final or code in self._grammar.final_exit_codes


def _is_loud(line: LogLine) -> bool:
    """Return whether it is logged as an error, or outside of any record."""
    return line.level == "ERROR" or not line.inherited


def _settled(best: Evidence, counted: Iterable[Evidence]) -> Evidence:
    """Resolve an ambiguous line: another line that shows only one of its two causes decides."""
    ambiguous = {other.code for other in best.pattern.other_causes}
    others = [item for item in counted if item.pattern is not best.pattern]
    if any(item.pattern.code == best.pattern.code for item in others):
        return replace(best, pattern=replace(best.pattern, other_causes=()))
    return next((item for item in others if item.pattern.code in ambiguous), best)


def _own_line(best: Evidence, counted: Sequence[Evidence]) -> Evidence:
    """Return the exception's own line if the first match is the source line that raises it."""
    if not best.line.text.startswith(_RAISES):
        return best
    after = counted[counted.index(best) + 1 :] if best in counted else ()
    near = (item for item in after if item.line.number - best.line.number <= _FRAME_LINES)
    same = (item for item in near if item.pattern.code == best.pattern.code)
    return next((item for item in same if not item.line.text.startswith(_RAISES)), best)


def _judged(reading: Reading, grammar: LogGrammar, subject: Subject) -> Reading:
    """Return the reading with its findings. A hang of the latest start counts if no line names a cause."""
    latest = reading.latest
    hang = _hang(latest, grammar, subject) if latest.best(planned=subject.planned) is None else None
    start, share = _start_with_cause(reading, subject)
    found = _causes(start.best(planned=subject.planned), start, grammar, subject, share=share)
    died = next((item for item in (latest, *reversed(reading.earlier)) if item.died), latest)
    ended = died.best(planned=subject.planned) if died.died and not latest.serves else None
    return replace(
        reading,
        findings=found if hang is None else (hang,),
        hangs=hang is not None,
        cause_of_end=next(iter(_causes(ended, died, grammar, subject)), None),
        forbids_ready=next(iter(_causes(latest.forbids, latest, grammar, subject)), None),
    )


def _causes(
    evidence: Evidence | None, start: EngineStart, grammar: LogGrammar, subject: Subject, *, share: float = 1.0
) -> tuple[Finding, ...]:
    facts = _facts(start, subject)
    return () if evidence is None else findings_of(evidence, grammar.pages, facts, share=share)


def _facts(start: EngineStart, subject: Subject) -> dict[str, str]:
    """Return the facts for remedies; given ones take precedence over the log's."""
    return {"name": "NAME", "model": "MODEL", **start.progress.facts(), **subject.facts}


def _start_with_cause(reading: Reading, subject: Subject) -> tuple[EngineStart, float]:
    """Return the start that shows the cause, and the share of its confidence.

    That is the latest start, unless it shows no cause (yet) and an earlier one does. An engine that serves has
    recovered from earlier failed starts, but not from an earlier crash while serving.
    """
    latest = reading.latest
    if latest.best(planned=subject.planned) is not None:
        return latest, 1.0
    serves = latest.phase == READY and not latest.failed
    with_cause = (
        item
        for item in reversed(reading.earlier)
        if (item.phase == READY or not serves) and item.best(planned=subject.planned) is not None
    )
    earlier = next(with_cause, None)
    return (latest, 1.0) if earlier is None else (earlier, _EARLIER_SHARE)


def _hang(start: EngineStart, grammar: LogGrammar, subject: Subject) -> Finding | None:
    """Return the hang: several shards wrote only waiting lines for long, without an error."""
    progress = start.progress
    waits = start.phase == _LOADING and progress.ranks > 1 and progress.shards_ready == 0 and not start.failed
    if grammar.hang is None or not waits or progress.last_wait is None:
        return None
    waited_s = progress.waited_s(grammar.hang.line_s)
    if waited_s < subject.hang_s:
        return None
    page, facts = grammar.pages[grammar.hang.code], _facts(start, subject)
    return hang_of(page, progress.last_wait, ranks=progress.ranks, waited_s=waited_s, facts=facts)
