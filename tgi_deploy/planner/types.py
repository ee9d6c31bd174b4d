"""The planner's words. Units stand in names; money is `Decimal` US dollars; bytes are integers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from tgi_deploy.values.hardware import ComputeCapability, InstanceType
    from tgi_deploy.values.model import Profile

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
class Flag:
    """One option of the engine's launcher, as its `--help` has it. `kind` is its value's type."""

    name: str
    env: str | None
    kind: str
    values: tuple[str, ...] = ()
    default: Any = None
    switch: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchitectureRule:
    """Whether a release runs on a compute capability. `minimum` ≤ capability ≤ `maximum`."""

    minimum: ComputeCapability
    maximum: ComputeCapability
    verdict: Literal["ok", "refused", "override"]
    code: str = ""
    message: str = ""
    loses: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizationRule:
    """What a quantization method needs and costs in a release.

    `bits` is what a linear layer's weight ends at, before group scales; `group_overhead_bits` is divided by the
    group size. `lost_bits` orders methods by quality: fewer is better.
    """

    method: str
    on_the_fly: bool
    prequantized: bool
    bits: float
    group_overhead_bits: float
    min_compute_capability: ComputeCapability
    shardable: bool = True
    takes_dtype: bool = False
    forces_dtype: str | None = None
    transformers_backend: bool = False
    fused_moe: bool = False
    cuda_graphs: bool = True
    native_fp8_compute: ComputeCapability | None = None
    note: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelClass:
    """How a release serves a `model_type`."""

    model_type: str
    backend: Literal["native", "transformers", "refused"]
    flash: bool = True
    default_dtype: str = "float16"
    shardable: bool = True
    replicated_kv: bool = False
    prefill_chunking: bool = True
    paged_only: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRelease:
    """One pinned version of the engine: image, flags and rules, all data of `profiles/engines/`.

    `request_counters` are those of `metrics_path` that rise with requests and their tokens, and with nothing else.
    `counts_all_devices`: left to itself, it takes `NVIDIA_VISIBLE_DEVICES=all` for all cards, not for one.
    """

    name: str
    version: str
    released: str
    image: str
    image_bytes: int
    flags: Mapping[str, Flag]
    architectures: tuple[ArchitectureRule, ...]
    quantizations: Mapping[str, QuantizationRule]
    model_classes: Mapping[str, ModelClass]
    memory_share: float
    workspace_bytes: int
    chunked_prefill: bool
    default_attention: str
    block_tokens: Mapping[str, int]
    flash_head_dims: tuple[int, ...]
    cache_env: Mapping[str, str]
    cpu_archs: tuple[str, ...]
    notice: str | None = None
    reported_version: str | None = None
    metrics_path: str | None = None
    request_counters: tuple[str, ...] = ()
    counts_all_devices: bool = False

    @property
    def reported_as(self) -> tuple[str, ...]:
        """All that it may call itself: some images were built with another version inside."""
        return tuple(filter(None, (self.version, self.reported_version)))

    def architecture_rule(self, capability: ComputeCapability | None) -> ArchitectureRule | None:
        """Whether it runs on cards of this compute capability; None for a chip without one, or that no rule names."""
        if capability is None:
            return None
        return next((rule for rule in self.architectures if rule.minimum <= capability <= rule.maximum), None)


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
    def required_kv_tokens(self) -> int:
        """Tokens of KV cache the promise needs: one full context, or every request at its promised length."""
        return max(self.context_tokens, self.concurrency * (self.input_tokens + self.output_tokens))


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryBudget:
    """Memory of one accelerator, by parts. The parts add up to `total_bytes` when it fits.

    `reserved_bytes` is the share the engine leaves alone; `kv_cache_bytes` is everything that remains and may be
    negative: then the weights alone do not fit. `context_bytes`, `workspace_bytes`, `graph_bytes` and
    `collective_bytes` are the parts of `overhead_bytes`. `load_peak_bytes` is the most that loading holds.
    `largest_context_tokens` and `largest_concurrency` (at the promised lengths; 0 where none were promised) fit.
    `launcher_prefill_tokens` is the prefill batch that the engine would have chosen by itself.
    """

    total_bytes: int
    reserved_bytes: int
    weights_bytes: int
    activation_bytes: int
    overhead_bytes: int
    kv_cache_bytes: int
    kv_bytes_per_token: int
    kv_capacity_tokens: int
    required_kv_tokens: int
    context_bytes: int = 0
    workspace_bytes: int = 0
    graph_bytes: int = 0
    collective_bytes: int = 0
    load_peak_bytes: int = 0
    largest_context_tokens: int = 0
    largest_concurrency: int = 0
    launcher_prefill_tokens: int | None = None

    @property
    def fits(self) -> bool:
        return self.kv_capacity_tokens >= self.required_kv_tokens and self.load_peak_bytes <= self.total_bytes

    @property
    def margin_bytes(self) -> int:
        """What the KV cache holds beyond the promise; negative where it falls short."""
        return self.kv_cache_bytes - self.required_kv_tokens * self.kv_bytes_per_token


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
class EngineSettings:
    """What the engine is told, by meaning. `planner/engine.py` turns it into flags of the exact release."""

    model_id: str
    revision: str | None
    num_shard: int
    quantize: str | None
    dtype: str | None
    max_input_tokens: int
    max_total_tokens: int
    max_batch_prefill_tokens: int
    max_batch_total_tokens: int
    max_concurrent_requests: int
    cuda_graphs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCommand:
    """A finished command line of the engine: nothing is left for it to guess."""

    name: str
    version: str
    image: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    settings: EngineSettings
    gpus: int
    shm_bytes: int
    port: int
    stop_timeout_s: int
    secret_env: tuple[str, ...] = ()
    metrics_path: str | None = None
    request_counters: tuple[str, ...] = ()


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
    engine: EngineCommand
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
