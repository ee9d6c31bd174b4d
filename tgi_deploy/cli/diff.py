"""`diff`: the cost gate between two plans."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tgi_deploy.cli.frame import command
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.views import ci
from tgi_deploy.cli.views.text import heading, table, wrapped
from tgi_deploy.errors import InputError, NoFeasiblePlanError, Problem, warning
from tgi_deploy.files import read_file, write_file
from tgi_deploy.operations.planning.compare_plans import Limits, compare, flags_with_values, percent
from tgi_deploy.operations.planning.lock import read_plan
from tgi_deploy.text import one_line, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.operations.planning.compare_plans import Change, Check, Comparison, Metric
    from tgi_deploy.values.plan_document import PlanDocument

_EXACT: Final = Decimal("0.0001")
_GATE: Final = "cost_gate"
EXIT_GATE: Final = NoFeasiblePlanError.exit_code  # no plan within the limits
_FILE: Final = click.Path(path_type=Path)
_LABELS: Final = {
    "usd_per_hour": "US dollars an hour",
    "usd_per_million_output_tokens": "US dollars a million output tokens",
    "memory_margin_tokens": "KV-cache tokens beyond the promised ones",
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
    help="Minimum KV-cache tokens left beyond what the plan promises.",
)
@click.option("--max-memory-margin-decrease", metavar="PERCENT", help="Maximum decrease of that margin.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write a JUnit report with a test for each limit.")
@click.option("--github", is_flag=True, help="Print failures as GitHub Actions annotations.")
def diff_command(
    *, old: Path, new: Path, min_memory_margin_tokens: int | None, junit: Path | None, github: bool, **percents: str
) -> Result:
    """Compare two plans, and fail (exit 3) if NEW is worse than the limits allow.

    OLD and NEW are locks ('plan --lock FILE') or output of 'plan --json'. Without a limit, nothing fails.
    Differing options come first: the figures of different requests don't compare.
    """
    if github and click.get_current_context().find_root().obj.as_json:
        raise InputError(
            "conflicting_options", "--github and --json exclude each other: both are written to stdout",
            hint="use --junit beside --json",
        )  # fmt: skip
    limits = _limits(percents, min_memory_margin_tokens)
    found = compare(_plan(old), _plan(new), limits)
    if junit is not None:
        write_file(junit, junit_xml(found, str(old), str(new)), what="the JUnit report", option="--junit")
    text = diff_text(found) + (github_lines(found, str(new)) if github else "")
    return _result(found, text)


def _plan(path: Path) -> PlanDocument:
    return read_plan(read_file(path, what="the plan"), str(path))


def _limits(percents: Mapping[str, str | None], margin_tokens: int | None) -> Limits:
    read = {
        f"{name}_percent": None if text is None else percent(text, f"--{name.replace('_', '-')}")
        for name, text in percents.items()
    }
    return Limits(min_memory_margin_tokens=margin_tokens, **read)


def _result(found: Comparison, text: str) -> Result:
    errors = tuple(
        Problem(
            code=_GATE, message=f"{check.name}: {check.message}",
            hint="change the plan, or raise the limit if the increase is intended",
        )
        for check in found.failed
    )  # fmt: skip
    return Result(
        data={"diff": asdict(found)},
        text=text,
        exit_code=EXIT_GATE if errors else 0,
        warnings=tuple(_promises_changed(found)),
        errors=errors,
    )


def _promises_changed(found: Comparison) -> Iterator[Problem]:
    """Yield a warning if the plans compared were made for different requests."""
    if found.promises and found.checks:
        named = "; ".join(f"{item.field}: {_joined(item.old)} → {_joined(item.new)}" for item in found.promises)
        yield warning(
            "request_changed", f"the plans are for different requests, so the limits compare different things: {named}"
        )


def diff_text(found: Comparison) -> str:
    header = ("FIGURE", "OLD", "NEW", "CHANGE")
    blocks = []
    if found.promises:
        lines = [line for change in found.promises for line in _change(change)]
        blocks.append("\n".join([heading("Request", plural(len(found.promises), "difference")), *lines]))
    blocks += [table(header, [_row(metric) for metric in found.metrics], right=frozenset({1, 2, 3})).rstrip("\n")]
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
    return "-" if value is None else f"{value.quantize(_EXACT) if value % 1 else value:,f}"


def _mark(check: Check) -> str:
    return "ok  " if check.passed else "FAIL"


def _change(change: Change) -> Iterator[str]:
    old, new = _words(change.old), _words(change.new)
    if not isinstance(change.old, list | tuple | dict):
        yield wrapped(one_line(f"{change.field}: {old[0]} → {new[0]}"))
        return
    yield f"  {change.field}:"
    yield from (wrapped(one_line(f"- {word}"), first="    ") for word in old if word not in new)
    yield from (wrapped(one_line(f"+ {word}"), first="    ") for word in new if word not in old)


def _joined(value: Any) -> str:  # noqa: ANN401 -- a value of JSON
    return " ".join(_words(value)) or "nothing"


def _words(value: Any) -> list[str]:  # noqa: ANN401 -- a value of JSON
    """Return flags with their values, a table as NAME=VALUE, anything else unchanged."""
    if isinstance(value, dict):
        return [f"{name}={item}" for name, item in value.items()]
    if not isinstance(value, list | tuple):
        return ["nothing" if value is None else str(value)]
    return flags_with_values(value)


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
