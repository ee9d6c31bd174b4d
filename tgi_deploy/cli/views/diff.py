"""Two plans side by side: as text, as a JUnit report, as annotations of GitHub Actions."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.cli.views.text import heading, table, wrapped
from tgi_deploy.operations.planning.compare_plans import flags_with_values
from tgi_deploy.text import one_line, plural

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from tgi_deploy.operations.planning.compare_plans import Change, Check, Comparison, Metric

_LABELS: Final = {
    "usd_per_hour": "US dollars an hour",
    "usd_per_million_output_tokens": "US dollars a million output tokens",
    "memory_margin_tokens": "KV-cache tokens beyond what is promised",
}


def diff_text(found: Comparison) -> str:
    header = ("FIGURE", "OLD", "NEW", "CHANGE")
    blocks = [table(header, [_row(metric) for metric in found.metrics], right=frozenset({1, 2, 3})).rstrip("\n")]
    if found.changes:
        lines = [line for change in found.changes for line in _change(change)]
        blocks.append("\n".join([heading("What is run", plural(len(found.changes), "difference")), *lines]))
    if found.checks:
        lines = [wrapped(f"{_mark(check)} {check.name}: {check.message}", rest="      ") for check in found.checks]
        blocks.append("\n".join([heading("Limits"), *lines]))
    return "\n\n".join(blocks) + "\n"


def _row(metric: Metric) -> tuple[str, str, str, str]:
    change = "-" if metric.change_percent is None else f"{metric.change_percent:+.1f} %"
    return _LABELS[metric.name], _figure(metric.old), _figure(metric.new), change


def _figure(value: Decimal | None) -> str:
    return "-" if value is None else f"{value:,f}"


def _mark(check: Check) -> str:
    return "ok  " if check.passed else "FAIL"


def _change(change: Change) -> Iterator[str]:
    old, new = _words(change.old), _words(change.new)
    if not isinstance(change.old, list | dict):
        yield wrapped(one_line(f"{change.field}: {old[0]} → {new[0]}"))
        return
    yield f"  {change.field}:"
    yield from (wrapped(one_line(f"- {word}"), first="    ") for word in old if word not in new)
    yield from (wrapped(one_line(f"+ {word}"), first="    ") for word in new if word not in old)


def _words(value: Any) -> list[str]:  # noqa: ANN401 -- a value of JSON
    """Flags with their values; NAME=VALUE of a table; anything else as it is."""
    if isinstance(value, dict):
        return [f"{name}={item}" for name, item in value.items()]
    if not isinstance(value, list):
        return ["nothing" if value is None else str(value)]
    return flags_with_values(value)


def junit_xml(found: Comparison, old: str, new: str) -> str:
    """A suite with a test for each limit."""
    counts = f'tests="{len(found.checks)}" failures="{len(found.failed)}" errors="0" skipped="0"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="tgi-deploy diff {_xml(old)} {_xml(new)}" {counts}>',
        *(line for check in found.checks for line in _test_case(check)),
        "</testsuite>",
    ]
    return "\n".join(lines) + "\n"


def _test_case(check: Check) -> Iterator[str]:
    opening = f'  <testcase classname="cost_gate" name="{_xml(check.name)}"'
    if check.passed:
        yield f"{opening}/>"
        return
    yield f"{opening}>"
    yield f'    <failure type="cost_gate" message="{_xml(check.message)}"/>'
    yield "  </testcase>"


def _xml(text: str) -> str:
    return escape(one_line(text), quote=True)


def github_lines(found: Comparison, new: str) -> str:
    """One `::error` line for each failure; the workflow shows it at the file of the new plan."""
    lines = [
        f"::error file={_property(new)},title={_property(f'cost_gate: {check.name}')}::{_data(check.message)}"
        for check in found.failed
    ]
    return "".join(f"{line}\n" for line in lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
