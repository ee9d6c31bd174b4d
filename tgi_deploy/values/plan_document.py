"""Plans as printed with `--json` and stored in records and lock files. Keys are a contract (tests pin them).

Fields with a default were added after the first release, whose records and locks lack them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Literal

from msgspec import UnsetType

from tgi_deploy.values.base import UNSET, Document, Fact, Value
from tgi_deploy.values.owned import Owned
from tgi_deploy.values.plan import FrontierPoint, Neighbor, ReplicaLoad, Storage
from tgi_deploy.values.quality import QualityClass
from tgi_deploy.values.request import Market, Metric, RequestDocument
from tgi_deploy.values.supply import CostLine, Elsewhere


class PlannedModel(Document, frozen=True, kw_only=True):
    """`served_id` is what the engine loads, a hub id or a folder."""

    id: str
    profile: str
    served_id: str
    params: int
    weights_bytes: int
    model_type: str
    dtype: str
    max_position_embeddings: int
    gated: bool
    license: str | None
    notice: str | None


class Choice(Document, frozen=True, kw_only=True):
    """A candidate's summary. `usd_per_hour` is the machine's price; `estimated` where it is not listed, as for spot.

    `streaming_only`: the longest planned answers have to be streamed, because a whole one would be ended too early.
    """

    instance_type: str
    region: str
    market: Market
    accelerator: str
    accelerator_count: int
    num_shard: int
    quantize: str
    dtype: str
    usd_per_hour: Decimal | None
    total_usd_per_hour: Decimal
    quality_class: QualityClass | None = None
    replicas: int = 1
    machines: int = 1
    engine: str | None = None
    output_tokens_per_s: float | None = None
    price_date: str = ""
    estimated: bool = False
    streaming_only: bool = False


class PlannedCredits(Document, frozen=True, kw_only=True):
    """How long credits last: the hours of this bill if nothing else uses them, at most until that day.

    The plan's prices are before credits; `first_month_usd` is the rest to pay for the first 730 hours.
    """

    usd: Decimal
    until: date
    covers_hours: Decimal
    first_month_usd: Decimal
    source: str


class PlannedCost(Document, frozen=True, kw_only=True):
    usd_per_hour: Decimal
    usd_per_month: Decimal | None = None
    lines: tuple[CostLine, ...]
    credits: PlannedCredits | None = None


class AcceleratorMemory(Document, frozen=True, kw_only=True):
    total_bytes: int
    weights_bytes: int
    kv_cache_bytes: int
    activation_bytes: int
    overhead_bytes: int
    reserved_bytes: int


class MemoryOverhead(Document, frozen=True, kw_only=True):
    context_bytes: int
    workspace_bytes: int
    cuda_graphs_bytes: int
    collectives_bytes: int


class PlannedMemory(Document, frozen=True, kw_only=True):
    """`launcher_prefill_tokens` is the engine's default prefill batch.

    `margin_bytes` is the KV cache beyond what the engine needs to start, `uncertainty_bytes` the largest observed
    difference between startup logs and the arithmetic: a smaller margin is tight.
    """

    per_accelerator: AcceleratorMemory
    overhead: MemoryOverhead | None = None
    load_peak_bytes: int | None = None
    margin_bytes: int | None = None
    uncertainty_bytes: int | None = None
    largest_context_tokens: int | None = None
    largest_concurrency: int | None = None
    launcher_prefill_tokens: int | None = None
    kv_bytes_per_token: int
    kv_capacity_tokens: int
    required_kv_tokens: int


class PlannedSpeed(Document, frozen=True, kw_only=True):
    """Medians with 80 % intervals."""

    ttft_ms: float
    tpot_ms: float
    output_tokens_per_s: float
    usd_per_million_output_tokens: Decimal | None
    ttft_ms_low: float | None = None
    ttft_ms_high: float | None = None
    tpot_ms_low: float | None = None
    tpot_ms_high: float | None = None
    output_tokens_per_s_low: float | None = None
    output_tokens_per_s_high: float | None = None
    usd_per_million_output_tokens_low: Decimal | None = None
    usd_per_million_output_tokens_high: Decimal | None = None
    usd_per_million_blended_tokens: Decimal | None = None
    utilization: float = 1.0
    ttft_ms_p95: float | None = None
    tpot_ms_p95: float | None = None


class PlannedPhase(Document, frozen=True, kw_only=True):
    phase: str
    expected_s: int
    deadline_s: int
    stall_s: int = 0


class PlannedEngine(Document, frozen=True, kw_only=True):
    name: str
    version: str
    image: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    gpus: int
    shm_bytes: int
    port: int
    max_input_tokens: int
    max_total_tokens: int


class PlannedBreakeven(Document, frozen=True, kw_only=True):
    """A fallback, and the `utilization` from which the more expensive of the two costs less per token.

    `more_expensive` is None in a plan file that an earlier version wrote.
    """

    instance_type: str
    region: str
    market: Market
    num_shard: int
    quantize: str
    usd_per_million_output_tokens: Decimal | None
    more_expensive: Literal["chosen", "fallback"] | None = None
    utilization: float | None


class PlannedInterruptions(Document, frozen=True, kw_only=True):
    """A spot price including interruptions, as a range. `band` is the provider's.

    The price is per hour of service of all machines: restarts after interruptions are billed without serving.
    """

    band: str
    per_month: Decimal
    per_month_low: Decimal
    per_month_high: Decimal
    restart_s: int
    served_usd_per_hour: Decimal
    served_usd_per_hour_low: Decimal
    served_usd_per_hour_high: Decimal
    usd_per_million_output_tokens: Decimal
    source: str
    date: str


class PlannedLimit(Document, frozen=True, kw_only=True):
    """A speed limit with its prediction; `default` if the user did not set it."""

    metric: Metric
    limit: float
    default: bool
    predicted: float
    chance: float
    met: bool


class PlannedServiceLevel(Document, frozen=True, kw_only=True):
    """All limits, the maximum load of one replica within them, and the price of more or less confidence.

    `spare_usd_per_hour` is the price of one more machine, if there are several replicas.
    """

    met: bool
    chance: float
    confidence: float
    limits: tuple[PlannedLimit, ...]
    one_replica: ReplicaLoad | None
    cheaper: Neighbor | None
    safer: Neighbor | None
    spare_usd_per_hour: Decimal | None = None


class PlanDocument(Document, frozen=True, kw_only=True):
    """A rejection has the numbers of its reason as additional keys. Records omit rejections."""

    model: PlannedModel
    requirements: RequestDocument
    chosen: Choice
    cost: PlannedCost
    memory: PlannedMemory
    performance: PlannedSpeed
    storage: Storage
    time_to_ready: tuple[PlannedPhase, ...]
    engine: PlannedEngine
    quality_class: QualityClass | None = None
    slo: PlannedServiceLevel | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    alternatives: tuple[Choice, ...] = ()
    fallbacks: tuple[Choice, ...]
    breakeven: tuple[PlannedBreakeven, ...] = ()
    interruptions: PlannedInterruptions | None = None
    rejections: tuple[Mapping[str, Fact], ...] = ()
    considered: int
    assumptions: tuple[str, ...]
    notices: tuple[str, ...]
    catalog_date: str


class NearMissData(Value, frozen=True, kw_only=True):
    """A minimal change of options that would help, and the choice that it leads to."""

    code: str
    message: str
    option: str
    chosen: Choice


class LockedModel(Document, frozen=True, kw_only=True):
    id: str
    revision: str | None
    config_sha256: str


class LockedEngine(Document, frozen=True, kw_only=True):
    name: str
    version: str
    image: str


class LockedCatalog(Document, frozen=True, kw_only=True):
    date: str
    sha256: str


class LockData(Value, frozen=True, kw_only=True):
    """What a lock is based on, with hashes of the model's shape and of the figures used."""

    model: LockedModel
    engine: LockedEngine
    catalog: LockedCatalog


class FilesData(Value, frozen=True, kw_only=True):
    """The written pictures of the plan."""

    report: str | UnsetType = UNSET


class PlanData(Value, frozen=True, kw_only=True):
    """`data` of `plan`.

    `elsewhere` has other clouds' list prices for the same accelerators (--explain), `own` the costs of owned hardware
    (--own), `lock` the basis of a lock (--locked), `files` the written pictures.
    """

    plan: PlanDocument
    elsewhere: tuple[Elsewhere, ...] | UnsetType = UNSET
    own: Owned | UnsetType = UNSET
    lock: LockData | UnsetType = UNSET
    files: FilesData | UnsetType = UNSET
