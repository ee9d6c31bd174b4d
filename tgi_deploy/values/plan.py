"""Plans: what to run and why. Names include units; money is `Decimal` US dollars; bytes are integers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from tgi_deploy.errors import NoFeasiblePlanError
from tgi_deploy.values.base import Document, Value
from tgi_deploy.values.container import Container
from tgi_deploy.values.engine import EngineSettings, MemoryBudget, StartupPhase
from tgi_deploy.values.quality import QualityClass
from tgi_deploy.values.request import Limit, Market, Metric, Request
from tgi_deploy.values.serving import Access, Metrics
from tgi_deploy.values.supply import CostLine, Offer

# Prefixes of rejections that no change of the request resolves, the most surprising first.
_UNALTERABLE: Final = ("arch_flash_attention", "arch_", "vendor_", "host_", "accelerator_")


class Span(Value, frozen=True, kw_only=True):
    """An 80 % interval: 10 % of measured values are below `low`, 10 % above `high`."""

    low: float
    high: float


class UsdSpan(Value, frozen=True, kw_only=True):
    """An 80 % interval of a price."""

    low: Decimal
    high: Decimal


class Performance(Value, frozen=True, kw_only=True):
    """Predicted speed at the requested load over all replicas: medians, with 80 % intervals if known.

    `saturation_concurrency` is the largest number of requests that run at once in one replica. Token prices are at
    `utilization`, the share of time at that load; blended ones weight input and output tokens equally.
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
    utilization: float = 1.0
    ttft_ms_p95: float | None = None
    tpot_ms_p95: float | None = None


class Cost(Value, frozen=True, kw_only=True):
    lines: tuple[CostLine, ...]

    @property
    def usd_per_hour(self) -> Decimal:
        return sum((line.usd_per_hour for line in self.lines), start=self.lines[0].usd_per_hour * 0)


class EngineRun(Value, frozen=True, kw_only=True):
    """The engine of a candidate: settings, container, startup phases and metrics.

    `port` is the published port.
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
    """Storage of weights and images. `weights_on_nvme`: on the instance store, which is lost with the machine."""

    root_volume_gib: int
    weights_on_nvme: bool
    weights_bytes: int
    image_bytes: int


class Rejection(Value, frozen=True, kw_only=True):
    """Why a configuration does not work. In addition to a `Problem`, it has the configuration and its price.

    `numbers` are the compared values, keys with units. `code` is the most fundamental failure, `codes` all of them in
    check order; `offers` counts the (region, market) pairs with the same rejection; `region`, `market` and
    `usd_per_hour` are those of the cheapest.
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

    @property
    def distance(self) -> tuple[Any, ...]:
        """The sort key, nearest first: unresolvable ones last, then by number of reasons, price and missing memory."""
        price = self.usd_per_hour
        unalterable = (rank for rank, prefix in enumerate(_UNALTERABLE, start=1) if self.code.startswith(prefix))
        return (
            next(unalterable, 0),
            len(self.codes),
            price is None,
            price or 0,
            self.numbers.get("short_bytes", 0),
            self.quantize != "none",
            self.num_shard,
            self.code,
        )


class LimitOutcome(Value, frozen=True, kw_only=True):
    """A limit with its prediction. `chance` is the probability that the measured value meets it."""

    limit: Limit
    predicted: float
    chance: float
    met: bool


class Candidate(Value, frozen=True, kw_only=True):
    """A working offer with shards, replicas, quantization and engine settings.

    `most_usd_per_hour`: everything billed at the largest size, where the number of replicas changes by itself.
    `streaming_only`: a service would end the longest planned answer before it is complete, unless it is streamed.
    """

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
    most_usd_per_hour: Decimal | None = None
    streaming_only: bool = False

    @property
    def rent_usd_per_hour(self) -> Decimal | None:
        """The hourly bill, at the largest size with autoscaling; None for an owned machine."""
        return None if self.offer.market == "owned" else self.most_usd_per_hour or self.cost.usd_per_hour


class ReplicaLoad(Document, frozen=True, kw_only=True):
    """The maximum load of one replica within the service level, and the limit that is missed beyond it.

    Concurrent `requests`, or `arrivals_per_s`; both None if even the smallest load misses it.
    """

    requests: int | None
    arrivals_per_s: float | None
    bound_by: Metric | None


class FrontierPoint(Document, frozen=True, kw_only=True):
    """A Pareto-optimal candidate by price, tokens per second, both latencies and quality."""

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
    price_date: str = ""
    estimated: bool = False


class Neighbor(Document, frozen=True, kw_only=True):
    """The candidate at a slightly higher or lower confidence."""

    point: FrontierPoint
    chance: float


class NearMiss(Value, frozen=True, kw_only=True):
    """A relaxation of the request that would work: `option` is ready to paste."""

    code: str
    message: str
    option: str
    candidate: Candidate


class Plan(Value, frozen=True, kw_only=True):
    """What to run and why: the choice, ordered fallbacks, all rejections, and the assumptions.

    `spare_usd_per_hour` is the price of one more machine, if there are several replicas.
    """

    request: Request
    chosen: Candidate
    fallbacks: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    considered: int
    assumptions: tuple[str, ...]
    notices: tuple[str, ...]
    catalog_date: str
    alternatives: tuple[Candidate, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    replica_load: ReplicaLoad | None = None
    cheaper: Neighbor | None = None
    safer: Neighbor | None = None
    spare_usd_per_hour: Decimal | None = None


class NoFeasiblePlan(Value, frozen=True, kw_only=True):
    """Nothing works: all rejections, and the smallest changes of the request that would help."""

    request: Request
    rejections: tuple[Rejection, ...]
    near_misses: tuple[NearMiss, ...]
    considered: int
    catalog_date: str


class NoPlanError(NoFeasiblePlanError):
    """Nothing in the catalog meets the request. `commands` are the near misses of `made`, in order, to be pasted."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str,
        data: Mapping[str, Any],
        made: NoFeasiblePlan,
        commands: tuple[str, ...],
    ) -> None:
        super().__init__(code, message, hint=hint, data=data)
        self.made, self.commands = made, commands
