"""The `--json` output of `plan --sweep`, `plan --why-not`, `render`, `diff` and `predict`.

Keys are a contract (tests pin them).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from tgi_deploy.values.base import Fact, Value
from tgi_deploy.values.plan_document import Choice, PlannedMemory, PlannedSpeed
from tgi_deploy.values.request import Market
from tgi_deploy.values.supply import CostLine


class SweepRow(Value, frozen=True, kw_only=True):
    """One value of the swept option: with a choice and its figures, or with a code and a reason."""

    value: str
    chosen: Choice | None = None
    usd_per_hour: Decimal | None = None
    performance: PlannedSpeed | None = None
    kv_capacity_tokens: int | None = None
    code: str | None = None
    reason: str | None = None


class SweepData(Value, frozen=True, kw_only=True):
    """`data` of `plan --sweep`."""

    setting: str
    rows: tuple[SweepRow, ...]


class ReasonData(Value, frozen=True, kw_only=True):
    """Why a configuration does not work. `numbers` are the values behind the message."""

    code: str
    message: str
    numbers: Mapping[str, Fact]


class PriceData(Value, frozen=True, kw_only=True):
    """The price in one region and market; `usd_per_hour` is None if it is unknown."""

    region: str
    market: Market
    usd_per_hour: Decimal | None
    lines: tuple[CostLine, ...]
    within_budget: bool
    price_date: str = ""
    estimated: bool = False


class ConfigurationData(Value, frozen=True, kw_only=True):
    """One configuration of the model on an instance type."""

    num_shard: int
    quantize: str
    replicas: int
    works: bool
    codes: tuple[str, ...]
    reasons: tuple[ReasonData, ...]
    memory: PlannedMemory
    performance: PlannedSpeed | None
    prices: tuple[PriceData, ...]


class ExplanationData(Value, frozen=True, kw_only=True):
    """One instance type. `rank` is its position among the `ranked`, `decided_by` what put another one first."""

    instance_type: str
    machines: int
    status: str
    accelerator: str
    accelerator_count: int
    verdict: str
    rank: int | None
    ranked: int
    decided_by: str | None
    best: Choice | None
    variants: tuple[ConfigurationData, ...]


class WhyNotPage(Value, frozen=True, kw_only=True):
    """The instance types with a name, and the plan's choice for comparison."""

    name: str
    kind: str
    rentable: bool
    chosen: Choice | None
    instance_types: tuple[ExplanationData, ...]


class WhyNotData(Value, frozen=True, kw_only=True):
    """`data` of `plan --why-not`."""

    why_not: WhyNotPage


class MetricData(Value, frozen=True, kw_only=True):
    """A figure in both plans. `change_percent` is None without an old figure."""

    name: str
    old: Decimal | None
    new: Decimal | None
    change_percent: Decimal | None


class CheckData(Value, frozen=True, kw_only=True):
    """One limit with its result. `message` includes the numbers."""

    name: str
    passed: bool
    message: str


class ChangeData(Value, frozen=True, kw_only=True):
    """A field of the plan that differs, with both values."""

    field: str
    old: Fact
    new: Fact


class Comparison(Value, frozen=True, kw_only=True):
    """Two plans compared. `promises` are options that differ: figures of different requests are not comparable.

    `old_prices` and `new_prices` are the dates of the prices, as `listed 2026-07-20`; empty without prices.
    """

    promises: tuple[ChangeData, ...]
    metrics: tuple[MetricData, ...]
    changes: tuple[ChangeData, ...]
    checks: tuple[CheckData, ...]
    old_prices: str = ""
    new_prices: str = ""

    @property
    def failed(self) -> tuple[CheckData, ...]:
        return tuple(check for check in self.checks if not check.passed)


class DiffData(Value, frozen=True, kw_only=True):
    """`data` of `diff`."""

    diff: Comparison


class FiguresData(Value, frozen=True, kw_only=True):
    """A median with its 80 % interval."""

    median: float
    low: float
    high: float


class PredictionData(Value, frozen=True, kw_only=True):
    """`data` of `predict`: a configuration, what fits in its memory, and its speed."""

    model: str
    accelerator: str
    num_shard: int
    interconnect: str
    weights: str
    kv: str
    engine: str
    engine_profile: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    fits: bool
    kv_capacity_tokens: int
    ttft_ms: FiguresData
    tpot_ms: FiguresData
    tokens_per_s_per_user: FiguresData
    output_tokens_per_s: FiguresData
    saturation_concurrency: int | None


class CasesData(Value, frozen=True, kw_only=True):
    """`data` of `predict --cases`: for each row `value`, `low` and `high`, which are None if there is an `error`."""

    predictions: tuple[Mapping[str, float | str | None], ...]


class ArtifactData(Value, frozen=True, kw_only=True):
    """A rendered text with its SHA-256 in hexadecimal. `out` is the file that it was written to."""

    kind: str
    file_name: str
    text: str
    sha256: str
    out: str | None = None


class RenderData(Value, frozen=True, kw_only=True):
    """`data` of `render`."""

    artifact: ArtifactData
