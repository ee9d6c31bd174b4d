"""Formats the costs of deployments as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.views.text import prices_line, table
from tgi_deploy.text import cents, one_line, plural, usd, usd_spent

if TYPE_CHECKING:
    from tgi_deploy.values.results import AmountsData, CostsData

_AMOUNTS: Final = ("so far", "$/h now", "$/month")
_UNKNOWN: Final = "unknown"


def costs_text(found: CostsData) -> str:
    """Return the costs of deployments, of deleted ones, and in total; by owner only if there are several."""
    rows = [
        (one_line(item.name), one_line(item.owner) or _UNKNOWN, item.location, str(item.machines), *_cells(item))
        for item in found.deployments
    ]
    removed = found.removed
    if removed.deployments:
        since = f" since {removed.since:%Y-%m-%d}" if removed.since else ""
        rows.append(("removed", f"{removed.deployments}{since}", "", "", usd_spent(removed.accrued_usd), "", ""))
    rows.append(("total", "", "", "", *_cells(found.total)))
    shown = [table(("name", "owner", "location", "machines", *_AMOUNTS), rows, right=frozenset({3, 4, 5, 6}))]
    if len(found.owners) > 1:
        owned = [
            (one_line(item.owner) or _UNKNOWN, plural(item.deployments, "deployment"), *_cells(item))
            for item in found.owners
        ]
        shown.append(table(("owner", "", *_AMOUNTS), owned, right=frozenset({2, 3, 4})))
    if line := prices_line(found.deployments):
        shown.append(line)
    return "\n".join(shown)


def _cells(amounts: AmountsData) -> tuple[str, str, str]:
    guessed, monthly = amounts.estimated, amounts.usd_per_month
    return (
        usd_spent(amounts.accrued_usd, estimated=guessed),
        usd(amounts.usd_per_hour, estimated=guessed),
        cents(None if monthly is None else float(monthly), estimated=guessed),
    )
