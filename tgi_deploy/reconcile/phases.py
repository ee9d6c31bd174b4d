"""Reads where a starting engine stands, and what stopped it, from its log. Pure: text and a table in, a view out.

The table is data (`profiles/engines/*/phases.json` and `profiles/diagnosis/`). `reconcile.attempts` hears the lines;
here the latest attempt becomes a view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.reconcile.attempts import LINE_CHARS, READY, Attempt, LogReader, restart_at
from tgi_deploy.reconcile.findings import Finding, finding_of
from tgi_deploy.reconcile.loglines import read_lines
from tgi_deploy.reconcile.signatures import PHASES

if TYPE_CHECKING:
    from tgi_deploy.reconcile.attempts import Evidence
    from tgi_deploy.reconcile.phase_table import PhaseTable


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseView:
    """Where the latest attempt stands.

    `evident` is False when no line of the log names a phase. `finding` is the most telling known error of this
    attempt; engines survive some errors, so it is a verdict only as `died_of`: what the last failed attempt died of.
    `forbidden` shows that the latest attempt does not run where it should: its answers are no reason to call it ready.
    `exit_code` is that of the latest attempt (-1: ended, code unknown), None while it goes on; `exits` counts failed
    attempts; `final`: the machine won't try again. `measured`: nothing shows that the room for tokens is a default.
    `error_line` is the first line that looks like an error and is no mere consequence of one. `received_mb` has come of
    an image, `eta_s` is the engine's own word on a download, and `steps` grows with each file, shard and the like.
    """

    phase: str = "launching"
    evident: bool = False
    detail: str = ""
    progress: float | None = None
    kv_capacity_tokens: int | None = None
    max_total_tokens: int | None = None
    finding: Finding | None = None
    died_of: Finding | None = None
    forbidden: Finding | None = None
    error_line: str | None = None
    last_line: str | None = None
    exit_code: int | None = None
    exits: int = 0
    final: bool = False
    received_mb: int = 0
    eta_s: float | None = None
    steps: int = 0
    measured: bool = True


def read_phase(log_text: str, table: PhaseTable, *, previous: PhaseView | None = None) -> PhaseView:
    """Where the engine stands by this piece of its log.

    A console keeps only its last part (64 KiB on EC2). Where that part has lost the beginning of the attempt,
    `previous`, the view of an earlier part, supplies what was known.
    """
    lines = read_lines(log_text)
    reader = LogReader(table=table, planned=True)
    known = PhaseView()
    if previous is not None and not any(restart_at(table, line.text) is not None for line in lines):
        known = previous
        _go_on(reader, previous)
    for line in lines:
        reader.hear(line)
    return _view(reader, known)


def _go_on(reader: LogReader, previous: PhaseView) -> None:
    now = reader.now
    now.phase = PHASES.index(previous.phase)
    now.evident = previous.evident
    now.exit_code = previous.exit_code
    now.capacity = previous.kv_capacity_tokens
    now.measured = previous.measured
    now.max_total = previous.max_total_tokens
    if previous.error_line is not None:
        now.error = (0, previous.error_line, 0)
    reader.exits = previous.exits
    reader.final = previous.final
    reader.last = previous.last_line


def _view(reader: LogReader, known: PhaseView) -> PhaseView:
    now = reader.now
    phase = PHASES[now.phase]
    detail, progress = _progress_of(now, phase)
    healed = now.phase == READY and now.exit_code is None
    return PhaseView(
        phase=phase,
        evident=now.evident,
        detail=detail,
        progress=progress,
        kv_capacity_tokens=now.capacity,
        max_total_tokens=now.max_total,
        finding=_rather(now.best, known.finding, phase),
        died_of=None if healed else _rather(reader.died_of, known.died_of, phase),
        forbidden=finding_of(now.forbids) if now.forbids else known.forbidden,
        error_line=now.error[1] if now.error else (None if healed else reader.error_before),
        last_line=None if reader.last is None else reader.last[:LINE_CHARS],
        exit_code=now.exit_code,
        exits=reader.exits,
        final=reader.final,
        received_mb=now.received_mb or 0,
        eta_s=now.eta_s,
        steps=now.steps,
        measured=now.measured,
    )


def _rather(seen: Evidence | None, known: Finding | None, phase: str) -> Finding | None:
    """What an earlier part of the log showed stands, unless its phase is over or this part is more exact."""
    if known is not None and PHASES.index(known.phase) < PHASES.index(phase):
        known = None
    if seen is None or (known is not None and (seen.signature.vague or not known.vague)):
        return known
    return finding_of(seen)


def _progress_of(attempt: Attempt, phase: str) -> tuple[str, float | None]:
    if phase == "pulling":
        return f"{attempt.received_mb:,} MB" if attempt.received_mb else attempt.image or "", None
    if phase == "downloading":
        return _download_of(attempt)
    if phase == "loading" and (count := attempt.shards or attempt.started):
        return f"{attempt.shards_ready} of {count} shards ready", min(1.0, attempt.shards_ready / count)
    if attempt.capacity is not None:
        return f"KV cache holds {attempt.capacity} tokens", None
    return "", None


def _download_of(attempt: Attempt) -> tuple[str, float | None]:
    if attempt.present:
        return "weights are already there", 1.0
    if attempt.files is None or attempt.files[1] == 0:
        return "", None
    done, total = attempt.files
    return f"{done} of {total} files", min(1.0, done / total)
