"""The user's actual prices, from `prices.toml` in their profiles folder, instead of list prices.

    source = "compute savings plan, 3 years, no upfront"
    date = "2026-11-22"
    [percent_off]                  # of on-demand prices: by type, by family, or for all
    "*" = 28
    g6e = 31
    [usd_per_hour."us-east-1"]     # private prices by region and type; they win
    "p5.48xlarge" = "38.40"
    [credits]                      # shown with each plan through that day
    usd = "5000"
    until = 2027-03-31

The prices replace those of the offers, so everything computed from them is consistent: hourly and token prices,
budgets, spending limits and cost gates. Spot prices, and what is billed in addition to the instance, are unchanged. A
service has a separate file in its folder: `sagemaker/prices.toml`.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.fields import REQUIRED_TEXT, Field, anything, number, read, table_of, usd
from tgi_deploy.clock import SystemClock
from tgi_deploy.values.base import Where, replaced
from tgi_deploy.values.supply import Credits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tgi_deploy.catalog.store import Store
    from tgi_deploy.values.supply import Offer

FILE: Final = "prices.toml"
_CENT_OF_A_CENT: Final = Decimal("0.0001")
_WHOLE: Final = 100
_EVERYTHING: Final = "*"


def _percent(value: object) -> Decimal:
    found = Decimal(str(number(value)))
    if found >= _WHOLE:
        raise ValueError("should be a percentage below 100")
    return found


def _day(value: object) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError("should be a day like 2027-03-31, without quotation marks")  # noqa: TRY004 -- as every check
    return value


_CREDITS: Final = {"usd": Field(check=usd), "until": Field(check=_day)}
_FIELDS: Final = {
    "source": REQUIRED_TEXT,
    "date": REQUIRED_TEXT,
    "percent_off": Field(check=table_of(_percent), required=False),
    "usd_per_hour": Field(check=table_of(table_of(usd)), required=False),
    "credits": Field(check=anything, required=False),
}


def overlay(store: Store, type_names: Collection[str], file: str = FILE) -> Callable[[Offer], Offer]:
    """Return a function that applies the user's price to an offer; without a file, offers are unchanged.

    Raises:
        InputError: `bad_profile`, naming file and key path; also for an unknown type.
    """
    if store.find(file) is None:
        return lambda offer: offer
    where = Where(file)
    found = read(store.toml(file), _FIELDS, where)
    found["source"] = f"{file}: {found['source']}"
    families = {name.rpartition(".")[0] for name in type_names}
    _check(found.get("percent_off", {}), {*type_names, *families, _EVERYTHING}, where.child("percent_off"))
    for region, prices in found.get("usd_per_hour", {}).items():
        _check(prices, type_names, where.child("usd_per_hour").child(region))
    credits_left = _credits(found, where)
    return lambda offer: replaced(_priced(offer, found), credits=credits_left)


def _credits(found: Mapping[str, Any], where: Where) -> Credits | None:
    """Return the credits; None after their last day."""
    if "credits" not in found:
        return None
    given = read(found["credits"], _CREDITS, where.child("credits"))
    if given["until"] < SystemClock().now().date():
        return None
    return Credits(**given, source=found["source"])


def _check(table: Mapping[str, Any], known: Collection[str], where: Where) -> None:
    """Reject names that match nothing: the user would rely on a price that is never used."""
    for name in table:
        if name not in known:
            raise where.child(name).error("is not an instance type with accelerators")


def _priced(offer: Offer, own: Mapping[str, Any]) -> Offer:
    if offer.market != "on-demand":
        return offer
    name = offer.instance_type.name
    private = own.get("usd_per_hour", {}).get(offer.region, {}).get(name)
    if private is not None:
        return _with_price(offer, private, own, estimated=False)
    off = own.get("percent_off", {})
    percent = next((off[key] for key in (name, name.rpartition(".")[0], _EVERYTHING) if key in off), None)
    if percent is None or offer.usd_per_hour is None:
        return offer
    price = (offer.usd_per_hour * (_WHOLE - percent) / _WHOLE).quantize(_CENT_OF_A_CENT, ROUND_HALF_UP)
    return _with_price(offer, price, own, estimated=offer.estimated)


def _with_price(offer: Offer, usd_per_hour: Decimal, own: Mapping[str, Any], *, estimated: bool) -> Offer:
    return replaced(
        offer,
        usd_per_hour=usd_per_hour,
        price_source=own["source"],
        price_date=own["date"],
        estimated=estimated,
    )
