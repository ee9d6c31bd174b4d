"""What `plan --sweep` and `plan --why-not` print with `--json`. Keys are a contract (tests pin them)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tgi_deploy.values.base import Value
from tgi_deploy.values.plan_document import Choice, PlannedMemory, PlannedSpeed
from tgi_deploy.values.request import Market
from tgi_deploy.values.supply import CostLine


class SweepRow(Value, frozen=True, kw_only=True):
    """One value of the swept setting: with a choice and its figures, or with a code and a reason."""

    value: str
    chosen: Choice | None
    usd_per_hour: Decimal | None
    performance: PlannedSpeed | None
    kv_capacity_tokens: int | None
    code: str | None
    reason: str | None


class SweepData(Value, frozen=True, kw_only=True):
    """`data` of `plan --sweep`."""

    setting: str
    rows: tuple[SweepRow, ...]


class ReasonData(Value, frozen=True, kw_only=True):
    """Why a configuration does not work. `numbers` are what was compared."""

    code: str
    message: str
    numbers: Mapping[str, Any]


class PriceData(Value, frozen=True, kw_only=True):
    """The price in one region and market; `usd_per_hour` is None where it is not offered."""

    region: str
    market: Market
    usd_per_hour: Decimal | None
    lines: tuple[CostLine, ...]
    within_budget: bool


class ConfigurationData(Value, frozen=True, kw_only=True):
    """One way to run the model on an instance type."""

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
    """One instance type. `rank` is its place among the `ranked`, `decided_by` the rule that put another one first."""

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
    ways: tuple[ConfigurationData, ...]


class WhyNotPage(Value, frozen=True, kw_only=True):
    """The instance types of a name, and the plan's choice for comparison."""

    name: str
    kind: str
    rentable: bool
    chosen: Choice | None
    instance_types: tuple[ExplanationData, ...]


class WhyNotData(Value, frozen=True, kw_only=True):
    """`data` of `plan --why-not`."""

    why_not: WhyNotPage
