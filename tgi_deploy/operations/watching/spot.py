"""Whether a spot machine is being taken back, asked in the order of cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.readiness.spot import is_reclaimed, notice_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tgi_deploy.reconcile.model import Found, MachineState

# Status codes of a spot request whose machine goes (EC2 User Guide, "Spot Instance request status").
_ENDING: Final = frozenset({"marked-for-termination", "marked-for-stop", "instance-terminated-by-price"})


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
    if state is not None and is_reclaimed(state):
        return f"the cloud took the spot machine back: {state.reason or state.reason_code}"
    for item in seen:
        if item.attributes.get("status") in _ENDING:
            return f"the cloud takes the spot machine back: {item.id} is {item.attributes['status']}"
    if healthy or not machine.alive:
        return None
    try:
        notice = notice_of(console())
    except DeployError:
        return None
    return None if notice is None else str(notice)
