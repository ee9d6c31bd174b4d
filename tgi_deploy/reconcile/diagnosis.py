"""What went wrong, by a log: causes with their evidence, the most likely first. Pure: text and a table in, values out.

The latest attempt counts most. In it the first error that names a cause wins; consequences and wrappers never do. One
line can fit two causes: then both are told, with what tells them apart. A log of an engine that serves, or was asked
to stop, has no cause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tgi_deploy.reconcile.attempts import LINE_CHARS, READY, LogReader
from tgi_deploy.reconcile.findings import Finding, finding_of, with_derived
from tgi_deploy.reconcile.loglines import read_lines
from tgi_deploy.reconcile.signatures import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.reconcile.attempts import Attempt
    from tgi_deploy.reconcile.phase_table import PhaseTable

# A 70B model has been seen to load for 530 s; nothing but waiting for longer is a hang (threads 1838, 2763).
HANG_S: Final = 600.0
_HANG_CONFIDENCE: Final = 0.5
_TWIN_SHARE: Final = 0.5
_EARLIER_SHARE: Final = 0.8
_LOADING: Final = PHASES.index("loading")


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """`findings`: the most likely first. `phase`: where the latest attempt stands, None where no line tells.

    `failed`: the log shows that the engine ended badly. `unexplained`: the first error where no cause is known.
    """

    findings: tuple[Finding, ...] = ()
    phase: str | None = None
    failed: bool = False
    attempts: int = 1
    unexplained: str | None = None
    unexplained_line: int = 0

    @property
    def clean(self) -> bool:
        return not self.findings and not self.failed


def diagnose(
    log_text: str,
    table: PhaseTable,
    *,
    facts: Mapping[str, str] | None = None,
    hang_s: float = HANG_S,
    planned: bool = False,
) -> Diagnosis:
    """The causes that a log shows. `facts` are what else is known: `name`, `model`, `num_shard`, `prefill`, `context`.

    `planned`: it is the log of a deployment, which is planned with accelerators.

    A machine's state reason can stand in the log as a line of its own. `hang_s`: for how long shards that load may do
    nothing but wait.
    """
    reader = LogReader(table=table, planned=planned)
    for line in read_lines(log_text):
        reader.hear(line)
    told, share = _telling(reader, hang_s)
    findings = _findings(told, table, facts or {}, share, hang_s)
    failed = bool(findings) or (told.failed and not told.stopping)
    unknown = told.error if failed and not findings else None
    return Diagnosis(
        findings=findings,
        phase=PHASES[reader.now.phase] if reader.now.evident else None,
        failed=failed,
        attempts=len(reader.past) + 1,
        unexplained=None if unknown is None else unknown[1],
        unexplained_line=0 if unknown is None else unknown[2],
    )


def _telling(reader: LogReader, hang_s: float) -> tuple[Attempt, float]:
    """The attempt that tells the cause, and how much of its confidence counts.

    The latest, unless it shows nothing (yet) and an earlier one does. An engine that came to serve has got over the
    failed starts before that, not over an earlier crash while it served.
    """
    now = reader.now
    if now.best is not None or _hangs(now, hang_s):
        return now, 1.0
    serves = now.phase == READY and not now.failed
    earlier = [item for item in reader.past if item.best is not None and (item.phase == READY or not serves)]
    return (earlier[-1], _EARLIER_SHARE) if earlier else (now, 1.0)


def _findings(
    attempt: Attempt, table: PhaseTable, facts: Mapping[str, str], share: float, hang_s: float
) -> tuple[Finding, ...]:
    known = {**_facts(attempt), **facts}
    best = attempt.best
    if best is None:
        return (_hang(attempt, table, known),) if _hangs(attempt, hang_s) else ()
    found = finding_of(best, known, share=share)
    twins = [
        replace(
            found,
            code=page.code,
            phase=page.phase,
            confidence=round(found.confidence * _TWIN_SHARE, 2),
            cause=page.cause,
            remedy=page.remedy.told(with_derived(known)),
            apart=twin.apart,
        )
        for twin in best.signature.twins
        for page in (table.pages[twin.code],)
    ]
    apart = best.signature.twins[0].apart if twins else ""
    return (replace(found, apart=apart), *twins)


def _hangs(attempt: Attempt, hang_s: float) -> bool:
    """Only waiting lines for long, of several ranks, and no error."""
    waiting = attempt.phase == _LOADING and attempt.ranks > 1 and attempt.shards_ready == 0
    return waiting and not attempt.failed and attempt.waited_s >= hang_s


def _hang(attempt: Attempt, table: PhaseTable, known: Mapping[str, str]) -> Finding:
    page, last = table.pages["nccl_hang"], attempt.waits[-1]
    return Finding(
        code=page.code,
        phase=page.phase,
        confidence=_HANG_CONFIDENCE,
        evidence=last.text[:LINE_CHARS],
        line=last.number,
        cause=f"{attempt.ranks} shards have only waited for {attempt.waited_s:.0f} s. {page.cause}",
        remedy=page.remedy.told(with_derived(known)),
        apart="a GPU at 100 % in nvidia-smi with no progress means a hang; disk reads in iostat mean a slow load",
    )


def _facts(attempt: Attempt) -> dict[str, str]:
    """What the log itself tells; a fact that is given counts more."""
    told = {
        "model": attempt.model,
        "num_shard": attempt.shards or attempt.started or None,
        "prefill": attempt.prefill,
        "context": attempt.max_total,
    }
    return {"name": "NAME", "model": "MODEL"} | {name: str(value) for name, value in told.items() if value is not None}
