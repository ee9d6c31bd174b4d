"""A rehearsal as a document and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.cli.views.text import heading, wrapped
from tgi_deploy.text import plural, usd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.operations.deploying.rehearse import Ending, Moment, Rehearsal
    from tgi_deploy.values.plan import Plan

_MINUTE_S: Final = 60
_WIDTH: Final = 8


def rehearsal_document(rehearsal: Rehearsal, plan: Plan) -> dict[str, Any]:
    offer = plan.chosen.offer
    return {
        "name": rehearsal.name,
        "model": plan.chosen.engine.settings.model_id,
        "machine": {"instance_type": offer.instance_type.name, "region": offer.region, "market": offer.market},
        "seed": rehearsal.seed,
        "faults": [{"name": item.name, "description": item.description} for item in rehearsal.troubles],
        "timeline": [{"at_s": item.at_s, "code": item.code, "text": item.text} for item in rehearsal.timeline],
        "calls": dict(rehearsal.calls),
        "machine_seconds": rehearsal.machine_seconds,
        "usd": rehearsal.usd,
        "endings": [_ending_document(item) for item in rehearsal.endings],
        "left": list(rehearsal.left),
        "safe": rehearsal.safe,
    }


def _ending_document(ending: Ending) -> dict[str, Any]:
    return {
        "command": ending.command,
        "exit_code": ending.exit_code,
        "code": ending.code or None,
        "message": ending.message or None,
        "hint": ending.hint or None,
    }


def rehearsal_text(rehearsal: Rehearsal, plan: Plan) -> str:
    return "\n".join([*_head(rehearsal, plan), *_timeline(rehearsal), *_seen(rehearsal), *_foot(rehearsal)]) + "\n"


def _head(rehearsal: Rehearsal, plan: Plan) -> Iterator[str]:
    offer = plan.chosen.offer
    faults = ", ".join(item.name for item in rehearsal.troubles) or "nothing goes wrong"
    machine = f"{offer.instance_type.name} in {offer.region}, {offer.market}"
    yield f"{heading(f'Rehearsal of {rehearsal.name}')}  {machine}; faults: {faults}; seed {rehearsal.seed}"
    yield ""


def _timeline(rehearsal: Rehearsal) -> Iterator[str]:
    yield heading("Timeline", "minutes and seconds as planned, not measured")
    for moment in rehearsal.timeline:
        yield wrapped(f"{_clock(moment)}  {moment.text}", first="  ", rest=" " * (_WIDTH + 4))
    yield ""


def _clock(moment: Moment) -> str:
    minutes, seconds = divmod(round(moment.at_s), _MINUTE_S)
    return f"{minutes}:{seconds:02d}".rjust(_WIDTH)


def _seen(rehearsal: Rehearsal) -> Iterator[str]:
    yield heading("What you would have seen")
    for ending in rehearsal.endings:
        if not ending.code:
            yield f"  {ending.command}: exit 0"
            continue
        yield f"  {ending.command}: exit {ending.exit_code}, error[{ending.code}]"
        yield wrapped(ending.message, first="    ", rest="    ")
        yield wrapped(f"hint: {ending.hint}", first="    ", rest="    ")
    yield ""


def _foot(rehearsal: Rehearsal) -> Iterator[str]:
    calls = sorted(rehearsal.calls.items(), key=lambda item: (-item[1], item[0]))
    total = sum(rehearsal.calls.values())
    yield wrapped(f"Calls  {total}: {', '.join(f'{action} {count}' for action, count in calls)}", first="", rest="  ")
    minutes = plural(round(rehearsal.machine_seconds / _MINUTE_S), "minute")
    yield f"Money  {usd(rehearsal.usd)} for {minutes} of machines, had it been a cloud"
    left = plural(len(rehearsal.left), "thing") if rehearsal.left else "nothing"
    yield f"Left   {left}"
    yield from (f"  {item['kind']} {item['id']}" for item in rehearsal.left)
