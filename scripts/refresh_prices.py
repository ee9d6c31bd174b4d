"""Update `profiles/aws/prices/<region>.json` from AWS's price list and the spot price history.

    python scripts/refresh_prices.py --region us-east-1 [--service sagemaker] [--write]

It only reads; the calls need pricing:GetProducts and, without --service, ec2:DescribeSpotPriceHistory and
ec2:DescribeInstanceTypeOfferings. With --service it writes `profiles/<service>/prices/<region>.json`, without types
that the list has no price for: they are not offered.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import boto3
from refresh_common import layout, load, report, today

from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.data_files import profiles_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PRICE_LIST_REGION: Final = "us-east-1"
_SOURCES: Final = {"price-list": "AWS Price List API, GetProducts", "spot-history": "EC2 DescribeSpotPriceHistory"}
# By service: the list's code, the attribute with the type, and the terms that select the products used here.
_PRODUCTS: Final = {
    "aws": (
        "AmazonEC2",
        "instanceType",
        {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"},
    ),
    "sagemaker": ("AmazonSageMaker", "instanceName", {"component": "Hosting"}),
}


def on_demand_usd(product: Mapping[str, Any]) -> Decimal | None:
    """Return the hourly price of a product in the price list; None for capacity blocks and others without a price."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            amount = Decimal(dimension["pricePerUnit"].get("USD", "0"))
            if dimension["unit"] == "Hrs" and amount > 0:
                return amount.normalize()
    return None


def spot_range(history: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Decimal, Decimal]]:
    """Return the lowest and highest current price in the zones of a region, by type."""
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for item in history:
        key = (item["InstanceType"], item["AvailabilityZone"])
        if key not in newest or item["Timestamp"] > newest[key]["Timestamp"]:
            newest[key] = item
    ranges: dict[str, tuple[Decimal, Decimal]] = {}
    for (name, _zone), item in newest.items():
        price = Decimal(item["SpotPrice"])
        low, high = ranges.get(name, (price, price))
        ranges[name] = (min(low, price), max(high, price))
    return ranges


def row(
    known: Mapping[str, Any],
    *,
    offered: bool,
    on_demand: Decimal | None,
    spot: tuple[Decimal, Decimal] | None,
    date: str,
) -> dict[str, Any]:
    """Return a type's row: fresh figures, or else the known ones."""
    fresh: dict[str, Any] = {"offered": offered}
    if on_demand is not None:
        fresh["on_demand"] = {"usd_per_hour": f"{on_demand:f}", "source": "price-list", "date": date}
    elif "on_demand" in known:
        fresh["on_demand"] = known["on_demand"]
    if spot is not None:
        fresh["spot"] = {
            "low_usd_per_hour": f"{spot[0]:f}", "high_usd_per_hour": f"{spot[1]:f}",
            "source": "spot-history", "date": date, "estimated": True,
        }  # fmt: skip
    elif "spot" in known:
        fresh["spot"] = known["spot"]
    return fresh


def price_list(
    region: str,
    names: Iterable[str],
    session: Any,  # noqa: ANN401 -- a boto3 session, or a fake
    service: str = "aws",
) -> Iterator[tuple[str, Decimal]]:
    client = session.client("pricing", region_name=_PRICE_LIST_REGION)
    code, attribute, wanted = _PRODUCTS[service]
    for name in names:
        terms = {**wanted, "regionCode": region, attribute: name}
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in terms.items()]
        for page in client.get_paginator("get_products").paginate(ServiceCode=code, Filters=filters):
            for text in page["PriceList"]:
                amount = on_demand_usd(json.loads(text))
                if amount is not None:
                    yield name, amount


def refreshed(content: Mapping[str, Any], region: str, names: list[str], session: Any) -> dict[str, Any]:  # noqa: ANN401 -- as above
    """Return the price file of a region with today's figures."""
    ec2 = session.client("ec2", region_name=region)
    offerings = ec2.get_paginator("describe_instance_type_offerings").paginate(LocationType="region")
    offered = {item["InstanceType"] for page in offerings for item in page["InstanceTypeOfferings"]} & set(names)
    history = ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=sorted(offered),
        ProductDescriptions=["Linux/UNIX"],
        StartTime=dt.datetime.now(tz=dt.UTC),
    )
    spots = spot_range(item for page in history for item in page["SpotPriceHistory"])
    on_demand = dict(price_list(region, sorted(offered), session))
    known = content.get("prices", {})
    prices = {
        name: row(
            known.get(name, {}),
            offered=name in offered,
            on_demand=on_demand.get(name),
            spot=spots.get(name),
            date=today(),
        )
        for name in sorted(offered | set(known))
    }
    return {
        **content,
        "region": region,
        "collected_at": today(),
        "sources": {**content["sources"], **_SOURCES},
        "prices": prices,
    }


def of_service(content: Mapping[str, Any], region: str, names: list[str], session: Any, service: str) -> dict[str, Any]:  # noqa: ANN401 -- as above
    """Return the price file of a service's machines in a region, with today's figures."""
    listed = dict(price_list(region, names, session, service))
    source, date = "price-list", today()
    return {
        **content,
        "region": region,
        "collected_at": date,
        "sources": {source: _SOURCES[source]},
        "prices": {
            name: {"offered": True, "on_demand": {"usd_per_hour": f"{amount:f}", "source": source, "date": date}}
            if (amount := listed.get(name)) is not None
            else {"offered": False}
            for name in names
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--region", action="append", required=True)
    parser.add_argument("--service", choices=sorted(set(_PRODUCTS) - {"aws"}))
    parser.add_argument("--write", action="store_true", help="write the files instead of only printing the changes")
    options = parser.parse_args()
    catalog, service = Catalog.open(), options.service
    names = list((catalog.hosted(service) if service else catalog).instance_types())
    for region in options.region:
        path = profiles_dir() / (service or "aws") / "prices" / f"{region}.json"
        known = load(path) if path.exists() else {"source": "AWS's own price APIs", "sources": {}}
        if service:
            fresh = of_service({"source": "AWS's own price API"}, region, names, boto3.Session(), service)
        else:
            fresh = refreshed(known, region, sorted(names), boto3.Session())
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        report(path, old, layout(fresh, by_entry=("prices",)), write=options.write)


if __name__ == "__main__":
    main()
