"""Ctrl-C and termination signals during a command: passed to the use case, reported as one result with exit 130."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import click

from tgi_deploy.cli.output import Result
from tgi_deploy.cli.progress import can_ask
from tgi_deploy.errors import InterruptedByUserError, Problem, warning
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from tgi_deploy.errors import LeftBehindError, RecordedThing
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.interrupts import Settled, Stops
    from tgi_deploy.operations.removing.receipt import Receipt

_T = TypeVar("_T")
_GRACE_S: Final = 3.0
_LEAVE_S: Final = 8.0
_HASTY: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals(stops: Stops) -> Iterator[None]:
    """Feed signals to `stops`. A call under way gets some seconds; after a termination signal all ends in time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    leave_at: list[float] = []

    def arrive(number: int, _frame: FrameType | None) -> None:
        hasty = number in _HASTY
        if hasty and not leave_at:
            leave_at.append(time.monotonic() + _LEAVE_S)
        _alarm_after(_GRACE_S if stops.holding else _left_s(leave_at))
        stops.arrive(hasty=hasty)

    def overdue(_number: int, _frame: FrameType | None) -> None:
        left_s = _left_s(leave_at)
        _alarm_after(left_s)
        if stops.pending or (leave_at and not left_s):
            stops.now()

    before = {number: signal.signal(number, arrive) for number in heeded()}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, overdue)
    try:
        yield
    finally:
        _alarm_after(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def heeded() -> tuple[signal.Signals, ...]:
    """The signals that mean to stop. Under `nohup` a closed terminal doesn't."""
    waived = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return tuple(number for number in (signal.SIGINT, *_HASTY) if not (waived and number == signal.SIGHUP))


def _left_s(leave_at: list[float]) -> float:
    """Seconds until all must have ended; 0 for never, and for now."""
    return max(0.0, leave_at[0] - time.monotonic()) if leave_at else 0.0


def _alarm_after(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)


def stopped(context: Context, run: Callable[[Context], _T], *, doing: str, advice: str) -> _T:
    """Run something that can simply be run again. Raises InterruptedByUserError when it was stopped."""
    from tgi_deploy.operations.removing.interrupts import Stops, guard  # noqa: PLC0415 -- help is printed without what acts

    stops = Stops()
    with signals(stops):
        try:
            result = run(guard(context, stops))
            stops.check()
        except (KeyboardInterrupt, click.Abort, EOFError):
            raise InterruptedByUserError("interrupted", f"'{doing}' was stopped before its end", hint=advice) from None
    return result


def stopped_up(context: Context, run: Callable[[Context], _T], *, name: str, quiet: Callable[[], None]) -> _T:
    """Run an `up`; if it is stopped, decide what to do with the resources it created.

    Raises InterruptedByUserError; its data say what was decided and what exists.
    """
    from tgi_deploy.operations.removing.interrupts import Stops, guard, settle  # noqa: PLC0415 -- see stopped()

    stops = Stops()
    guarded = guard(context, stops)
    with signals(stops):
        try:
            result = run(guarded)
            stops.check()
        except (KeyboardInterrupt, click.Abort, EOFError):
            stops.count = max(1, stops.count)
            quiet()
            settled = settle(guarded, name, stops, ask=_ask)
        else:
            return result
    raise _told(name, settled)


def _ask(exists: tuple[RecordedThing, ...]) -> bool:
    """Whether to remove. Without a terminal: yes."""
    if not can_ask():
        return True
    click.echo(f"\ninterrupted; there is {_words(exists) or 'nothing on record yet'}", err=True)
    try:
        return click.confirm("Remove what this run created?", default=True, err=True)
    except (click.Abort, EOFError):
        raise KeyboardInterrupt from None


def _told(name: str, settled: Settled) -> InterruptedByUserError:
    from tgi_deploy.cli.views.receipt import receipt_text, receipts_document  # noqa: PLC0415 -- see stopped()

    receipts = (settled.receipt,) if settled.receipt else ()
    cost = f" ({receipt_text(settled.receipt)})" if settled.receipt else ""
    exists = _words(settled.exists)
    why = f": {settled.why}" if settled.why else ""
    there = f"; there is {exists}" if exists else ""
    messages = {
        "nothing": f"interrupted; this run created nothing{there}",
        "removed": f"interrupted; everything this run created was removed{cost}{there}",
        "kept": f"interrupted; what exists is kept{there}",
        "ending": f"interrupted; the removal was asked for and is not proved yet{why}{there}",
        "left": f"interrupted; left as it is{why}{there}",
    }
    data = {
        "deployment": name,
        "fate": settled.fate,
        "exists": [as_dict(item) for item in settled.exists],
        **receipts_document(receipts),
    }
    return InterruptedByUserError("interrupted", messages[settled.fate], hint=_hint(name, settled), data=data)


def _hint(name: str, settled: Settled) -> str:
    if settled.fate in {"removed", "nothing"} and not settled.exists:
        return "nothing is left; run the same command to begin again"
    if settled.fate == "ending":
        return f"'tgi-deploy down {name}' waits for its end and proves it; the same 'up' does so and begins anew"
    return f"'tgi-deploy down {name}' removes it and proves it; running the same 'up' again resumes where it stopped"


def _words(exists: tuple[RecordedThing, ...]) -> str:
    return ", ".join(f"{item.kind} {item.id or '(asked for, not confirmed)'} in {item.region}" for item in exists)


def unsearched_notices(receipts: Sequence[Receipt]) -> tuple[Problem, ...]:
    """What a removal could not look for."""
    return tuple(
        warning(
            "not_looked_for",
            f"{receipt.name}: {item.kind}s in {item.region} could not be looked for: {item.why}",
        )
        for receipt in receipts
        for item in receipt.unsearched
    )


def left_result(error: LeftBehindError) -> Result:
    """Exit 6: the error, and the commands that remove what is left, on stdout."""
    from tgi_deploy.cli.views.receipt import left_text  # noqa: PLC0415 -- see stopped()

    return Result(
        data=error.data,
        text=left_text(error.left),
        exit_code=error.exit_code,
        errors=(error.problem,),
    )
