"""A diagnosis and the page of a code, as text of at most 100 columns and as plain data."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tgi_deploy.cli.views.text import heading, table, wrapped
from tgi_deploy.diagnosis.patterns import Remedy
from tgi_deploy.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.diagnosis.finding import Finding
    from tgi_deploy.diagnosis.patterns import Page
    from tgi_deploy.diagnosis.reader import ErrorSeen, Reading
    from tgi_deploy.operations.watching.explain import Explanation

_CLEAN = "Nothing wrong in this log.\n"


def diagnosis_document(found: Reading, *, before: int = 0) -> dict[str, Any]:
    """Return the keys of `data`: `findings`, the most likely first, and what else is known.

    `before`: how many lines of the log come before what was read.
    """
    error = found.unexplained
    return {
        "findings": [asdict(_counted(item, before)) for item in found.findings],
        "phase": found.startup_phase if found.evident else None,
        "failed": found.failed,
        "attempts": found.starts,
        "unexplained": None if error is None else {"evidence": error.text, "line": error.number + before},
    }


def diagnosis_text(found: Reading, *, before: int = 0) -> str:
    if not found.failed:
        return _CLEAN
    if not found.findings:
        return _unexplained(found.unexplained, before)
    blocks = [_finding(_counted(item, before), first=at == 0) for at, item in enumerate(found.findings)]
    return "\n\n".join([*blocks, f"More: tgi-deploy explain {found.findings[0].code}"]) + "\n"


def _counted(item: Finding, before: int) -> Finding:
    return replace(item, line=item.line + before) if item.line else item


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


def _unexplained(error: ErrorSeen | None, before: int) -> str:
    lines = ["The engine failed, and no line of this log names a cause that is known."]
    if error is not None:
        lines.append(wrapped(f"first error, line {error.number + before}: {one_line(error.text)}", rest="    "))
    lines.append(wrapped("A log that begins earlier may hold the cause: consequences come last."))
    return "\n".join(lines) + "\n"


def explanation_document(item: Explanation) -> dict[str, Any]:
    """The keys of one code: those of a page, `meaning` and `kind` of an error or a rejection."""
    found: dict[str, Any] = {"code": item.code, "kind": _kind(item)}
    if item.tool is not None:
        found |= {"meaning": item.tool.meaning, "remedy": item.tool.remedy}
    if item.page is not None:
        page = asdict(item.page)
        remedy = page.pop("remedy")
        found |= page | {"remedy": remedy["text"], "commands": list(item.page.remedy.commands)}
        found["plan_edit"] = item.plan_edit
    return found


def explanation_text(item: Explanation) -> str:
    blocks = []
    if item.page is not None:
        blocks.append(_page(item.page))
    if item.tool is not None:
        lines = [heading(item.code, item.tool.kind), wrapped(item.tool.meaning), wrapped(f"remedy: {item.tool.remedy}")]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def codes_text(items: Sequence[Explanation]) -> str:
    rows = [(item.code, _kind(item), item.page.title if item.page else _tool_meaning(item)) for item in items]
    return table(("code", "kind", "meaning"), rows) + "\n"


def _tool_meaning(item: Explanation) -> str:
    return item.tool.meaning.rstrip(".") if item.tool is not None else ""


def _kind(item: Explanation) -> str:
    return "diagnosis" if item.page is not None else item.tool.kind if item.tool is not None else ""


def _page(page: Page) -> str:
    lines = [heading(page.code, f"{page.title}; phase {page.phase}; engine {page.versions}"), wrapped(page.cause)]
    lines.append(wrapped(f"remedy: {page.remedy.text}", rest="    "))
    commands = [f"    {_plain(command)}" for command in page.remedy.general]
    checks = [f"    {_plain(command)}" for command in page.check]
    lines += [*commands, "  check:", *checks]
    lines.append(wrapped(f"costs: {page.costs}", rest="    "))
    lines.append(wrapped(f"prevent: {page.prevent}", rest="    "))
    return "\n".join(lines)


def _plain(command: str) -> str:
    return Remedy(text=command).filled({})[0]
