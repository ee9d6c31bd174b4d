"""Writes what `read_phase` makes of each log beside it. Read the difference before you commit it.

python tests/cases/phases/rewrite.py
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tgi_deploy.catalog.phases import read_phases
from tgi_deploy.reconcile.phase_table import table_from
from tgi_deploy.reconcile.phases import read_phase

if TYPE_CHECKING:
    from tgi_deploy.reconcile.phases import Finding, PhaseView


def shown(view: PhaseView) -> dict[str, Any]:
    """The view as the cases keep it: findings as code and evidence."""
    return asdict(view) | {name: _brief(getattr(view, name)) for name in ("finding", "died_of", "forbidden")}


def _brief(finding: Finding | None) -> dict[str, str] | None:
    return None if finding is None else {"code": finding.code, "evidence": finding.evidence}


def main() -> None:
    table = table_from(read_phases())
    for log in sorted(Path(__file__).parent.rglob("*.log")):
        view = read_phase(log.read_text(encoding="utf-8"), table)
        log.with_suffix(".json").write_text(
            json.dumps(shown(view), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
