"""Plans: what to run and why. Units stand in names; money is `Decimal` US dollars; bytes are integers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tgi_deploy.values.base import Document, Value
from tgi_deploy.values.container import Container
from tgi_deploy.values.engine import EngineSettings, MemoryBudget, StartupPhase
from tgi_deploy.values.quality import QualityClass
from tgi_deploy.values.request import Limit, Market, Metric, Request
from tgi_deploy.values.serving import Access, Metrics
from tgi_deploy.values.supply import CostLine, Offer


class Span(Value, frozen=True, kw_only=True):
    """An 80 % interval: one measured value in ten lies below `low`, one in ten above `high`."""

    low: float
    high: float


class UsdSpan(Value, frozen=True, kw_only=True):
    """The same of money."""

    low: Decimal
    high: Decimal


class Performance(Value, frozen=True, kw_only=True):
    """Predicted speed at the requested load, all replicas together: medians, with 80 % intervals where they are known.

    `saturation_concurrency` is the largest number of requests that run at once in one replica. Prices of tokens are at
    `utilisation`, the share of the time at that load; blended ones count tokens in and out alike.
    """

    ttft_ms: float
    tpot_ms: float
    output_tokens_per_s: float
    usd_per_million_output_tokens: Decimal | None = None
    tokens_per_s_per_user: float | None = None
    saturation_concurrency: int | None = None
    ttft_ms_span: Span | None = None
    tpot_ms_span: Span | None = None
    output_tokens_per_s_span: Span | None = None
    usd_per_million_output_tokens_span: UsdSpan | None = None
    usd_per_million_blended_tokens: Decimal | None = None
    utilisation: float = 1.0
    ttft_ms_p95: float | None = None
    tpot_ms_p95: float | None = None


class Cost(Value, frozen=True, kw_only=True):
    lines: tuple[CostLine, ...]

    @property
    def usd_per_hour(self) -> Decimal:
        return sum((line.usd_per_hour for line in self.lines), start=self.lines[0].usd_per_hour * 0)


class EngineRun(Value, frozen=True, kw_only=True):
    """The engine of a candidate: what it is set to by meaning, its finished container, its start, how it is watched.

    `port` is where the container's own is published.
    """

    name: str
    version: str
    settings: EngineSettings
    container: Container
    startup: tuple[StartupPhase, ...]
    metrics: Metrics
    access: Access
    port: int


class Storage(Document, frozen=True, kw_only=True):
    """Where weights and images go. `weights_on_nvme`: instance store, gone with the machine."""

    root_volume_gib: int
    weights_on_nvme: bool
    weights_bytes: int
    image_bytes: int


class Rejection(Value, frozen=True, kw_only=True):
    """Why a configuration does not work: more than a `Problem`, since it names the configuration and its price.

    `numbers` are the values compared, keys with units. `code` is the most fundamental failure, `codes` all of them in
    check order; `offers` counts the (region, market) pairs rejected alike, of which `region`, `market` and
    `usd_per_hour` name the cheapest.
    """

    instance_type: str
    num_shard: int
    quantize: str
    code: str
    message: str
    numbers: Mapping[str, Any]
    codes: tuple[str, ...]
    region: str | None
    market: Market
    usd_per_hour: Decimal | None
    offers: int = 1
    replicas: int = 1


class LimitOutcome(Value, frozen=True, kw_only=True):
    """A limit beside what is predicted. `chance` is the probability that what will be measured keeps it."""

    limit: Limit
    predicted: float
    chance: float
    met: bool


class Candidate(Value, frozen=True, kw_only=True):
    """An offer with shards, replicas, quantization and engine settings that works."""

    offer: Offer
    num_shard: int
    quantize: str
    dtype: str
    lost_bits: float
    cost: Cost
    memory: MemoryBudget
    performance: Performance
    engine: EngineRun
    storage: Storage
    quality: QualityClass
    replicas: int = 1
    machines: int = 1
    outcomes: tuple[LimitOutcome, ...] = ()

    @property
    def rent_usd_per_hour(self) -> Decimal | None:
        """Return all that is billed by the hour; None for a machine of one's own."""
        return None if self.offer.market == "owned" else self.cost.usd_per_hour


class Bearing(Document, frozen=True, kw_only=True):
    """The most that one replica of the choice takes within the service level, and what would be missed beyond it.

    `requests` at once, or `arrivals_per_s`; both None where even the least misses it.
    """

    requests: int | None
    arrivals_per_s: float | None
    bound_by: Metric | None


class FrontierPoint(Document, frozen=True, kw_only=True):
    """A candidate that no other beats in price, tokens a second, both latencies and quality at once."""

    instance_type: str
    region: str
    market: Market
    accelerator: str
    num_shard: int
    replicas: int
    machines: int
    quantize: str
    quality_class: QualityClass
    total_usd_per_hour: Decimal
    output_tokens_per_s: float
    ttft_ms: float
    tpot_ms: float
    chosen: bool
    knee: bool


class Neighbor(Document, frozen=True, kw_only=True):
    """What a little more or less certainty costs: a candidate beside the choice."""

    point: FrontierPoint
    chance: float


class NearMiss(Value, frozen=True, kw_only=True):
    """A relaxation of the request that would have worked: `option` is ready to paste."""

    code: str
    message: str
    option: str
    candidate: Candidate


class Plan(Value, frozen=True, kw_only=True):
    """What to run and why: the choice, ordered fallbacks, every rejection, and what was assumed.

    `spare_usd_per_hour` is what one machine more would cost, of several replicas.
    """

    request: Request
    chosen: Candidate
    fallbacks: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    considered: int
    assumptions: tuple[str, ...]
    notices: tuple[str, ...]
    catalogue_date: str
    alternatives: tuple[Candidate, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    bearing: Bearing | None = None
    cheaper: Neighbor | None = None
    surer: Neighbor | None = None
    spare_usd_per_hour: Decimal | None = None


class NoFeasiblePlan(Value, frozen=True, kw_only=True):
    """Nothing works: every rejection, and the smallest single changes that would."""

    request: Request
    rejections: tuple[Rejection, ...]
    near_misses: tuple[NearMiss, ...]
    considered: int
    catalogue_date: str
