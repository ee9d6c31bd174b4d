"""Writes the reader's result for each log next to it. Review the difference before you commit it.

python tests/cases/phases/rewrite.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builders.logs import GRAMMAR

from tgi_deploy.diagnosis.progress import detail_of, fraction_of
from tgi_deploy.diagnosis.reader import Subject, read

if TYPE_CHECKING:
    from tgi_deploy.diagnosis.reader import Reading
    from tgi_deploy.values.results import Finding

DEPLOYED = Subject(planned=True)


def shown(reading: Reading) -> dict[str, Any]:
    """Return the reading as the cases keep it: findings as code and evidence."""
    phase, progress = reading.startup_phase, reading.progress
    return {
        "phase": phase,
        "phase_seen": reading.phase_seen,
        "detail": detail_of(phase, progress),
        "progress": fraction_of(phase, progress),
        "kv_capacity_tokens": progress.kv_capacity_tokens,
        "max_total_tokens": progress.max_total_tokens,
        "findings": [_brief(item) for item in reading.findings],
        "cause_of_end": _brief(reading.cause_of_end),
        "forbids_ready": _brief(reading.forbids_ready),
        "error_line": reading.error_line,
        "last_line": reading.last_line,
        "exit_code": reading.latest.exit_code,
        "starts": reading.starts,
        "exits": reading.exits,
        "final": reading.final,
        "received_mb": progress.received_mb,
        "eta_s": progress.eta_s,
        "steps": progress.steps,
    }


def _brief(finding: Finding | None) -> dict[str, str] | None:
    return None if finding is None else {"code": finding.code, "evidence": finding.evidence}


def main() -> None:
    grammar = GRAMMAR
    for log in sorted(Path(__file__).parent.rglob("*.log")):
        reading = read(log.read_text(encoding="utf-8"), grammar, subject=DEPLOYED)
        log.with_suffix(".json").write_text(
            json.dumps(shown(reading), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
