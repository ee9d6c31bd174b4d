"""Shared by `stop`, `start` and `restart`: the proposal, the run, and the outcome as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy.cli.output import Result, printed, write_stderr
from tgi_deploy.cli.progress import confirm
from tgi_deploy.cli.stopping import stoppable
from tgi_deploy.text import duration, usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.api import SwitchOutcome, SwitchProposal
    from tgi_deploy.cli.progress import Progress
    from tgi_deploy.values.base import Result as ApiResult
    from tgi_deploy.values.change_results import SwitchData


def switch(
    act: Callable[..., ApiResult[SwitchData, SwitchOutcome]],
    progress: Progress,
    name: str,
    *,
    yes: bool,
    **more: Any,  # noqa: ANN401 -- further arguments of one of them
) -> Result:
    def ask(proposal: SwitchProposal) -> bool:
        progress.stop()
        write_stderr(f"{_proposal_text(proposal)}\n")
        return confirm(
            f"{proposal.switch.capitalize()} {proposal.name}?", yes=yes, what=f"'{proposal.switch}'", dry_run=False
        )

    with stoppable() as stops:
        found = act(name, confirm=ask, stops=stops, **more)
    return printed(found, "\n".join(_lines(found.outcome)))


def _proposal_text(proposal: SwitchProposal) -> str:
    return "\n".join((f"{proposal.switch} {proposal.name}: {proposal.machine.id}", *_consequences(proposal)))


def _consequences(proposal: SwitchProposal) -> Iterator[str]:
    if proposal.grace_s:
        yield f"  in-flight requests have {duration(proposal.grace_s)} to finish; new ones are refused until then"
    if proposal.usd_per_hour is not None:
        what = "for its disk while it is stopped" if proposal.switch == "stop" else "for everything"
        yield f"  {usd(proposal.usd_per_hour)} an hour {what}"
    if proposal.emptied and proposal.switch == "stop":
        yield "  its weights are on instance storage, which a stop erases: a start downloads them again"
    if proposal.switch == "stop" and not any(end.reason == "ttl" for end in proposal.ends):
        yield "  no limit stops the billing of the disk"


def _lines(came: SwitchOutcome) -> Iterator[str]:
    from tgi_deploy.cli.views.deployment import proof_lines  # noqa: PLC0415 -- not needed for --help
    from tgi_deploy.cli.views.ends import ends_lines  # noqa: PLC0415 -- startup time

    if came.declined:
        yield "declined: nothing was changed"
        return
    is_stop = came.switch == "stop"
    where = "stopped" if is_stop else f"{came.deployment.status} at {came.endpoint}" if came.deployment else "running"
    yield f"{came.name} is {where}{'' if came.changed else ': nothing to do'}"
    if came.proof is not None:
        yield from proof_lines(came.proof)
    if came.usd_per_hour is not None:
        what = " for its disk" if is_stop else ""
        yield f"  {usd(came.usd_per_hour)} an hour{what} until 'tgi-deploy down {came.name}'"
    yield from (f"  ends      {line}" for line in ends_lines([end for end in came.ends if end.reason != "idle"]))
    if is_stop:
        yield f"  next      'tgi-deploy start {came.name}' starts it again"
    elif came.deployment is None:
        yield f"  next      'tgi-deploy smoke {came.name}' verifies it: without a record, its start was not awaited"
