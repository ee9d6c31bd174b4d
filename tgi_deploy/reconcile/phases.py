"""Reads where a starting engine stands, and what stopped it, from its log. Pure: text and a table in, a view out.

The table is data (`profiles/engines/*/phases.json`). A log is a sequence of attempts: a container that is started
again starts at an early phase again. Within an attempt phases only go forward. The cause of a failure is the first
error that names one; an exact signature outranks a vague one, and a phase that ended well forgives the errors that
belong to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tgi_deploy.reconcile.loglines import log_lines
from tgi_deploy.reconcile.phase_table import PHASES

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from tgi_deploy.reconcile.phase_table import PhaseTable, Signature

_LINE_CHARS: Final = 400
_UNKNOWN_CODE: Final = -1
_READY: Final = len(PHASES) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A cause and the line that shows it."""

    code: str
    phase: str
    cause: str
    remedy: str
    evidence: str
    vague: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseView:
    """Where the latest attempt stands.

    `evident` is False when no line of the log names a phase. `finding` is the most telling known error of this
    attempt; engines survive some errors, so it is a verdict only as `died_of`: what the last failed attempt died of.
    `exit_code` is that of the latest attempt (-1: ended, code unknown), None while it goes on; `exits` counts failed
    attempts; `final`: the machine won't try again. `error_line` is the first line that looks like an error and is no
    mere consequence of one.
    """

    phase: str = "launching"
    evident: bool = False
    detail: str = ""
    progress: float | None = None
    kv_capacity_tokens: int | None = None
    max_total_tokens: int | None = None
    finding: Finding | None = None
    died_of: Finding | None = None
    error_line: str | None = None
    last_line: str | None = None
    exit_code: int | None = None
    exits: int = 0
    final: bool = False


def read_phase(log_text: str, table: PhaseTable, *, previous: PhaseView | None = None) -> PhaseView:
    """Where the engine stands by this piece of its log.

    A console keeps only its last part (64 KiB on EC2). Where that part has lost the beginning of the attempt,
    `previous`, the view of an earlier part, supplies what was known.
    """
    lines = log_lines(log_text)
    reader = _Reader(table=table)
    if previous is not None and not any(_restart_at(table, line) is not None for line in lines):
        reader.go_on_from(previous)
    for line in lines:
        reader.hear(line)
    return reader.view()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """What one line means by itself. `error_rank`: 0 is the most telling; phases are positions in PHASES."""

    restart: int | None
    begins: int | None
    progress: tuple[tuple[str, re.Match[str]], ...]
    signatures: tuple[Signature, ...]
    error_rank: int | None
    exit_code: int | None
    gave_up: bool


# A growing log is read again at every look; its lines mean the same each time.
@lru_cache(maxsize=4096)
def _said(table: PhaseTable, line: str) -> _Said:
    progress = ((item.kind, item.pattern.search(line)) for item in table.progress)
    return _Said(
        restart=_restart_at(table, line),
        begins=_first(line, [phase.begins for phase in table.phases]),
        progress=tuple((kind, match) for kind, match in progress if match is not None),
        signatures=tuple(item for item in table.signatures if item.pattern.search(line)),
        error_rank=_error_rank(table, line),
        exit_code=_exit_code(table, line),
        gave_up=table.gave_up.search(line) is not None,
    )


def _restart_at(table: PhaseTable, line: str) -> int | None:
    return _first(line, [phase.restarts for phase in table.phases])


def _first(line: str, patterns: Iterable[re.Pattern[str] | None]) -> int | None:
    return next((at for at, item in enumerate(patterns) if item is not None and item.search(line)), None)


def _error_rank(table: PhaseTable, line: str) -> int | None:
    """Mere consequences come after every kind of error."""
    rank = _first(line, table.error_lines)
    return rank if rank is None or not table.consequences.search(line) else rank + len(table.error_lines)


def _exit_code(table: PhaseTable, line: str) -> int | None:
    match = table.exited.search(line)
    return None if match is None else int(match["code"] or _UNKNOWN_CODE)


def _finding(signature: Signature, line: str) -> Finding:
    return Finding(
        code=signature.code,
        phase=signature.phase,
        cause=signature.cause,
        remedy=signature.remedy,
        evidence=line[:_LINE_CHARS],
        vague=signature.vague,
    )


class _Attempt:
    """What one attempt of the engine to start has shown so far."""

    def __init__(self) -> None:
        self.phase = 0
        self.evident = False
        self.restarts: set[int] = set()
        self.finding: Finding | None = None
        self.error: tuple[int, str] | None = None
        self.exit_code: int | None = None
        self.image: str | None = None
        self.files: tuple[int, int] | None = None
        self.present = False
        self.shards = 0
        self.started = 0
        self.shards_ready = 0
        self.capacity: int | None = None
        self.max_total: int | None = None

    def hear_image(self, match: re.Match[str]) -> None:
        self.image = match["image"]

    def hear_files(self, match: re.Match[str]) -> None:
        self.files = (int(match["done"]), int(match["total"]))

    def hear_files_present(self, _match: re.Match[str]) -> None:
        self.present = True

    def hear_shard_count(self, match: re.Match[str]) -> None:
        self.shards = int(match["count"])

    def hear_shard_started(self, _match: re.Match[str]) -> None:
        self.started += 1

    def hear_shard_ready(self, _match: re.Match[str]) -> None:
        self.shards_ready += 1

    def hear_kv_cache(self, match: re.Match[str]) -> None:
        self._hold(int(match["blocks"]) * int(match["size"]))

    def hear_batch_tokens(self, match: re.Match[str]) -> None:
        self._hold(int(match["tokens"]))

    def hear_max_total_tokens(self, match: re.Match[str]) -> None:
        self.max_total = int(match["tokens"])

    def _hold(self, tokens: int) -> None:
        """Ranks can differ; the router uses the smallest."""
        self.capacity = tokens if self.capacity is None else min(self.capacity, tokens)


_HEARD: Final = {
    "image": _Attempt.hear_image,
    "files": _Attempt.hear_files,
    "files_present": _Attempt.hear_files_present,
    "shard_count": _Attempt.hear_shard_count,
    "shard_started": _Attempt.hear_shard_started,
    "shard_ready": _Attempt.hear_shard_ready,
    "kv_cache": _Attempt.hear_kv_cache,
    "batch_tokens": _Attempt.hear_batch_tokens,
    "max_total_tokens": _Attempt.hear_max_total_tokens,
}


class _Reader:
    """Hears a log line by line. `now` is the latest attempt; `error_before` and `died_of` tell of the one before."""

    def __init__(self, *, table: PhaseTable) -> None:
        self._table = table
        self.now = _Attempt()
        self.died_of: Finding | None = None
        self.error_before: str | None = None
        self.exits = 0
        self.final = False
        self.last: str | None = None

    def go_on_from(self, previous: PhaseView) -> None:
        self.now.phase = PHASES.index(previous.phase)
        self.now.evident = previous.evident
        self.now.finding = previous.finding
        self.died_of = previous.died_of
        self.now.exit_code = previous.exit_code
        self.exits = previous.exits
        self.final = previous.final
        self.last = previous.last_line
        self.now.capacity = previous.kv_capacity_tokens
        self.now.max_total = previous.max_total_tokens
        if previous.error_line is not None:
            self.now.error = (0, previous.error_line)

    def hear(self, line: str) -> None:
        said = _said(self._table, line)
        self._hear_phase(said)
        for kind, match in said.progress:
            _HEARD[kind](self.now, match)
        self._hear_error(line, said)
        if said.exit_code is not None:
            self._end(said.exit_code)
        self.final = self.final or said.gave_up
        self.last = line

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
            self.now = _Attempt()
        self.now.restarts.add(index)

    def _reach(self, index: int) -> None:
        self.now.evident = True
        if index <= self.now.phase:
            return
        self.now.phase = index
        finding = self.now.finding
        if finding is not None and PHASES.index(finding.phase) < index:
            self.now.finding = None
        self.now.error = None

    def _hear_error(self, line: str, said: _Said) -> None:
        finding = next((_finding(item, line) for item in said.signatures if self._fits_phase(item)), None)
        known = self.now.finding
        if finding is not None and (known is None or (known.vague and not finding.vague)):
            self.now.finding = finding
        rank = said.error_rank
        if rank is not None and (self.now.error is None or rank < self.now.error[0]):
            self.now.error = (rank, line[:_LINE_CHARS])

    def _fits_phase(self, signature: Signature) -> bool:
        at = PHASES.index(signature.phase)
        if signature.only_in_phase:
            return at == self.now.phase or not self.now.evident
        return at >= self.now.phase or not signature.vague

    def _end(self, code: int) -> None:
        """An engine that ends with 0 was asked to. A later part of the log can show an exit again: it counts once."""
        if code != 0 and self.now.exit_code is None:
            self.exits += 1
            self.died_of = self.now.finding
        self.now.exit_code = code
        self.final = self.final or code in self._table.final_exit_codes

    def view(self) -> PhaseView:
        now = self.now
        phase = PHASES[now.phase]
        detail, progress = _progress_of(now, phase)
        healed = now.phase == _READY and now.exit_code is None
        return PhaseView(
            phase=phase,
            evident=now.evident,
            detail=detail,
            progress=progress,
            kv_capacity_tokens=now.capacity,
            max_total_tokens=now.max_total,
            finding=now.finding,
            died_of=None if healed else self.died_of,
            error_line=now.error[1] if now.error else (None if healed else self.error_before),
            last_line=None if self.last is None else self.last[:_LINE_CHARS],
            exit_code=now.exit_code,
            exits=self.exits,
            final=self.final,
        )


def _progress_of(attempt: _Attempt, phase: str) -> tuple[str, float | None]:
    if phase == "pulling" and attempt.image is not None:
        return attempt.image, None
    if phase == "downloading":
        return _download_of(attempt)
    if phase == "loading":
        count = attempt.shards or max(1, attempt.started)
        return f"{attempt.shards_ready} of {count} shards ready", min(1.0, attempt.shards_ready / count)
    if attempt.capacity is not None:
        return f"KV cache holds {attempt.capacity} tokens", None
    return "", None


def _download_of(attempt: _Attempt) -> tuple[str, float | None]:
    if attempt.present:
        return "weights are already there", 1.0
    if attempt.files is None or attempt.files[1] == 0:
        return "", None
    done, total = attempt.files
    return f"{done} of {total} files", min(1.0, done / total)
