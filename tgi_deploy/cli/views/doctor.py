"""How findings are shown: one line each, the remedy under what is not in order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.cli.views.text import WIDTH, wrapped
from tgi_deploy.text import one_line, plural
from tgi_deploy.values.check_result import document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.errors import Problem, Severity

_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}
SEVERITIES: Final[tuple[Severity, ...]] = ("ok", "warning", "error")


def findings_document(findings: Sequence[Problem]) -> dict[str, Any]:
    counted = Counter(item.severity for item in findings)
    return {
        "findings": [document(item) for item in findings],
        "summary": {severity: counted[severity] for severity in SEVERITIES},
    }


def findings_text(findings: Sequence[Problem]) -> str:
    wide = max((len(item.code) for item in findings), default=0)
    lines = [line for item in findings for line in _lines(item, wide)]
    counted = Counter(item.severity for item in findings)
    told = (plural(counted["error"], "error"), plural(counted["warning"], "warning"), f"{counted['ok']} ok")
    return "\n".join([*lines, ", ".join(told)])


def _lines(item: Problem, wide: int) -> list[str]:
    """A remedy stands on a line of its own, uncut, so that a command in it can be copied."""
    margin = " " * (len("warning  ") + wide + 2)
    mark = click.style(item.severity.ljust(7), fg=_COLOURS[item.severity])
    told = wrapped(one_line(item.message), first=margin, rest=margin).removeprefix(margin)
    lines = [f"{mark}  {item.code.ljust(wide)}  {told}"]
    if item.hint and item.severity != "ok":
        lines.append(f"{margin}→ {one_line(item.hint, limit=WIDTH * 4)}")
    return lines
