"""Reads the file of `plan --own`: a purchased machine and its running costs. All values have bounds."""

from __future__ import annotations

import tomllib
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.fields import OPTIONAL_TEXT, REQUIRED_TEXT, Field, one_of, read
from tgi_deploy.catalog.store import read_text
from tgi_deploy.text import printable
from tgi_deploy.values.base import Where
from tgi_deploy.values.owned import OwnedMachine

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.catalog.fields import Check

_MOST_MACHINES: Final = 1000


def _within(least: str, most: str, unit: str) -> Check:
    """Return a check for a number from `least` to `most`, given as a number or a string."""
    low, high = Decimal(least), Decimal(most)

    def check(value: object) -> Decimal:
        amount = _decimal(value)
        if amount is None or not low <= amount <= high:
            raise ValueError(f"should be a number of {unit} from {low:,f} to {high:,f}")
        return amount

    return check


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    try:
        amount = Decimal(value)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None


def _machines(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_MACHINES:
        raise ValueError(f"should be a whole number from 1 to {_MOST_MACHINES}")
    return value


_WATTS: Final = _within("0", "200000", "watts")
_FIELDS: Final = {
    "name": OPTIONAL_TEXT,
    "source": OPTIONAL_TEXT,
    "hardware": REQUIRED_TEXT,
    "interconnect": Field(check=one_of("none", "pcie", "pcie-p2p", "nvlink"), required=False),
    "machines": Field(check=_machines, required=False),
    "purchase_usd": Field(check=_within("1", "1000000000", "US dollars")),
    "useful_life_years": Field(check=_within("0.5", "20", "years")),
    "board_w": Field(check=_WATTS),
    "host_w": Field(check=_WATTS),
    "idle_w": Field(check=_WATTS, required=False),
    "pue": Field(check=_within("1", "5", "watts at the meter for each in the machine")),
    "usd_per_kwh": Field(check=_within("0", "10", "US dollars")),
    "hosting_usd_per_month": Field(check=_within("0", "10000000", "US dollars"), required=False),
    "utilization": Field(check=_within("0.01", "1", "parts of the time"), required=False),
}


def owned_machine(path: Path) -> OwnedMachine:
    """Return the machine described by a file.

    Raises:
        InputError: `unreadable_path`, or `bad_profile` with file, key and what was expected.
    """
    where = Where(printable(str(path)))
    try:
        raw = tomllib.loads(read_text(path), parse_float=Decimal)
    except (ValueError, RecursionError) as problem:  # ValueError: also for a number with more digits than Python parses
        raise where.error(f"is not valid TOML: {problem}") from None
    return OwnedMachine(**read(raw, _FIELDS, where))
