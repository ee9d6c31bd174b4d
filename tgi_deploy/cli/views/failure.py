"""Formats the failure of an `up`: the phase, the evidence, what to do, and what still costs money."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.output import error_lines
from tgi_deploy.cli.views.text import wrapped
from tgi_deploy.errors import ALL_WAS_REMOVED, CREATED_WAS_REMOVED
from tgi_deploy.text import duration, one_line, usd, usd_spent
from tgi_deploy.values.base import replaced
from tgi_deploy.values.results import sentence_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.errors import Diagnosis, Failure, Problem

_FROM_BEFORE: Final = "the machine is older than this run and is kept: 'tgi-deploy logs {name}' shows its log"
_PARTLY: Final = f"{CREATED_WAS_REMOVED}: 'tgi-deploy down {{name}}' removes it"
_INDENT: Final = " " * 12
_HINTS: Final = {
    "kept": "the machine is still running: 'tgi-deploy logs {name}' shows its log",
    "not_removed": "its removal failed, so it may still be running: 'tgi-deploy down {name}' removes it",
    "removed": ALL_WAS_REMOVED,
}


def failure_text(problem: Problem, failure: Failure) -> str:
    """Return a failure as text; empty if its cause or the state of its machine is unknown."""
    if failure.diagnosis is None or failure.outcome is None:
        return ""
    message = problem.message.replace(f" Evidence: {failure.diagnosis.evidence}", "")
    hint = _hint(failure, failure.outcome).format(name=failure.deployment)
    first, last = error_lines(replaced(problem, message=message, hint=hint))
    return "\n".join((first, *_lines(failure, failure.diagnosis), last))


def _hint(failure: Failure, outcome: str) -> str:
    before = {item.id for item in failure.before or ()}
    if outcome == "kept" and failure.still_running and failure.still_running.machine in before:
        return _FROM_BEFORE
    return _PARTLY if outcome == "removed" and before else _HINTS[outcome]


def _lines(failure: Failure, diagnosis: Diagnosis) -> Iterator[str]:
    yield _line("phase", str(failure.phase).replace("_", " "))
    where = f"line {diagnosis.line}: " if diagnosis.line else ""
    yield _line("evidence", where + one_line(str(diagnosis.evidence)))
    remedy = sentence_of(diagnosis.remedy or "")
    if remedy:
        yield _line("do this", one_line(remedy))
    if diagnosis.command:
        yield f"{_INDENT if remedy else _label('do this')}{diagnosis.command}"
    if diagnosis.finding:
        yield _line("more", f"tgi-deploy explain {diagnosis.finding}")
    yield _line("costs", _costs(failure))


def _line(label: str, text: str) -> str:
    return wrapped(text, first=_label(label), rest=_INDENT)


def _label(label: str) -> str:
    return f"  {label:<{len(_INDENT) - 2}}"


def _costs(failure: Failure) -> str:
    still = failure.still_running
    if still is None:
        return f"nothing anymore{_spent(failure)}"
    price = f"{usd(still.usd_per_hour)} an hour" if still.usd_per_hour is not None else "no rent"
    until = f" until {still.ends_at.isoformat()}" if still.ends_at else ""
    return f"{price}{until}: {still.machine} in {still.region} is still running; '{still.ends_with}' removes it"


def _spent(failure: Failure) -> str:
    """Return the total cost, if the receipt has it."""
    bill = failure.receipt
    if bill is None or bill.seconds is None:
        return ""
    ran = f"; it ran {duration(bill.seconds)}"
    if bill.usd is None:
        return ran
    return f"{ran} and cost {usd_spent(bill.usd, estimated=True)}"
