"""Whether a spot machine is being taken back, asked in the order of cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError
from tgi_deploy.readiness.spot import notice_of
from tgi_deploy.values.resource import RECLAIMED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tgi_deploy.values.resource import Found, MachineState


def spot_notice(
    machine: Found | None,
    state: MachineState | None,
    seen: Iterable[Found],
    console: Callable[[], str],
    *,
    healthy: bool,
) -> str | None:
    """The notice in a sentence, None where there is none.

    What was read anyway comes first: the machine's end and its spot request. The console is read only where a spot
    machine does not answer.
    """
    if machine is None or machine.attributes.get("market") != "spot":
        return None
    if state is not None and state.reclaimed:
        return f"the cloud took the spot machine back: {state.reason or state.reason_code}"
    for item in seen:
        if RECLAIMED in item.attributes:
            return f"the cloud takes the spot machine back: {item.id} is {item.attributes[RECLAIMED]}"
    if healthy or not machine.alive:
        return None
    try:
        notice = notice_of(console())
    except DeployError:
        return None
    return None if notice is None else str(notice)
