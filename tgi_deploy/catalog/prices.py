"""Offers and extra prices of regions, from `aws/prices/<region>.json` and `aws/extras.json`."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.fields import IGNORED, REQUIRED_TEXT, Field, anything, boolean, read, table, usd
from tgi_deploy.values.base import Value, Where, as_dict, decode
from tgi_deploy.values.supply import ExtraPrices, Interruptions, Offer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.catalog.store import Store
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.request import Market

PRICES_FOLDER: Final = "aws/prices"
EXTRAS_FILE: Final = "aws/extras.json"
INTERRUPTIONS_FILE: Final = "aws/interruptions.json"

_ROW: Final = {
    "offered": Field(check=boolean),
    "on_demand": Field(check=anything, required=False),
    "spot": Field(check=anything, required=False),
}
_PRICED: Final = {
    "source": Field(check=REQUIRED_TEXT.check, target="price_source"),
    "date": Field(check=REQUIRED_TEXT.check, target="price_date"),
    "estimated": Field(check=boolean, required=False),
}
_ON_DEMAND: Final = {"usd_per_hour": Field(check=usd), **_PRICED}
# Spot prices vary: plans use the price of the most expensive zone.
_SPOT: Final = {
    "high_usd_per_hour": Field(check=usd, target="usd_per_hour"),
    "low_usd_per_hour": IGNORED,
    "interruptions": Field(check=REQUIRED_TEXT.check, required=False),
    **_PRICED,
}
_EXTRAS: Final = {
    "gp3_usd_per_gib_month": Field(check=usd, target="volume_usd_per_gib_month"),
    "public_ipv4_usd_per_hour": Field(check=usd),
    "load_balancer_usd_per_hour": Field(check=usd),
    "estimated": Field(check=boolean),
    "source": REQUIRED_TEXT,
    "date": REQUIRED_TEXT,
}
_MARKETS: Final[Mapping[Market, tuple[str, Mapping[str, Field]]]] = {
    "on-demand": ("on_demand", _ON_DEMAND),
    "spot": ("spot", _SPOT),
}


class _Band(Value, frozen=True, kw_only=True):
    low_per_month: Decimal
    per_month: Decimal
    high_per_month: Decimal


class _Bands(Value, frozen=True, kw_only=True):
    collected_at: str
    source: str
    date: str
    confidence: str
    note: str
    unlisted: str
    bands: dict[str, _Band]


def interruptions(store: Store) -> Mapping[str | None, Interruptions]:
    """Return how often spot machines of each band are reclaimed; None is the key for types without a band."""
    table_ = decode(store.json(INTERRUPTIONS_FILE), _Bands, Where(INTERRUPTIONS_FILE))
    found: dict[str | None, Interruptions] = {
        name: Interruptions(band=name, source=table_.source, date=table_.date, **as_dict(band))
        for name, band in table_.bands.items()
    }
    return found | {None: found[table_.unlisted]}


def offers(
    store: Store,
    region: str,
    markets: tuple[Market, ...],
    instance_types: Mapping[str, InstanceType],
    folder: str = PRICES_FOLDER,
) -> Iterator[Offer]:
    """Yield the offered types of a region. An unknown price is None."""
    name = f"{folder}/{region}.json"
    content = store.json(name)
    where = Where(name).child("prices")
    sources = table(content.get("sources", {}), Where(name).child("sources"))
    bands = interruptions(store) if "spot" in markets else {}
    for type_name, raw in table(content.get("prices"), where).items():
        row = read(raw, _ROW, where.child(type_name))
        hardware = instance_types.get(type_name)
        if hardware is None:
            raise where.child(type_name).error("is not a known instance type")
        if not row["offered"] or hardware.status not in {"offered", "hosted"}:
            continue
        for market in markets:
            if market in _MARKETS:
                priced = _priced(row, market, where.child(type_name), sources)
                if market == "spot":
                    priced["interruptions"] = _of_band(priced.get("interruptions"), bands, where.child(type_name))
                yield Offer(instance_type=hardware, region=region, market=market, **priced)


def _of_band(band: str | None, bands: Mapping[str | None, Interruptions], where: Where) -> Interruptions:
    if band not in bands:
        raise where.child("spot").child("interruptions").error(f"is not a band of {INTERRUPTIONS_FILE}")
    return bands[band]


def _priced(row: Mapping[str, Any], market: Market, where: Where, sources: Mapping[str, str]) -> dict[str, Any]:
    key, fields = _MARKETS[market]
    if key not in row:
        return {"usd_per_hour": None}
    priced = read(row[key], fields, where.child(key))
    priced["price_source"] = sources.get(priced["price_source"], priced["price_source"])
    return priced


def extras(store: Store, regions: tuple[str, ...]) -> dict[str, ExtraPrices]:
    content = store.json(EXTRAS_FILE)
    where = Where(EXTRAS_FILE).child("regions")
    entries = table(content.get("regions"), where)
    sources = table(content.get("sources", {}), Where(EXTRAS_FILE).child("sources"))
    found = {}
    for region in regions:
        if region not in entries:
            raise where.child(region).error("is missing")
        values = read(entries[region], _EXTRAS, where.child(region))
        values["source"] = sources.get(values["source"], values["source"])
        found[region] = ExtraPrices(**values)
    return found
