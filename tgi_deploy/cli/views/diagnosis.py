"""Formats diagnoses and the pages of codes as text of at most 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.views.text import heading, table, wrapped
from tgi_deploy.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.api import Explanation, Page
    from tgi_deploy.values.results import DiagnosisData, ExplanationData, Finding, UnexplainedData

_CLEAN = "No failure found in this log.\n"


def diagnosis_text(found: DiagnosisData) -> str:
    if not found.failed:
        return _CLEAN
    if not found.findings:
        return _unexplained(found.unexplained)
    blocks = [_finding(item, first=at == 0) for at, item in enumerate(found.findings)]
    return "\n\n".join([*blocks, f"More: tgi-deploy explain {found.findings[0].code}"]) + "\n"


def _finding(item: Finding, *, first: bool) -> str:
    title = heading(item.code, f"in phase {item.startup_phase}, confidence {item.confidence:.0%}")
    lines = [title if first else f"or {title}"]
    where = f"line {item.line}" if item.line else "evidence"
    lines.append(wrapped(f"{where}: {one_line(item.evidence)}", rest="    "))
    lines.append(wrapped(f"cause: {item.cause}", rest="    "))
    if item.distinguish_by:
        lines.append(wrapped(f"distinguish by: {item.distinguish_by}", rest="    "))
    lines.append(wrapped(f"remedy: {item.remedy}", rest="    "))
    lines.extend(f"    {command}" for command in item.commands)
    return "\n".join(lines)


def _unexplained(error: UnexplainedData | None) -> str:
    lines = ["The engine failed, and no line of this log matches a known cause."]
    if error is not None:
        lines.append(wrapped(f"first error, line {error.line}: {one_line(error.evidence)}", rest="    "))
    lines.append(wrapped("The cause may be in an earlier part of the log: its consequences come last."))
    return "\n".join(lines) + "\n"


def explanation_text(item: Explanation) -> str:
    blocks = []
    if item.page is not None:
        blocks.append(_page(item.page))
    if item.tool is not None:
        lines = [heading(item.code, item.tool.kind), wrapped(item.tool.meaning), wrapped(f"remedy: {item.tool.remedy}")]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def codes_text(items: Sequence[ExplanationData]) -> str:
    rows = [(item.code, item.kind, item.title or (item.meaning or "").rstrip(".")) for item in items]
    return table(("code", "kind", "meaning"), rows) + "\n"


def _page(page: Page) -> str:
    lines = [heading(page.code, f"{page.title}; phase {page.phase}; engine {page.versions}"), wrapped(page.cause)]
    lines.append(wrapped(f"remedy: {page.remedy.text}", rest="    "))
    commands = [f"    {command}" for command in page.general_commands]
    checks = [f"    {command}" for command in page.checks]
    lines += [*commands, "  check:", *checks]
    lines.append(wrapped(f"costs: {page.costs}", rest="    "))
    lines.append(wrapped(f"prevent: {page.prevent}", rest="    "))
    return "\n".join(lines)
