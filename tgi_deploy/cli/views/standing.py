"""How a deployment stands: what runs, whether it serves, what it costs, what to do next. As lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy import wiring
from tgi_deploy.operations.watching.known import machine_of, price_of
from tgi_deploy.text import plural, usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.operations.watching.status import Status

_FEW: Final = 4


def none_text(places: Sequence[str], *, asked: bool = True) -> str:
    """No deployments, and where that was looked up. `asked`: in the cloud, too."""
    if not asked:
        return "no deployments on record"
    if len(places) > _FEW:
        return f"no deployments in {plural(len(places), 'region')}"
    chosen = any(wiring.target_of(place).facts.regions for place in places)
    elsewhere = "; --region looks elsewhere" if chosen else ""
    return f"no deployments in {', '.join(places)}{elsewhere}"


def standing(status: Status) -> str:
    """What stands beside its name. What was ready once is not called ready when it is not."""
    if status.recorded is None:
        return "known from tags alone"
    phase = status.recorded.phase
    if status.gone:
        return f"no machine runs; on record it is {phase}"
    return f"does not answer; on record it is {phase}" if status.silent else phase


def runs_lines(status: Status) -> Iterator[str]:
    """The model and the machine, as planned; without a record the machine's type alone."""
    plan = status.recorded.plan if status.recorded else None
    machine = machine_of(status.recorded, status.seen)
    kind = (machine.attributes.get("instance_type") if machine else None) or (
        plan.chosen.instance_type if plan else None
    )
    market = plan.chosen.market if plan and plan.chosen.market != "owned" else None
    where = ", ".join(filter(None, (kind, market)))
    words = " on ".join(filter(None, (plan.model.id if plan else None, where)))
    if words and not status.gone:
        yield f"  runs      {words}"


def cost_words(status: Status) -> str:
    """What is billed by the hour at this moment."""
    if status.gone:
        return "nothing now: no machine runs"
    price = price_of(status.recorded, status.seen)
    return "-" if price is None else f"{usd(price)} an hour"


def next_lines(status: Status) -> Iterator[str]:
    """What to do about a deployment that does not serve."""
    name = status.name
    if status.gone:
        yield f"'tgi-deploy diagnose {name}' says why it ended, 'tgi-deploy down {name}' removes the rest"
    elif status.silent:
        yield f"'tgi-deploy diagnose {name}' looks for the cause, 'tgi-deploy down {name}' ends it"
