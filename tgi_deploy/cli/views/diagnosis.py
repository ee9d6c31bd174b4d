"""A diagnosis and the page of a code, as text of at most 100 columns and as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tgi_deploy.cli.output import one_line
from tgi_deploy.cli.views.text import heading, wrapped

if TYPE_CHECKING:
    from tgi_deploy.reconcile.diagnosis import Diagnosis
    from tgi_deploy.reconcile.findings import Finding

_CLEAN = "Nothing wrong in this log.\n"


def diagnosis_document(found: Diagnosis) -> dict[str, Any]:
    """The keys of `data`: `findings`, the most likely first, and what is known besides."""
    unexplained = None
    if found.unexplained is not None:
        unexplained = {"evidence": found.unexplained, "line": found.unexplained_line}
    return {
        "findings": [asdict(item) for item in found.findings],
        "phase": found.phase,
        "failed": found.failed,
        "attempts": found.attempts,
        "unexplained": unexplained,
    }


def diagnosis_text(found: Diagnosis) -> str:
    if found.clean:
        return _CLEAN
    if not found.findings:
        return _unexplained(found)
    blocks = [_finding(item, first=at == 0) for at, item in enumerate(found.findings)]
    return "\n\n".join([*blocks, f"More: tgi-deploy explain {found.findings[0].code}"]) + "\n"


def _finding(item: Finding, *, first: bool) -> str:
    title = heading(item.code, f"in phase {item.phase}, confidence {item.confidence:.0%}")
    lines = [title if first else f"or {title}"]
    where = f"line {item.line}" if item.line else "evidence"
    lines.append(wrapped(f"{where}: {one_line(item.evidence)}", rest="    "))
    lines.append(wrapped(f"cause: {item.cause}", rest="    "))
    if item.apart:
        lines.append(wrapped(f"apart: {item.apart}", rest="    "))
    lines.append(wrapped(f"remedy: {item.remedy}", rest="    "))
    return "\n".join(lines)


def _unexplained(found: Diagnosis) -> str:
    lines = ["The engine failed, and no line of this log names a cause that is known."]
    if found.unexplained is not None:
        lines.append(wrapped(f"first error, line {found.unexplained_line}: {one_line(found.unexplained)}", rest="    "))
    lines.append(wrapped("A log that begins earlier may hold the cause: consequences come last."))
    return "\n".join(lines) + "\n"
