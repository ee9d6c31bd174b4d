"""Plans: what to run and why. Units stand in names; money is `Decimal` US dollars; bytes are integers."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tgi_deploy.values.base import Document, Value
from tgi_deploy.values.container import Container
from tgi_deploy.values.engine import EngineSettings, MemoryBudget, StartupPhase
from tgi_deploy.values.request import Market, Request
from tgi_deploy.values.serving import Access, Metrics
from tgi_deploy.values.supply import Offer


class Span(Value, frozen=True, kw_only=True):
    """An 80 % interval: one measured value in ten lies below `low`, one in ten above `high`."""

    low: float
    high: float


class UsdSpan(Value, frozen=True, kw_only=True):
    """The same of money."""

    low: Decimal
    high: Decimal


class Performance(Value, frozen=True, kw_only=True):
    """Predicted speed at the requested concurrency: medians, with 80 % intervals where they are known.

    `saturation_concurrency` is the largest number of requests that run at once. Prices of tokens are at
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


class CostLine(Document, frozen=True, kw_only=True):
    item: str
    usd_per_hour: Decimal


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


class Candidate(Value, frozen=True, kw_only=True):
    """An offer with shards, quantization and engine settings that works."""

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


class NearMiss(Value, frozen=True, kw_only=True):
    """A relaxation of the request that would have worked: `option` is ready to paste."""

    code: str
    message: str
    option: str
    candidate: Candidate


class Plan(Value, frozen=True, kw_only=True):
    """What to run and why: the choice, ordered fallbacks, every rejection, and what was assumed."""

    request: Request
    chosen: Candidate
    fallbacks: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    considered: int
    assumptions: tuple[str, ...]
    notices: tuple[str, ...]
    catalogue_date: str


class NoFeasiblePlan(Value, frozen=True, kw_only=True):
    """Nothing works: every rejection, and the smallest single changes that would."""

    request: Request
    rejections: tuple[Rejection, ...]
    near_misses: tuple[NearMiss, ...]
    considered: int
    catalogue_date: str
