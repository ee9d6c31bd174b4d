"""What CI systems read: JUnit XML, GitHub's annotations and step summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from tgi_deploy.cli.views.smoke import verdict
from tgi_deploy.text import usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.deploying.smoke import Case, Smoked

_UNCARRIED: Final = (*range(32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
_FORBIDDEN: Final = {code: None for code in _UNCARRIED if chr(code) not in "\t\n\r"}
_ESCAPES: Final = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_TITLE_ESCAPES: Final = ((":", "%3A"), (",", "%2C"))


def junit(results: Sequence[Smoked]) -> str:
    """A suite for each model, a case for each phase and each question to the engine. Times are seconds."""
    root = ET.Element("testsuites", name="tgi-deploy smoke", time=_seconds(sum(item.took_s for item in results)))
    for result in results:
        model = _printable(result.job.model)
        suite = ET.SubElement(root, "testsuite", name=model, time=_seconds(result.took_s))
        for case in result.cases:
            _add_case(suite, model, case)
        suite.set("tests", str(len(result.cases)))
        suite.set("failures", str(len(result.failures)))
        suite.set("skipped", str(sum(case.skipped for case in result.cases)))
        suite.set("errors", "0")
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ET.Element, model: str, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", classname=f"smoke.{model}", name=case.name, time=_seconds(case.took_s))
    if case.problem is not None:
        failure = ET.SubElement(element, "failure", type=case.problem.code, message=_printable(case.problem.message))
        failure.text = _printable("\n".join(filter(None, (case.problem.message, case.text))))
    elif case.skipped:
        ET.SubElement(element, "skipped")


def github_annotations(results: Sequence[Smoked]) -> str:
    """Workflow commands: one error a failed model, one notice for each that passed."""
    return "".join(f"{_annotation(result)}\n" for result in results)


def _annotation(result: Smoked) -> str:
    text, code = f"exit {result.exit_code}", "failed"
    for case, problem in result.failures[:1]:
        text, code = "\n".join(filter(None, (problem.message, case.text))), problem.code
    if not result.failures and result.exit_code == 0:
        price = f" for {usd(result.usd)}" if result.usd is not None else ""
        return f"::notice title={_title(f'smoke {result.job.model}')}::ok in {result.took_s:.0f} s{price}"
    title = _title(f"smoke {result.job.model}: {code}")
    return f"::error title={title}::{_escaped(text, _ESCAPES)}"


def github_summary(results: Sequence[Smoked]) -> str:
    """A Markdown table for the step summary, the failures below it."""
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
            lines += ["", f"Still there: {left['kind']} `{left['id']}` in {left['region']}"]
    return "\n".join(lines) + "\n\n"


def _cell(text: str) -> str:
    return _printable(text).replace("|", "\\|").replace("\n", " ")


def _title(text: str) -> str:
    return _escaped(text, (*_ESCAPES, *_TITLE_ESCAPES))


def _escaped(text: str, escapes: Sequence[tuple[str, str]]) -> str:
    for character, escape in escapes:
        text = text.replace(character, escape)
    return text


def _printable(text: str) -> str:
    """Without the control characters that XML can't carry at all."""
    return text.translate(_FORBIDDEN)


def _seconds(value: float) -> str:
    return f"{value:.3f}"
