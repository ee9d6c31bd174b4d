"""A failed `up` as text: the phase, the line that shows the cause, what to do, and what costs money from now on."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.cli.output import Told, one_line
from tgi_deploy.cli.views.text import duration, usd, wrapped
from tgi_deploy.diagnosis.finding import sentence_of
from tgi_deploy.operations.deploying.failed import GONE, MADE_GONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FROM_BEFORE: Final = "the machine was there before this run and is kept: 'tgi-deploy logs {name}' shows its log"
_PARTLY: Final = f"{MADE_GONE}: 'tgi-deploy down {{name}}' ends it"
_INDENT: Final = " " * 12
_CENT: Final = Decimal("0.01")
_HINTS: Final = {
    "kept": "the machine still runs: 'tgi-deploy logs {name}' shows its log",
    "left": "its removal failed, so it may still run: 'tgi-deploy down {name}' removes it",
    "removed": GONE,
}


def told(message: str, data: Mapping[str, Any]) -> Told:
    """`data` is that of a failure that says what became of the machine (`fate`)."""
    return Told(
        message=message.replace(f" Evidence: {data['evidence']}", ""),
        lines="\n".join(_lines(data)),
        hint=_hint(data).format(name=data["deployment"]),
    )


def _hint(data: Mapping[str, Any]) -> str:
    kept = data["fate"] == "kept" and data["still_costs"]["machine"] in {item["id"] for item in data.get("before", ())}
    if kept:
        return _FROM_BEFORE
    return _PARTLY if data["fate"] == "removed" and data.get("before") else _HINTS[data["fate"]]


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    yield _line("phase", str(data["phase"]).replace("_", " "))
    where = f"line {data['line']}: " if data["line"] else ""
    yield _line("evidence", where + one_line(str(data["evidence"])))
    remedy = sentence_of(str(data["remedy"] or ""))
    if remedy:
        yield _line("do this", one_line(remedy))
    if data["command"]:
        yield f"{_INDENT if remedy else _label('do this')}{data['command']}"
    if data["finding"]:
        yield _line("more", f"tgi-deploy explain {data['finding']}")
    yield _line("costs", _costs(data))


def _line(label: str, text: str) -> str:
    return wrapped(text, first=_label(label), rest=_INDENT)


def _label(label: str) -> str:
    return f"  {label:<{len(_INDENT) - 2}}"


def _costs(data: Mapping[str, Any]) -> str:
    still = data["still_costs"]
    if still is None:
        return f"nothing any more{_spent(data['receipt'])}"
    price = f"{usd(still['usd_per_hour'])} an hour" if still["usd_per_hour"] is not None else "no rent"
    until = f" until {still['ends_at']}" if still["ends_at"] else ""
    return f"{price}{until}: {still['machine']} in {still['region']} still runs; '{still['ends_with']}' ends it"


def _spent(receipt: Mapping[str, Any] | None) -> str:
    """What it came to, as far as the receipt knows."""
    if receipt is None:
        return ""
    cost = receipt["cost"]
    if cost["seconds"] is None:
        return ""
    ran = f"; it ran {duration(cost['seconds'])}"
    if cost["usd"] is None:
        return ran
    amount = Decimal(cost["usd"]).quantize(_CENT)
    return f"{ran} and cost {f'about ${amount:,}' if amount else 'less than a cent'}"
