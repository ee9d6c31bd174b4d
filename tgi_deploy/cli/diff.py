"""`diff`: the cost gate between two plans."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.api import Client
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.output import Result, printed
from tgi_deploy.cli.views import ci
from tgi_deploy.cli.views.text import heading, table, wrapped
from tgi_deploy.errors import InputError
from tgi_deploy.files import write_file
from tgi_deploy.text import one_line, plural, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.values.plan_results import ChangeData, CheckData, Comparison, MetricData

_EXACT: Final = Decimal("0.0001")
_GATE: Final = "cost_gate"
_FILE: Final = click.Path(path_type=Path)
_LABELS: Final = {
    "usd_per_hour": "US dollars an hour",
    "usd_per_million_output_tokens": "US dollars a million output tokens",
    "memory_margin_tokens": "spare KV-cache tokens",
}


@command(
    "diff",
    examples=(
        "tgi-deploy diff main.lock.json branch.lock.json",
        "tgi-deploy diff main.lock.json branch.lock.json --max-cost-increase 10% --github",
        "tgi-deploy diff old.json new.json --max-token-cost-increase 5% --junit cost.xml",
        "tgi-deploy diff old.json new.json --min-memory-margin-tokens 4096 --json",
    ),
)
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@click.option("--max-cost-increase", metavar="PERCENT", help="Maximum increase of the hourly price.")
@click.option(
    "--max-token-cost-increase", metavar="PERCENT", help="Maximum increase of the price per million output tokens."
)
@click.option(
    "--min-memory-margin-tokens",
    type=click.IntRange(min=0),
    metavar="N",
    help="Minimum KV-cache tokens to spare beyond the planned load.",
)
@click.option("--junit", type=_FILE, metavar="FILE", help="Write a JUnit report with a test for each limit.")
@click.option("--github", is_flag=True, help="Print failures as GitHub Actions annotations.")
def diff_command(
    *, old: Path, new: Path, min_memory_margin_tokens: int | None, junit: Path | None, github: bool, **percents: str
) -> Result:
    """Compare two plans, and fail (exit 3) if NEW is worse than the limits allow.

    OLD and NEW are locks ('plan --lock FILE') or output of 'plan --json'. Without a limit, nothing fails.
    Differences between the requests come first, because they make the figures incomparable.
    """
    if github and click.get_current_context().find_root().obj.as_json:
        raise InputError(
            "conflicting_options", "--github and --json exclude each other: both are written to stdout",
            hint="use --junit with --json instead",
        )  # fmt: skip
    found = Client().diff(old, new, min_memory_margin_tokens=min_memory_margin_tokens, **percents)
    if junit is not None:
        write_file(junit, junit_xml(found.outcome, str(old), str(new)), what="the JUnit report", option="--junit")
    return printed(found, diff_text(found.outcome) + (github_lines(found.outcome, str(new)) if github else ""))


def diff_text(found: Comparison) -> str:
    header = ("FIGURE", "OLD", "NEW", "CHANGE")
    blocks = []
    if found.promises:
        lines = [line for change in found.promises for line in _change(change)]
        blocks.append("\n".join([heading("Request", plural(len(found.promises), "difference")), *lines]))
    rows = [_row(metric) for metric in found.metrics]
    blocks += [table(header, rows, right=frozenset({1, 2, 3})) + _prices(found)]
    if found.changes:
        lines = [line for change in found.changes for line in _change(change)]
        blocks.append("\n".join([heading("What is run", plural(len(found.changes), "difference")), *lines]))
    if found.checks:
        lines = [wrapped(f"{_mark(check)} {check.name}: {check.message}", rest="      ") for check in found.checks]
        blocks.append("\n".join([heading("Limits"), *lines]))
    return "\n\n".join(blocks) + "\n"


def _prices(found: Comparison) -> str:
    """Return the dates of the prices: a newer list alone can change the figures."""
    if found.old_prices == found.new_prices:
        return f"prices {found.new_prices}" if found.new_prices else "no prices"
    return f"prices {found.old_prices or 'unknown'} (old) and {found.new_prices or 'unknown'} (new)"


def _row(metric: MetricData) -> tuple[str, str, str, str]:
    change = "-" if metric.change_percent is None else f"{metric.change_percent:+.1f}%"
    whole = not any(value % 1 for value in (metric.old, metric.new) if value is not None)
    return _LABELS[metric.name], _figure(metric.old, whole=whole), _figure(metric.new, whole=whole), change


def _figure(value: Decimal | None, *, whole: bool) -> str:
    return "-" if value is None else f"{value if whole else value.quantize(_EXACT):,f}"


def _mark(check: CheckData) -> str:
    return "ok  " if check.passed else "FAIL"


def _change(change: ChangeData) -> Iterator[str]:
    old, new = words_of(change.old), words_of(change.new)
    if not isinstance(change.old, list | tuple | dict):
        yield wrapped(one_line(f"{change.field}: {old[0]} → {new[0]}"))
        return
    yield f"  {change.field}:"
    yield from (wrapped(one_line(f"- {word}"), first="    ") for word in old if word not in new)
    yield from (wrapped(one_line(f"+ {word}"), first="    ") for word in new if word not in old)


def junit_xml(found: Comparison, old: str, new: str) -> str:
    """Return a suite with a test for each limit."""
    cases = [
        ci.TestCase(name=check.name, code="" if check.passed else _GATE, message="" if check.passed else check.message)
        for check in found.checks
    ]
    return ci.junit(ci.suite(f"tgi-deploy diff {one_line(old)} {one_line(new)}", _GATE, cases))


def github_lines(found: Comparison, new: str) -> str:
    """Return an error annotation for each failure, at the file of the new plan."""
    return "".join(
        ci.annotation("error", check.message, file=new, title=f"{_GATE}: {check.name}") for check in found.failed
    )
