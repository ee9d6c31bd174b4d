"""Runs use cases so that they can be interrupted. An interrupted one raises `InterruptedByUserError`, exit 130."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tgi_deploy.errors import InterruptedByUserError
from tgi_deploy.operations.removing.interrupts import guard, settle
from tgi_deploy.operations.stops import Stops
from tgi_deploy.values.base import as_dict

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.errors import RecordedResource
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.interrupts import Settled
    from tgi_deploy.targets.protocol import Target

_T = TypeVar("_T")


def run_repeatable(
    context: Context, stops: Stops | None, run: Callable[[Context], _T], *, doing: str, advice: str
) -> _T:
    """Run a use case that can simply be repeated. Raises InterruptedByUserError if it was stopped."""
    stops = stops or Stops()
    try:
        result = run(guard(context, stops))
        stops.check()
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted", f"'{doing}' was stopped before it finished", hint=advice) from None
    return result


def run_settled(
    context: Context,
    stops: Stops | None,
    run: Callable[[Context], _T],
    *,
    name: str,
    ask: Callable[[tuple[RecordedResource, ...]], bool],
) -> _T:
    """Run an `up`; if it is stopped, decide what to do with the resources it created.

    `ask` receives what exists, and returns whether to remove it. Raises InterruptedByUserError, whose data has the
    decision and what exists.
    """
    stops = stops or Stops()
    guarded = guard(context, stops)
    try:
        result = run(guarded)
        stops.check()
    except KeyboardInterrupt:
        stops.count = max(1, stops.count)
        settled = settle(guarded, name, stops, ask=ask)
    else:
        return result
    raise interruption(name, settled, context.target_at)


def interruption(name: str, settled: Settled, target_at: Callable[[str], Target]) -> InterruptedByUserError:
    """Return the error for a run that was stopped."""
    receipt = settled.receipt
    cost = f" ({receipt.sentence(target_at)})" if receipt else ""
    exists = ", ".join(map(str, settled.exists))
    why = f": {settled.why}" if settled.why else ""
    there = f"; these exist: {exists}" if exists else ""
    messages = {
        "nothing_created": f"interrupted; this run created nothing{there}",
        "removed": f"interrupted; everything this run created was removed{cost}{there}",
        "kept": f"interrupted; all resources are kept{why}{there}",
        "removing": f"interrupted; the removal was requested but is not verified yet{why}{there}",
        "not_removed": f"interrupted; nothing was removed{why}{there}",
    }
    document = receipt.document() if receipt else None
    data = {
        "deployment": name,
        "outcome": settled.outcome,
        "exists": [as_dict(item) for item in settled.exists],
        "receipt": document,
        "receipts": [document] if document else [],
        "receipt_files": [receipt.path] if receipt else [],
    }
    return InterruptedByUserError("interrupted", messages[settled.outcome], hint=_hint(name, settled), data=data)


def _hint(name: str, settled: Settled) -> str:
    if settled.outcome in {"removed", "nothing_created"} and not settled.exists:
        return "nothing is left; run the same command to start over"
    if settled.outcome == "removing":
        return f"'tgi-deploy down {name}' finishes and verifies it; the same 'up' does that and starts over"
    return f"'tgi-deploy down {name}' removes it; running the same 'up' again resumes where it stopped"
