"""Reads the progress of an engine's start from its machine's log."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tgi_deploy.diagnosis.progress import detail_of, fraction_of
from tgi_deploy.diagnosis.reader import Subject, read
from tgi_deploy.errors import DeployError
from tgi_deploy.planner.time_to_ready import packed_mb
from tgi_deploy.values.results import Starting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found, MachineState


def console_of(context: Context, machine: Found) -> Callable[[], str]:
    """Return a function that returns the machine's console, which is read once, at the first call."""
    return cache(lambda: context.cloud(machine.place).console(machine.id))


def starting(
    context: Context, deployment: Deployment, state: MachineState | None, console: Callable[[], str]
) -> Starting | None:
    """Return the progress; None if the machine is not running or its console can't be read."""
    if state is None or state.state not in {"pending", "running"}:
        return None
    if state.state == "pending":
        return Starting(phase="launching")
    try:
        reading = read(console(), context.grammar_of(deployment), subject=Subject(planned=True))
    except DeployError:
        return None
    cause = reading.forbids_ready or reading.cause_of_end
    if reading.latest.exit_code is None and not reading.phase_seen:
        return Starting(phase="booting")
    # A console keeps only its last lines, and a traceback can fill it: then the cause alone shows the phase.
    phase = reading.startup_phase if reading.phase_seen or cause is None else cause.startup_phase
    return Starting(
        phase=phase,
        detail=detail_of(phase, reading.progress, amount_mb=_image_mb(deployment)),
        fraction=fraction_of(phase, reading.progress),
        exit_code=reading.latest.exit_code,
        cause=cause.code if cause else None,
    )


def _image_mb(deployment: Deployment) -> float:
    """Return the size of the pull from the recorded plan; 0 without one."""
    return packed_mb(deployment.plan.storage.image_bytes) if deployment.plan else 0.0
