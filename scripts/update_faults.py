"""Write the table of faults in docs/diagnosis.md from tests/cases/faults. With `--check`: exit 1 when out of date."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from generated import with_lines, write_or_check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = _ROOT / "docs" / "diagnosis.md"
_CASES: Final = _ROOT / "tests" / "cases" / "faults"
_BEGIN: Final = "<!-- faults: written by scripts/update_faults.py -->\n"
_END: Final = "<!-- end of faults -->\n"
_UNHEALTHY: Final = 5
_HEAD: Final = (
    "| fault | in the sandbox | phase | exit, code | finding | evidence | command |",
    "|---|---|---|---|---|---|---|",
)


def page() -> str:
    """Return the whole page with the table of today's cases."""
    rows = [_row(tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(_CASES.glob("*.toml"))]
    return with_lines(TARGET.read_text(encoding="utf-8"), (*_HEAD, *rows), begin=_BEGIN, end=_END)


def _row(case: Mapping[str, Any]) -> str:
    finding = case.get("finding")
    phases = "any" if len(case["phase"]) > 2 else " or ".join(case["phase"])  # noqa: PLR2004 -- more name nothing
    cells = (
        case["title"],
        f"`{case['fault'].get('engine') or case['fault']['name']}`",
        phases.replace("_", " "),
        f"{case.get('exit', _UNHEALTHY)}, `{case['code'][0]}`",
        f"[`{finding}`](runbooks/{finding}.md)" if finding else "none",
        f"`{case['evidence']}`",
        f"`{case['command'].strip()}`",
    )
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    return write_or_check(__doc__, lambda: {TARGET: page()}, argv)


if __name__ == "__main__":
    sys.exit(main())
