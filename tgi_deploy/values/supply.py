"""What is on offer: machines at their prices, and the facts that plans are made with. `catalog/` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Final

from tgi_deploy.values.base import Document, Value
from tgi_deploy.values.engine import Release
from tgi_deploy.values.hardware import InstanceType
from tgi_deploy.values.quality import QualityTable
from tgi_deploy.values.request import Market
from tgi_deploy.values.speed_constants import Constants

HOURS_PER_MONTH: Final = Decimal(730)
ROOT_VOLUME: Final = "root volume"


class CostLine(Document, frozen=True, kw_only=True):
    item: str
    usd_per_hour: Decimal

    @property
    def stays_when_stopped(self) -> bool:
        """Whether it is billed while the machine is stopped: its disk is, its public address is given back."""
        return ROOT_VOLUME in self.item


class Interruptions(Value, frozen=True, kw_only=True):
    """How often a spot machine that always runs is reclaimed in a month of 730 hours: a rough estimate, with its ends.

    `band` is what the provider publishes.
    """

    band: str
    low_per_month: Decimal
    per_month: Decimal
    high_per_month: Decimal
    source: str
    date: str


class Credits(Value, frozen=True, kw_only=True):
    """What the provider takes off the bill until that day, of everything in the account together."""

    usd: Decimal
    until: date
    source: str


class Offer(Value, frozen=True, kw_only=True):
    """An instance type in a region and market. No price means unknown (or owned): never free.

    `bill` is what the price consists of, where that is known: of a machine one owns and keeps books on. Spot machines
    have `interruptions`.
    """

    instance_type: InstanceType
    region: str
    market: Market
    usd_per_hour: Decimal | None
    price_source: str = ""
    price_date: str = ""
    estimated: bool = False
    bill: tuple[CostLine, ...] = ()
    interruptions: Interruptions | None = None
    credits: Credits | None = None


class ExtraPrices(Value, frozen=True, kw_only=True):
    """What a region bills beside the instance."""

    gp3_usd_per_gib_month: Decimal
    public_ipv4_usd_per_hour: Decimal
    load_balancer_usd_per_hour: Decimal
    estimated: bool
    source: str
    date: str


class Supply(Value, frozen=True, kw_only=True):
    """Everything on offer for one request: offers of its regions and markets, an engine release, extra prices.

    `extra_prices` is keyed by region. `date` is the day of the newest figure in the catalogue. `speed` holds
    the constants that predictions are made with. `most_replicas` is what the target can run of one deployment.
    """

    offers: tuple[Offer, ...]
    release: Release
    extra_prices: Mapping[str, ExtraPrices]
    date: str
    speed: Constants
    quality: QualityTable
    most_replicas: int = 1
