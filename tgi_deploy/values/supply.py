"""Offers with prices, and the facts that plans use. `catalog/` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Final, Protocol

from tgi_deploy.errors import Problem, warning
from tgi_deploy.text import dated, rate
from tgi_deploy.values.base import Document, Frozen, Value
from tgi_deploy.values.engine import Release
from tgi_deploy.values.hardware import InstanceType
from tgi_deploy.values.quality import QualityTable
from tgi_deploy.values.request import Market
from tgi_deploy.values.speed_constants import Constants

HOURS_PER_MONTH: Final = Decimal(730)
ROOT_VOLUME: Final = "root volume"
PUBLIC_ADDRESS: Final = "public IPv4 address"
_CENT: Final = Decimal("0.01")


def usd_per_month(usd_per_hour: Decimal) -> Decimal:
    """Return the cost of 730 hours in US dollars, to the cent: an idle machine is billed, too."""
    return (usd_per_hour * HOURS_PER_MONTH).quantize(_CENT, ROUND_HALF_UP)


class Elsewhere(Value, frozen=True, kw_only=True):
    """A machine of another cloud at its on-demand list price. `date`: the price is at most this old."""

    cloud: str
    machine: str
    region: str
    accelerator: str
    count: int
    usd_per_hour: Decimal
    source: str
    date: str
    confidence: str


class CostLine(Document, frozen=True, kw_only=True):
    item: str
    usd_per_hour: Decimal

    @property
    def stays_when_stopped(self) -> bool:
        """Whether it is billed while the machine is stopped: the disk is, the released public address is not."""
        return ROOT_VOLUME in self.item


class Interruptions(Value, frozen=True, kw_only=True):
    """Reclaims of an always-on spot machine per month of 730 hours: a rough estimate with its range.

    `band` is the provider's published band.
    """

    band: str
    low_per_month: Decimal
    per_month: Decimal
    high_per_month: Decimal
    source: str
    date: str


class Credits(Value, frozen=True, kw_only=True):
    """Credits that the provider deducts from the whole account's bill until that day."""

    usd: Decimal
    until: date
    source: str


class Offer(Value, frozen=True, kw_only=True):
    """An instance type in a region and market. A missing price means unknown or owned, never free.

    `bill` is the breakdown of the price if known, as for an owned machine with known costs. Spot machines have
    `interruptions`.
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

    @property
    def dated(self) -> str:
        """The date of the price, as `listed 2026-07-20`; empty without a price."""
        return dated(self.price_date, estimated=self.estimated)


class _Priced(Protocol):
    @property
    def market(self) -> Market: ...
    @property
    def price_date(self) -> str: ...


def is_added(item: _Priced) -> bool:
    """Return whether the user's cluster first has to add the machine: an existing one has no listed price."""
    return item.market == "owned" and bool(item.price_date)


class AddedMachine(Value, frozen=True, kw_only=True):
    """A machine that a cluster adds by its `pool` when a pod needs it, at its on-demand price.

    `spot_usd_per_hour` is an estimate; None if the pool never rents it so, or if it is unknown. `spot_only`: the pool
    rents it only so, and the price is that estimate or, without one, the on-demand price as an upper bound. `most`: how
    many more the pool may add. `needed`: no machine of the kind has room now.
    """

    pool: str
    instance_type: str
    accelerator: str
    accelerator_count: int
    region: str
    usd_per_hour: Decimal
    price_source: str
    price_date: str
    estimated: bool
    spot_usd_per_hour: Decimal | None
    most: int
    spot_only: bool = False
    needed: bool = True

    @property
    def hardware(self) -> str:
        """The form of `--hardware`."""
        return f"{self.accelerator_count}x{self.accelerator}"

    def notice(self, number: int = 1) -> Problem:
        """Return the warning that so many will be added, and what they cost."""
        nodes = "a new node" if number == 1 else f"{number} new nodes"
        each = " each" if number > 1 else ""
        reclaimed = "; a spot node can be reclaimed at any time" if self.spot_only else ""
        return warning(
            "new_node",
            f"{nodes} by the NodePool {self.pool}: {self.instance_type}, {self._price(each)}",
            f"it is billed until Karpenter removes it; the NodePool's disruption settings decide when{reclaimed}",
            pool=self.pool,
            instance_type=self.instance_type,
            nodes=number,
            usd_per_hour=self.usd_per_hour,
            spot_usd_per_hour=self.spot_usd_per_hour,
        )

    def _price(self, each: str) -> str:
        """Return the price with its date."""
        price, spot = rate(self.usd_per_hour, estimated=self.estimated), self.spot_usd_per_hour
        date = dated(self.price_date, estimated=self.estimated)
        if not self.spot_only:
            less = "" if spot is None else f", or {rate(spot, estimated=True)} as spot, which the pool may choose"
            return f"{price}{each} on demand in {self.region} ({date}){less}"
        if spot is None:
            most = f"at most {rate(self.usd_per_hour)}{each}"
            return f"{most}, the on-demand price in {self.region} ({date}), for a spot node"
        return f"{price}{each} as spot in {self.region} ({date}), the only market of the pool"


class Headroom(Frozen, frozen=True, kw_only=True):
    """Whether more replicas of a running deployment have room, and what they cost.

    `problems`: errors if there is no room, and warnings. `added_usd_per_hour`: what machines that have to be added for
    the largest number cost at most; 0 if none, or if machines have no price. `price_date` is that of the price.
    """

    problems: tuple[Problem, ...] = ()
    added_usd_per_hour: Decimal = Decimal(0)
    estimated: bool = False
    price_date: str = ""

    @property
    def price_words(self) -> str:
        """The added price with its date, as `$1.861/h (listed 2026-07-20)`; empty if nothing is added."""
        if not self.added_usd_per_hour:
            return ""
        date = dated(self.price_date, estimated=self.estimated)
        return rate(self.added_usd_per_hour, estimated=self.estimated) + (f" ({date})" if date else "")


class ExtraPrices(Value, frozen=True, kw_only=True):
    """What a region bills in addition to the instance."""

    volume_usd_per_gib_month: Decimal
    volume_type: str = "gp3"
    public_ipv4_usd_per_hour: Decimal
    load_balancer_usd_per_hour: Decimal
    estimated: bool
    source: str
    date: str


class Hosting(Value, frozen=True, kw_only=True):
    """A service that runs the engine on its own machines: one container on each, given variables only.

    A whole answer takes at most `answer_s`, a streamed one `stream_s`, and the container's start `start_s`. A machine
    has NVMe, or else a volume of at most `volume_gib`. The container serves on `port` and keeps weights in `cache`.
    `variables` maps the engine's variables to those that the image's entry point calls differently; `registries` has
    the image's registry by region.
    """

    service: str
    answer_s: int
    stream_s: int
    start_s: int
    volume_gib: int
    port: int
    cache: str
    variables: Mapping[str, str]
    registries: Mapping[str, str]


class Supply(Value, frozen=True, kw_only=True):
    """The offers for one request: of its regions and markets, with an engine release and extra prices.

    `extra_prices` is keyed by region. `date` is that of the newest figure in the catalog. `speed` has the constants for
    predictions. `most_replicas` is the target's maximum per deployment. `hosting`: a service rents the machines out.
    """

    offers: tuple[Offer, ...]
    release: Release
    extra_prices: Mapping[str, ExtraPrices]
    date: str
    speed: Constants
    quality: QualityTable
    most_replicas: int = 1
    hosting: Hosting | None = None
