"""The planner's words. Units stand in names; money is `Decimal` US dollars; bytes are integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tgi_deploy.values.engine import Load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from tgi_deploy.values.container import Container
    from tgi_deploy.values.engine import EngineSettings, MemoryBudget, StartupPhase
    from tgi_deploy.values.hardware import InstanceType
    from tgi_deploy.values.model import Profile
    from tgi_deploy.values.serving import Access, Metrics

Market = Literal["on-demand", "spot", "owned"]
Preference = Literal["quality", "cost", "speed", "value"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """An instance type in a region and market. No price means unknown (or owned): never free."""

    instance_type: InstanceType
    region: str
    market: Market
    usd_per_hour: Decimal | None
    price_source: str = ""
    price_date: str = ""
    estimated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraPrices:
    """What a region bills beside the instance."""

    gp3_usd_per_gib_month: Decimal
    public_ipv4_usd_per_hour: Decimal
    estimated: bool
    source: str
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirements:
    """The wish, complete with defaults. `budget_usd_per_hour` covers everything billed by the hour.

    `min_tokens_per_s` is of output tokens, of all requests together. `utilisation` prices tokens: the share of the
    time, above 0 and at most 1, at which the machine carries this load; it idles, and bills, for the rest.
    `disk_gib`: the root volume is at least this big. `env` goes to the engine beside what it is given anyway.
    """

    model: Profile
    engine_version: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    context_tokens: int
    budget_usd_per_hour: Decimal | None = None
    prefer: Preference = "quality"
    quantize: str = "auto"
    num_shard: int | None = None
    instance_type: str | None = None
    hardware: str | None = None
    regions: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ("on-demand",)
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    min_tokens_per_s: float | None = None
    utilisation: float = 1.0
    allow_turing: bool = False
    flags: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    disk_gib: int | None = None
    port: int = 8080
    public_ipv4: bool = True

    @property
    def load(self) -> Load:
        return Load(
            input_tokens=self.input_tokens, output_tokens=self.output_tokens, concurrency=self.concurrency,
            context_tokens=self.context_tokens,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """An 80 % interval: one measured value in ten lies below `low`, one in ten above `high`."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class UsdSpan:
    """The same of money."""

    low: Decimal
    high: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class Performance:
    """Predicted speed at the wished concurrency: medians, with 80 % intervals where they are known.

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


@dataclass(frozen=True, kw_only=True, slots=True)
class CostLine:
    item: str
    usd_per_hour: Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    lines: tuple[CostLine, ...]

    @property
    def usd_per_hour(self) -> Decimal:
        return sum((line.usd_per_hour for line in self.lines), start=self.lines[0].usd_per_hour * 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRun:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """Where weights and images go. `weights_on_nvme`: instance store, gone with the machine."""

    root_volume_gib: int
    weights_on_nvme: bool
    weights_bytes: int
    image_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """Why a configuration is not it. `numbers` are the values compared, keys with units.

    `code` is the most fundamental failure, `codes` all of them in check order; `offers` counts the (region, market)
    pairs refused alike, of which `region`, `market` and `usd_per_hour` name the cheapest.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class NearMiss:
    """A relaxation of the wish that would have worked: `option` is ready to paste."""

    code: str
    message: str
    option: str
    candidate: Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to run and why: the choice, ordered fallbacks, every refusal, and what was assumed."""

    requirements: Requirements
    chosen: Candidate
    fallbacks: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    considered: int
    assumptions: tuple[str, ...]
    notices: tuple[str, ...]
    catalogue_date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPlan:
    """Nothing works: every refusal, and the smallest single changes that would."""

    requirements: Requirements
    rejections: tuple[Rejection, ...]
    near_misses: tuple[NearMiss, ...]
    considered: int
    catalogue_date: str
