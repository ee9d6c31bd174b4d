"""`diff`: the cost gate between two plans."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.cli.files import read_file, write_file
from tgi_deploy.cli.frame import command
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.views.diff import diff_text, github_lines, junit_xml
from tgi_deploy.errors import InputError, NoFeasiblePlanError, Problem
from tgi_deploy.operations.planning.compare_plans import Limits, compare, percent
from tgi_deploy.operations.planning.lock import read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.operations.planning.compare_plans import Comparison
    from tgi_deploy.values.plan_document import PlanDocument

EXIT_GATE: Final = NoFeasiblePlanError.exit_code  # no plan within the limits
_FILE: Final = click.Path(path_type=Path)


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
@click.option("--max-cost-increase", metavar="PERCENT", help="How much the price an hour may rise.")
@click.option("--max-token-cost-increase", metavar="PERCENT", help="How much a million output tokens may rise.")
@click.option(
    "--min-memory-margin-tokens",
    type=click.IntRange(min=0),
    metavar="N",
    help="KV-cache tokens that must be left beyond what is promised.",
)
@click.option("--max-memory-margin-decrease", metavar="PERCENT", help="How much of that margin may be lost.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write a JUnit report, a test for each limit.")
@click.option("--github", is_flag=True, help="Print failures as annotations of GitHub Actions.")
def diff_command(
    *, old: Path, new: Path, min_memory_margin_tokens: int | None, junit: Path | None, github: bool, **percents: str
) -> Result:
    """Compare two plans, and fail (exit 3) where the NEW one is worse than the limits allow.

    OLD and NEW are locks ('plan --lock FILE') or what 'plan --json' printed. Without a limit nothing fails.
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
            code="cost_gate", message=f"{check.name}: {check.message}",
            hint="change the plan, or raise the limit if the increase is meant",
        )
        for check in found.failed
    )  # fmt: skip
    return Result(
        data={"diff": asdict(found)}, text=text, exit_code=EXIT_GATE if errors else 0, errors=errors
    )  # fmt: skip
