"""Receipts of removals, and what is left behind: as JSON-like documents and as text."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import wiring
from tgi_deploy.cli.views.text import heading
from tgi_deploy.errors import LeftThing
from tgi_deploy.text import duration, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.errors import Thing
    from tgi_deploy.operations.removing.gc import Group
    from tgi_deploy.operations.removing.receipt import KeptThing, Receipt

_CENT: Final = Decimal("0.01")
_MB: Final = 10**6
_GB: Final = 10**9


def receipts_document(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """`receipt` is the only one, or null; `receipts` are all."""
    documents = [item.document() for item in receipts]
    return {
        "receipt": documents[0] if len(documents) == 1 else None,
        "receipts": documents,
        "receipt_files": [item.path for item in receipts],
    }


def receipt_text(receipt: Receipt) -> str:
    """`llama3-13b ran 12 min, cost about $0.37`."""
    if not receipt.machines:
        return f"{receipt.name} had no machine, and cost nothing by the hour"
    most = "" if receipt.exact else "at most "
    ran = f"ran {most}{duration(receipt.seconds)}" if receipt.seconds is not None else "ran for an unknown time"
    return f"{receipt.name} {ran}, {_cost(receipt, most or 'about ')}"


def _cost(receipt: Receipt, how: str) -> str:
    if receipt.usd is None:
        return wiring.target_of(receipt.machines[0].region).facts.unpriced or "at a price that nothing here tells"
    cents = receipt.usd.quantize(_CENT, ROUND_HALF_UP)
    return f"cost {how}${cents:,}" if cents else "cost less than a cent"


def receipts_text(receipts: Sequence[Receipt]) -> str:
    return "\n".join(
        "\n".join((receipt_text(item), f"  receipt {item.path}", *map(_kept_text, item.kept))) for item in receipts
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _GB:.1f} GB" if size_bytes >= _GB else f"{size_bytes / _MB:.0f} MB"


def _kept_text(item: KeptThing) -> str:
    """What stays, how much it holds, and how it goes."""
    size = f"{_size(item.size_bytes)} of " if item.size_bytes is not None else ""
    command = wiring.target_of(item.region).by_hand.removal_command(item.kind, item.id, item.region)
    return f"  kept {item.kind} {item.id} ({size}{item.what}): the next 'up' uses it, '{command}' removes it"


def left_text(things: Sequence[Thing]) -> str:
    """What is still there, with the command that removes each: to be copied as it is."""
    lines = [
        heading("still there"),
        *(f"  {item.kind} {item.id} in {item.region}" for item in things),
    ]
    commands = [item.command for item in things if isinstance(item, LeftThing) and item.command]
    return "\n".join([*lines, *(f"  {command}" for command in commands)])


def groups_text(title: str, groups: Sequence[Group]) -> str:
    if not groups:
        return ""
    lines = [heading(title)]
    for group in groups:
        lines.append(f"  {group.name or '(no name)'} ({group.id}): {group.reason}")
        lines.extend(f"    - {item.kind} {item.id} in {item.place}" for item in group.found if group.orphaned)
        if not group.orphaned:
            lines.append(f"      {plural(len(group.found), 'thing')}")
    return "\n".join(lines)


def group_document(group: Group) -> dict[str, Any]:
    return {
        "deployment": group.name,
        "id": group.id,
        "recorded": group.recorded is not None,
        "reason": group.reason,
        "expires": group.expires.isoformat() if group.expires else None,
        "resources": [{"kind": item.kind, "id": item.id, "region": item.place} for item in group.found],
    }
