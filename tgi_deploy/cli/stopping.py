"""Passes Ctrl-C and termination signals to the use case; an interrupted command has one result, with exit 130."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from tgi_deploy.api import Stops
from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import asked, can_ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tgi_deploy.errors import LeftBehindError, RecordedResource

_GRACE_S: Final = 3.0
_LEAVE_S: Final = 8.0
_URGENT: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals(stops: Stops) -> Iterator[None]:
    """Pass signals to `stops`. A call in progress may take some seconds; after SIGTERM, all must end within eight."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    leave_at: list[float] = []

    def arrive(number: int, _frame: FrameType | None) -> None:
        urgent = number in _URGENT
        if urgent and not leave_at:
            leave_at.append(time.monotonic() + _LEAVE_S)
        _alarm_after(_GRACE_S if stops.holding else _left_s(leave_at))
        stops.arrive(urgent=urgent)

    def overdue(_number: int, _frame: FrameType | None) -> None:
        left_s = _left_s(leave_at)
        _alarm_after(left_s)
        if stops.pending or (leave_at and not left_s):
            stops.now()

    before = {number: signal.signal(number, arrive) for number in stop_signals()}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, overdue)
    try:
        yield
    finally:
        _alarm_after(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that request a stop: not SIGHUP under `nohup`."""
    waived = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return tuple(number for number in (signal.SIGINT, *_URGENT) if not (waived and number == signal.SIGHUP))


def _left_s(leave_at: list[float]) -> float:
    """Return the seconds until everything must have ended; 0 if that is now or never."""
    return max(0.0, leave_at[0] - time.monotonic()) if leave_at else 0.0


def _alarm_after(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)


@contextmanager
def stoppable() -> Iterator[Stops]:
    """Yield the `Stops` that signals trigger."""
    stops = Stops()
    with signals(stops):
        yield stops


def ask_removal(exists: tuple[RecordedResource, ...], quiet: Callable[[], None], *, yes: bool = False) -> bool:
    """Return whether to remove what an interrupted run created; with `yes` and without a terminal, always True."""
    quiet()
    if yes or not can_ask():
        return True
    click.echo(f"\ninterrupted; created so far: {', '.join(map(str, exists)) or 'nothing recorded yet'}", err=True)
    return asked("Remove what this run created?", default=True)


def left_result(error: LeftBehindError) -> Result:
    """Return the result with exit code 6: the error, and the commands that remove what is left, on stdout."""
    from tgi_deploy.cli.views.receipt import left_text  # noqa: PLC0415 -- not needed for --help

    return Result(
        data=error.data,
        text=left_text(error.left),
        exit_code=error.exit_code,
        errors=(error.problem,),
    )
