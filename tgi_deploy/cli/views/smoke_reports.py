"""Formats smoke results for CI systems: JUnit XML, GitHub annotations and step summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.cli.views import ci
from tgi_deploy.cli.views.smoke import verdict
from tgi_deploy.cli.views.text import accelerated
from tgi_deploy.text import usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.api import Case, Smoked


def junit(results: Sequence[Smoked]) -> str:
    """Return a suite for each model, with a case for each phase and each probe of the engine."""
    every = [
        ci.suite(
            item.job.model,
            f"smoke.{item.job.model}",
            list(map(_case, item.cases)),
            took_s=item.took_s,
            began=item.began,
            properties=_properties(item),
        )
        for item in results
    ]
    return ci.junit(ci.suites("tgi-deploy smoke", every, took_s=sum(item.took_s for item in results)))


def _properties(item: Smoked) -> dict[str, str]:
    return {
        "deployment": item.job.name,
        "machine": str(item.chosen.get("instance_type") or ""),
        "region": str(item.chosen.get("region") or ""),
        "market": str(item.chosen.get("market") or ""),
        "usd": "" if item.usd is None else str(item.usd),
        "clock": accelerated().strip(" ()"),
    }


def _case(case: Case) -> ci.TestCase:
    if case.problem is None:
        return ci.TestCase(name=case.name, skipped=case.skipped, took_s=case.took_s)
    code, message = case.problem.code, case.problem.message
    return ci.TestCase(name=case.name, code=code, message=message, text=_text(case, message), took_s=case.took_s)


def _text(case: Case, message: str) -> str:
    return "\n".join(filter(None, (message, case.text)))


def github_annotations(results: Sequence[Smoked]) -> str:
    """Return an error for each failed model, a notice for each that passed."""
    return "".join(map(_annotation, results))


def _annotation(result: Smoked) -> str:
    text, code = f"exit {result.exit_code}", "failed"
    for case, problem in result.failures[:1]:
        text, code = _text(case, problem.message), problem.code
    if not result.failures and result.exit_code == 0:
        price = f" for {usd(result.usd)}" if result.usd is not None else ""
        return ci.annotation("notice", f"ok in {result.took_s:.0f} s{price}", title=f"smoke {result.job.model}")
    return ci.annotation("error", text, title=f"smoke {result.job.model}: {code}")


def github_summary(results: Sequence[Smoked]) -> str:
    """Return a Markdown table for the step summary, with the failures below it."""
    lines = ["### Smoke deployments", "", "| model | result | machine | took | cost |", "|---|---|---|---:|---:|"]
    for item in results:
        machine = item.chosen.get("instance_type") or "-"
        mark = "✅" if item.exit_code == 0 else "❌"
        cells = (item.job.model, f"{mark} {verdict(item)}", str(machine), f"{item.took_s:.0f} s", usd(item.usd))
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    for item in results:
        for case, problem in item.failures:
            lines += ["", f"**{_cell(item.job.model)}**: {_cell(problem.message)}", "", "```", case.text, "```"]
        for left in item.left:
            lines += ["", f"Not removed: {left.kind} `{left.id}` in {left.region}"]
    return "\n".join(lines) + "\n\n"


def _cell(text: str) -> str:
    return ci.printable(text).replace("|", "\\|").replace("\n", " ")
