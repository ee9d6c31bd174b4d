"""Shared by `stop`, `start` and `restart`: the confirmation, the run, and the result as document and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tgi_deploy import wiring
from tgi_deploy.cli.output import Result, tell
from tgi_deploy.cli.progress import Progress, command_line, confirm
from tgi_deploy.cli.stopping import stopped
from tgi_deploy.text import duration, usd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.pausing import Question, Switched, SwitchRequest
    from tgi_deploy.operations.deploying.service import ReadyLevel


def switch(
    act: Callable[[Context, SwitchRequest], Switched],
    name: str,
    *,
    regions: tuple[str, ...],
    sandbox: bool,
    yes: bool,
    ready: ReadyLevel = "full",
) -> Result:
    from tgi_deploy.operations.deploying.pausing import SwitchRequest  # noqa: PLC0415 -- help is printed without what acts

    with Progress() as progress:

        def ask(question: Question) -> bool:
            progress.stop()
            tell(f"{_question_text(question)}\n")
            return confirm("Go on?", yes=yes, what=f"'{question.switch}'", dry_run=False)

        request = SwitchRequest(name=name, confirm=ask, level=ready, reported_as=_reported_as)
        context = wiring.context(
            wiring.Setup(progress=progress, command=command_line(), sandbox=sandbox, regions=regions)
        )
        again = f"tgi-deploy {act.__name__} {name}"
        came = stopped(
            context,
            lambda guarded: act(guarded, request),
            doing=again,
            advice=f"'{again}' resumes it, 'tgi-deploy status {name}' shows what there is",
        )
    return Result(data=_document(came), text="\n".join(_lines(came)))


def _reported_as(release: str) -> tuple[str, ...]:
    return wiring.catalog(None).release(release).reported_as


def _question_text(question: Question) -> str:
    return "\n".join((f"{question.switch} {question.name}: {question.machine.id}", *_consequences(question)))


def _consequences(question: Question) -> Iterator[str]:
    if question.grace_s:
        yield f"  open requests have {duration(question.grace_s)} to finish; new ones are refused until it is ready"
    if question.usd_per_hour is not None:
        what = "for its disk while it is stopped" if question.switch == "stop" else "for everything"
        yield f"  {usd(question.usd_per_hour)} an hour {what}"
    if question.emptied and question.switch == "stop":
        yield "  its weights lie on the machine's own drives, which a stop empties: a start downloads them again"
    if question.switch == "stop" and not any(end.reason == "ttl" for end in question.ends):
        yield "  no limit ends the disk"


def _document(came: Switched) -> dict[str, Any]:
    from tgi_deploy.cli.views.deployment import proof_document, ready_document  # noqa: PLC0415 -- help is printed without them
    from tgi_deploy.operations.results.watching import deployment_data, ends_data  # noqa: PLC0415 -- startup time

    return {
        "name": came.name,
        "instance": came.machine_id,
        "changed": came.changed,
        "declined": came.declined,
        "deployment": deployment_data(came.deployment) if came.deployment else None,
        "usd_per_hour": came.usd_per_hour,
        "endpoint": came.endpoint,
        "ends": ends_data(came.ends),
        "ready": ready_document(came.ready),
        "proof": None if came.proof is None else proof_document(came.proof),
    }


def _lines(came: Switched) -> Iterator[str]:
    from tgi_deploy.cli.views.deployment import proof_lines  # noqa: PLC0415 -- help is printed without it
    from tgi_deploy.cli.views.ends import ends_lines  # noqa: PLC0415 -- startup time

    if came.declined:
        yield "nothing was done"
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
        yield f"  next      'tgi-deploy smoke {came.name}' proves it: only its record says how long a start may take"
