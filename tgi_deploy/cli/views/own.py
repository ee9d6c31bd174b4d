"""Compares the cost of an owned machine with rentals that meet the same request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.cli.views.text import heading, table, wrapped
from tgi_deploy.text import cents, one_line, plural, usd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from tgi_deploy.values.owned import Owned, Rental

_MOST: Final = 8
_NUMBERS: Final = frozenset({2, 3, 4, 5})


def own_text(owned: Owned) -> str:
    blocks = [_owned_cost(owned), _rentals(owned), _reading(owned)]
    return "\n".join(block for block in blocks if block) + "\n"


def _owned_cost(owned: Owned) -> str:
    several = f"{owned.machines} x " if owned.machines > 1 else ""
    source = f" Figures: {one_line(owned.source)}." if owned.source else ""
    return (
        heading("Buy or rent", f"{several}{one_line(owned.name)}, {owned.hardware}")
        + "\n"
        + wrapped(
            f"{usd(owned.purchase_usd)} to buy, {usd(owned.running_usd_per_month)} a month to run"
            f" ({owned.power_kw} kW per machine at the meter), {usd(owned.usd_per_month)} a month in total over"
            f" {plural(int(owned.useful_life_years * 12), 'month')}.{source}"
        )
    )


def _rentals(owned: Owned) -> str:
    if not owned.rentals:
        return wrapped("No rental meets the request.")
    off = ("if switched off",) if owned.utilization < 1 else ()
    header = ("rental", "market", "$/h", "$/1M out", "pays after", *off)
    rows = [_row(item, owned) for item in _shown(owned.rentals)]
    return table(header, rows, right=_NUMBERS, indent="  ").rstrip("\n")


def _shown(rentals: Sequence[Rental]) -> Sequence[Rental]:
    """Return the planner's best rentals, and all with the same hardware."""
    return [item for number, item in enumerate(rentals) if number < _MOST or item.same_hardware]


def _row(item: Rental, owned: Owned) -> tuple[str, ...]:
    several = f"{item.machines} x " if item.machines > 1 else ""
    market = f"{item.market}, estimate" if item.estimated else item.market
    off = (_months(item.break_even_months_if_switched_off, owned),) if owned.utilization < 1 else ()
    return (
        f"{several}{item.instance_type} ({item.accelerator_count} x {item.accelerator}){'*' * item.same_hardware}",
        market,
        usd(item.usd_per_hour),
        cents(float(item.usd_per_million_output_tokens)) if item.usd_per_million_output_tokens else "",
        _months(item.break_even_months, owned),
        *off,
    )


def _months(months: Decimal | None, owned: Owned) -> str:
    if months is None or months > owned.useful_life_years * 12:
        return "never"
    return f"{months:,.1f} months"


def _reading(owned: Owned) -> str:
    off = (
        f" 'IF SWITCHED OFF' compares with a rental billed only for the busy {owned.utilization:.0%} of the time."
        if owned.utilization < 1
        else ""
    )
    same = "* The same hardware. " if any(item.same_hardware for item in owned.rentals) else ""
    return wrapped(
        f"{same}Never: not within the useful life of {owned.useful_life_years} years.{off} Interest, staff and resale"
        " are not counted."
    )
