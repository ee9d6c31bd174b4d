"""Hears a log line by line and keeps what each attempt of the engine to start has shown.

A log is a sequence of attempts: a container that is started again starts at an early phase again. Within an attempt
phases only go forward, and a phase that ended well forgives the errors that belong to it. What a line shows depends
on who says it and when: a quiet line is no failure, and once users are served their words are in the log, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tgi_deploy.reconcile.signatures import PHASES, STRENGTHS

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Sequence

    from tgi_deploy.reconcile.loglines import LogLine
    from tgi_deploy.reconcile.phase_table import PhaseTable
    from tgi_deploy.reconcile.signatures import Signature

LINE_CHARS: Final = 400
READY: Final = len(PHASES) - 1
_DOWNLOADING: Final = PHASES.index("downloading")
_UNKNOWN_CODE: Final = -1
# The kind of the table's `error_lines` that is an exception's own line.
EXCEPTION: Final = "exception"
# A traceback in a box shows lines of source, and with them the texts of errors that did not happen.
_BOXED: Final = ("│", "┃", "╭", "╰", "|   ")
# In a traceback the line of source comes before the exception's own, with its text or the pattern of it.
_RAISES: Final = ("raise ", "assert ")
_FRAME_LINES: Final = 6
# Long messages are wrapped at the width of a terminal.
_MAX_WRAPS: Final = 3
_QUIET: Final = frozenset({"TRACE", "DEBUG", "INFO"})
# Each rank says every ten seconds that it waits (launcher).
_WAIT_LINE_S: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A line that fits a signature. `rank`: 0 tells most. `pending`: it counts only if the attempt failed.

    `forbids`: it counts until the attempt ends, whatever comes after it. `phase` is where it struck.
    """

    signature: Signature
    phase: str
    line: LogLine
    match: re.Match[str]
    rank: int
    pending: bool
    forbids: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """What one line means by itself. Phases are positions in PHASES.

    `error_rank`: 0 is the most telling; `exception`: the line is an exception's own, and no mere consequence.
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


# A growing log is read again at every look; its lines mean the same each time.
@lru_cache(maxsize=8192)
def _meaning(table: PhaseTable, text: str, said: str) -> _Said:
    progress = ((item.kind, item.pattern.search(said)) for item in table.progress)
    error = _first(text, [line.pattern for line in table.error_lines])
    consequence = error is not None and table.consequences.search(text) is not None
    return _Said(
        restart=restart_at(table, said),
        begins=_first(text, [phase.begins for phase in table.phases]),
        progress=tuple((kind, match) for kind, match in progress if match is not None),
        # Mere consequences come after every kind of error.
        error_rank=error if error is None or not consequence else error + len(table.error_lines),
        exception=error is not None and not consequence and table.error_lines[error].kind == EXCEPTION,
        exit_code=_exit_code(table, said),
        gave_up=table.gave_up.search(said) is not None,
        failed=table.failures.search(said) is not None,
        stops=table.stops.search(said) is not None,
        survived=table.survived.search(said) is not None,
    )


@lru_cache(maxsize=8192)
def _matches(table: PhaseTable, said: str) -> tuple[tuple[Signature, re.Match[str]], ...]:
    found = ((item, item.search(said)) for item in table.signatures)
    return tuple((item, match) for item, match in found if match is not None)


def restart_at(table: PhaseTable, text: str) -> int | None:
    """The phase that this line begins anew, None if it begins none."""
    return _first(text, [phase.restarts for phase in table.phases])


def _first(line: str, patterns: Iterable[re.Pattern[str] | None]) -> int | None:
    return next((at for at, item in enumerate(patterns) if item is not None and item.search(line)), None)


def _exit_code(table: PhaseTable, line: str) -> int | None:
    match = table.exited.search(line)
    return None if match is None else int(match["code"] or _UNKNOWN_CODE)


class Attempt:
    """What one attempt of the engine to start has shown so far. `planned`: accelerators were planned for it."""

    def __init__(self, *, planned: bool) -> None:
        self.planned = planned
        self.phase = 0
        self.evident = False
        self.restarts: set[int] = set()
        self.evidence: list[Evidence] = []
        self.stranger: LogLine | None = None
        self.survived = False
        self.wrapped: LogLine | None = None
        self.wraps = 0
        self.failed = False
        self.stopping = False
        self.error: tuple[int, str, int] | None = None
        self.exit_code: int | None = None
        self.image: str | None = None
        self.received_mb: int | None = None
        self.eta_s: float | None = None
        self.model: str | None = None
        self.files: tuple[int, int] | None = None
        self.present = False
        self.shards = 0
        self.started = 0
        self.waiting = 0
        self.shards_ready = 0
        self.waits: list[LogLine] = []
        self.capacity: int | None = None
        self.measured = True
        self.max_total: int | None = None
        self.prefill: int | None = None

    @property
    def best(self) -> Evidence | None:
        """The most telling line, the first of equals. A wrapper says nothing where a stranger came before it.

        An engine that lacks the planned accelerators fails of much that it would not fail of with them.
        """
        if self.forbids is not None and (self.planned or not self.failed):
            return self.forbids
        counted = [item for item in self.evidence if self._counts(item)]
        best = min(counted, key=lambda item: (item.rank, item.line.number), default=None)
        if best is not None and best.rank >= STRENGTHS["wrapper"] and self.stranger is not None:
            return None
        return None if best is None else _own_line(_told_apart(best, counted), counted)

    @property
    def forbids(self) -> Evidence | None:
        """The first line that shows that this attempt does not run where it should."""
        first = next((item for item in self.evidence if item.forbids), None)
        return None if first is None else replace(first, rank=first.signature.strength)

    def _counts(self, item: Evidence) -> bool:
        return not item.signature.request if self.failed else not item.pending

    def forgive(self, before: int) -> None:
        """Drop what belongs to the phases before this one: they ended well."""
        self.evidence = [item for item in self.evidence if item.forbids or PHASES.index(item.phase) >= before]

    @property
    def steps(self) -> int:
        """A number that grows with each sign of progress but bytes."""
        files = self.files[0] if self.files else 0
        return files + self.present + self.started + self.shards_ready + (self.capacity is not None)

    @property
    def ranks(self) -> int:
        """As far as the log tells: of a long wait, a console keeps only lines that wait."""
        return self.shards or max(1, self.started, self.waiting)

    @property
    def waited_s(self) -> float:
        """Seconds that the ranks have waited for each other, by the lines' own clock or by their count."""
        if not self.waits:
            return 0.0
        first, last = self.waits[0].at_s, self.waits[-1].at_s
        if first is not None and last is not None and last > first:
            return last - first
        return len(self.waits) / self.ranks * _WAIT_LINE_S

    def hear_image(self, match: re.Match[str], _line: LogLine) -> None:
        self.image = match["image"]

    def hear_received(self, match: re.Match[str], _line: LogLine) -> None:
        self.received_mb = int(match["mb"])

    def hear_model(self, match: re.Match[str], _line: LogLine) -> None:
        self.model = match["model"]

    def hear_files(self, match: re.Match[str], _line: LogLine) -> None:
        """How many have come, and what the engine expects the rest to take: it has got over what went wrong before."""
        self.forgive(_DOWNLOADING + 1)
        self.files = (int(match["done"]), int(match["total"]))
        self.eta_s = _seconds(match) if match["hours"] else None

    def hear_files_present(self, _match: re.Match[str], _line: LogLine) -> None:
        self.present = True

    def hear_shard_count(self, match: re.Match[str], _line: LogLine) -> None:
        self.shards = int(match["count"])

    def hear_shard_started(self, _match: re.Match[str], _line: LogLine) -> None:
        self.started += 1

    def hear_shard_ready(self, _match: re.Match[str], _line: LogLine) -> None:
        self.shards_ready += 1

    def hear_shard_waiting(self, match: re.Match[str], line: LogLine) -> None:
        self.waiting = max(self.waiting, int(match["rank"] or 0) + 1)
        self.waits.append(line)

    def hear_kv_cache(self, match: re.Match[str], _line: LogLine) -> None:
        self._hold(int(match["blocks"]) * int(match["size"]))

    def hear_batch_tokens(self, match: re.Match[str], _line: LogLine) -> None:
        if self.measured:
            self._hold(int(match["tokens"]))

    def hear_batch_tokens_assumed(self, _match: re.Match[str], _line: LogLine) -> None:
        """The router could not measure: what it goes on with is a default, or what it was given."""
        self.measured = False

    def hear_prefill_tokens(self, match: re.Match[str], _line: LogLine) -> None:
        self.prefill = int(match["tokens"])

    def hear_max_total_tokens(self, match: re.Match[str], _line: LogLine) -> None:
        self.max_total = int(match["tokens"])

    def _hold(self, tokens: int) -> None:
        """Ranks can differ; the router uses the smallest."""
        self.capacity = tokens if self.capacity is None else min(self.capacity, tokens)


HEARD: Final = {
    "image": Attempt.hear_image,
    "received": Attempt.hear_received,
    "model": Attempt.hear_model,
    "files": Attempt.hear_files,
    "files_present": Attempt.hear_files_present,
    "shard_count": Attempt.hear_shard_count,
    "shard_started": Attempt.hear_shard_started,
    "shard_ready": Attempt.hear_shard_ready,
    "shard_waiting": Attempt.hear_shard_waiting,
    "kv_cache": Attempt.hear_kv_cache,
    "batch_tokens": Attempt.hear_batch_tokens,
    "batch_tokens_assumed": Attempt.hear_batch_tokens_assumed,
    "prefill_tokens": Attempt.hear_prefill_tokens,
    "max_total_tokens": Attempt.hear_max_total_tokens,
}


class LogReader:
    """Hears a log. `now` is the latest attempt, `past` those before it, `died_of` what ended the last failed one.

    `planned`: it is the log of a deployment, which is planned with accelerators.
    """

    def __init__(self, *, table: PhaseTable, planned: bool = False) -> None:
        self._table = table
        self._planned = planned
        self.now = Attempt(planned=planned)
        self.past: list[Attempt] = []
        self.died_of: Evidence | None = None
        self.error_before: str | None = None
        self.exits = 0
        self.final = False
        self.last: str | None = None

    def hear(self, line: LogLine) -> None:
        said = _meaning(self._table, line.text, line.said)
        self._hear_phase(said)
        for kind, match in said.progress:
            HEARD[kind](self.now, match, line)
        self._hear_end(line, said)
        self._hear_evidence(line, said)
        self._hear_error(line, said)
        if said.exit_code is not None:
            self._exit(said.exit_code)
        self.final = self.final or said.gave_up
        self.last = line.text

    def _hear_phase(self, said: _Said) -> None:
        if said.restart is not None:
            self._restart(said.restart)
            self._reach(said.restart)
        elif said.begins is not None and self.now.exit_code is None:
            self._reach(said.begins)

    def _restart(self, index: int) -> None:
        again = index in self.now.restarts or index < self.now.phase
        if self.now.exit_code is not None or (self.now.evident and again):
            self.error_before = self.now.error[1] if self.now.error else self.error_before
            self.past.append(self.now)
            self.now = Attempt(planned=self._planned)
        self.now.restarts.add(index)

    def _reach(self, index: int) -> None:
        now = self.now
        now.evident = True
        if index <= now.phase:
            return
        now.phase = index
        now.forgive(index)
        now.stranger = None
        now.failed = now.failed and index < READY
        now.error = None

    def _hear_end(self, line: LogLine, said: _Said) -> None:
        if said.stops and not self.now.failed:
            self.now.stopping = True
        if said.failed and not self.now.stopping and not self._echoes(line):
            self.now.failed = True

    def _hear_evidence(self, line: LogLine, said: _Said) -> None:
        now = self.now
        now.survived = said.survived or (now.survived and line.inherited)
        if now.survived or self._hear_matches(line) or now.stopping:
            return
        if said.exception and line.level not in _QUIET and not _matches(self._table, line.said):
            now.wrapped, now.wraps = line, 0
            now.stranger = now.stranger or line
        elif now.wrapped is not None:
            self._hear_wrapped(now.wrapped, line)

    def _hear_matches(self, line: LogLine) -> bool:
        """Whether the line fits something."""
        if self.now.phase == READY and line.level in _QUIET:
            return False
        boxed = line.text.startswith(_BOXED)
        fits = [
            pair
            for pair in _matches(self._table, line.said)
            if self._fits_phase(pair[0]) and (pair[0].frame or not boxed)
        ]
        if self.now.stopping:
            fits = [pair for pair in fits if pair[0].machine]
        heard = [self._judged(item, match, line) for item, match in fits]
        best = min((item for item in heard if item is not None), key=lambda item: item.rank, default=None)
        if best is not None:
            self.now.evidence.append(best)
        return best is not None

    def _hear_wrapped(self, first: LogLine, line: LogLine) -> None:
        """An exception's message may go on in the next lines: read it as one."""
        now = self.now
        same_record = line.inherited or (line.level is None and first.level is None)
        goes_on = same_record and now.wraps < _MAX_WRAPS
        whole = replace(first, text=f"{first.text} {line.text}", said=f"{first.said} {line.said}")
        now.wrapped, now.wraps = (whole, now.wraps + 1) if goes_on else (None, 0)
        if goes_on and self._hear_matches(whole):
            now.stranger = None if now.stranger is not None and now.stranger.number == first.number else now.stranger
            now.wrapped = None

    def _fits_phase(self, signature: Signature) -> bool:
        now = self.now
        if signature.phases and now.evident:
            return PHASES[now.phase] in signature.phases
        return PHASES.index(signature.phase) >= now.phase or not signature.vague

    def _judged(self, signature: Signature, match: re.Match[str], line: LogLine) -> Evidence | None:
        serving = self.now.phase == READY
        known = Evidence(
            signature=signature,
            phase=self._struck_in(signature),
            line=line,
            match=match,
            rank=signature.strength,
            pending=False,
        )
        if signature.forbids_ready:
            # Without a start in sight, or once users are served, the words may be a user's.
            forbids = self.now.evident and not self.now.failed
            return None if serving else replace(known, rank=known.rank + 1, pending=True, forbids=forbids)
        if line.system:
            # The kernel and systemd speak of other processes, too.
            return replace(known, pending=signature.vague and self.now.evident and self.now.phase >= _DOWNLOADING)
        quiet = line.level in _QUIET and (serving or not line.inherited)
        if quiet or line.level == "WARN":
            told = line.level == "WARN" or signature.info
            return replace(known, rank=known.rank + 1, pending=True) if told and not serving else None
        certain = signature.machine or (signature.serving and self._loud(line) and not self._echoes(line))
        return replace(known, pending=serving and not certain)

    def _struck_in(self, signature: Signature) -> str:
        """The phase at hand where the failure can strike in it, else the one it belongs to."""
        first, last = PHASES.index(signature.since), PHASES.index(signature.phase)
        return PHASES[self.now.phase] if self.now.evident and first <= self.now.phase <= last else signature.home

    def _echoes(self, line: LogLine) -> bool:
        """Whether it may be a further line of what a user wrote: it comes right after a quiet record."""
        unsaid = line.level is None and not line.system
        return self.now.phase == READY and unsaid and line.after in _QUIET

    @staticmethod
    def _loud(line: LogLine) -> bool:
        """Said as an error, or outside of any record."""
        return line.level == "ERROR" or not line.inherited

    def _hear_error(self, line: LogLine, said: _Said) -> None:
        rank = said.error_rank
        if rank is not None and (self.now.error is None or rank < self.now.error[0]):
            self.now.error = (rank, line.text[:LINE_CHARS], line.number)

    def _exit(self, code: int) -> None:
        """An engine that ends with 0 was asked to. A later part of the log can show an exit again: it counts once."""
        if code != 0 and self.now.exit_code is None:
            self.exits += 1
            self.now.failed = self.now.failed or not self.now.stopping
            self.died_of = self.now.best
        self.now.exit_code = code
        self.final = self.final or code in self._table.final_exit_codes


def _told_apart(best: Evidence, counted: Iterable[Evidence]) -> Evidence:
    """The other cause of an ambiguous line, where another line speaks for that one and none for the first.

    Where another line speaks for the first, the line is not ambiguous any more.
    """
    twins = {twin.code for twin in best.signature.twins}
    others = [item for item in counted if item.signature is not best.signature]
    if any(item.signature.code == best.signature.code for item in others):
        return replace(best, signature=replace(best.signature, twins=()))
    return next((item for item in others if item.signature.code in twins), best)


def _own_line(best: Evidence, counted: Sequence[Evidence]) -> Evidence:
    """What an exception says, where the first line that fits is the line of source that raises it."""
    if not best.line.text.startswith(_RAISES):
        return best
    after = counted[counted.index(best) + 1 :] if best in counted else ()
    near = (item for item in after if item.line.number - best.line.number <= _FRAME_LINES)
    said = (item for item in near if item.signature.code == best.signature.code)
    return next((item for item in said if not item.line.text.startswith(_RAISES)), best)


def _seconds(match: re.Match[str]) -> float:
    """Of a duration as Python writes it: `0:00:30`, `1 day, 2:03:04`; parts of a second count for nothing."""
    hours = int(match["days"] or 0) * 24 + int(match["hours"])
    return float((hours * 60 + int(match["minutes"])) * 60 + int(match["seconds"]))
