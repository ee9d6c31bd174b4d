"""What the machines of a name have cost so far, for --max-spend: by the history of its record, and by receipts.

The count begins with the first `up` of a name and ends with its `down`. What `up` has given up and removed in between
has left nothing but its receipt.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from tgi_deploy.operations.removing.receipt import Ledger, Receipt, recorded_things, write
from tgi_deploy.operations.watching.known import money
from tgi_deploy.reconcile.ends import moment_of
from tgi_deploy.values.ends import Spent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.operations.context import Context
    from tgi_deploy.values.deployment import Deployment


def spent_by(context: Context, deployment: Deployment) -> Spent:
    """Return what this deployment and those of its name that `up` gave up before it have cost until now.

    A machine that nobody saw end counts until now, or its end. One without a price counts for nothing.
    """
    history = (*context.store.events(deployment.name), *recorded_things(deployment))
    lines = Ledger.of(history).closed(context.clock.now(), expires=deployment.ends.expires_at, left=())
    costs = [line.usd for line in lines if line.is_machine and line.usd is not None]
    # The receipt of a removal that did not finish tells of what the record tells.
    others = (item for item in _given_up(context, deployment.name) if item.get("id") != deployment.id)
    costs += [cost for document in others for cost in _costs(document)]
    return Spent(usd=sum(costs, Decimal(0)), machines=len(costs))


def begin_anew(context: Context, name: str) -> None:
    """Let nothing that was given up under this name count any more; a receipt of nothing says so."""
    if not _given_up(context, name):
        return
    closing = Receipt(
        name=name, id=context.new_id(), version=context.version, at=context.clock.now(), lines=(), regions=()
    )
    write(context, closing)
    context.reporter.note(f"what was spent under '{name}' no longer counts for --max-spend")


def _given_up(context: Context, name: str) -> tuple[Mapping[str, Any], ...]:
    """Receipts since the last removal that somebody has asked for, the latest first."""
    dated = [
        (at, item.get("given_up") is not True, item)
        for item in context.store.receipts(name)
        if (at := moment_of(item.get("at"))) is not None
    ]
    latest_first = sorted(dated, key=lambda item: item[:2], reverse=True)
    return tuple(item for _, _, item in takewhile(lambda item: not item[1], latest_first))


def _costs(document: Mapping[str, Any]) -> list[Decimal]:
    """What each machine of a receipt has cost."""
    lines = document.get("resources")
    found = [line.get("usd") for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []
    return [cost for cost in map(money, found) if cost is not None]
