"""The user's request."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from tgi_deploy.values.base import Document, Value
from tgi_deploy.values.engine import Load
from tgi_deploy.values.model import Profile
from tgi_deploy.values.quality import QualityFloor

Market = Literal["on-demand", "spot", "owned"]
Preference = Literal["cost", "quality", "speed", "value"]
Metric = Literal["ttft_ms", "tpot_ms", "output_tokens_per_s"]
ServiceLevel = Literal["default", "none"]

# Acceptable for reading along: the first word within two seconds, then faster than reading speed.
DEFAULT_TTFT_MS: Final = 2000.0
DEFAULT_TPOT_MS: Final = 80.0


class Lengths(Value, frozen=True, kw_only=True):
    """Lengths of prompts or answers, in tokens: the mean and, if known, the 95th percentile."""

    mean: int
    p95: int | None = None
    most: int


class RecordedLoad(Value, frozen=True, kw_only=True):
    """The load in a file of past requests. `arrivals_per_s` is the 95th percentile over its minutes."""

    requests: int
    skipped: int
    seconds: float
    arrivals_per_s: float
    input_tokens: Lengths
    output_tokens: Lengths


class Replicas(Value, frozen=True, kw_only=True):
    """The allowed number of replicas. `most` is None by default: as few as needed, within the target's limits."""

    least: int = 1
    most: int | None = None

    @property
    def varies(self) -> bool:
        """Whether it is a range, within which targets with autoscaling follow the load."""
        return self.most is not None and self.most > self.least

    @property
    def words(self) -> str:
        """The form of `--replicas`."""
        return "auto" if self.most is None else f"{self.least}..{self.most}" if self.varies else str(self.least)


class Limit(Value, frozen=True, kw_only=True):
    """A speed limit. Missing one that the user set rejects a configuration; missing a `default` one is reported."""

    metric: Metric
    value: float
    default: bool


class RequestTerms(Document, frozen=True, kw_only=True):
    """Fields shared by a request and its document. `budget_usd_per_hour` covers everything billed by the hour.

    `min_tokens_per_s` counts output tokens over all requests. `utilization` is for token prices: the share of time,
    above 0 and at most 1, at this load; the rest is billed idle time. `disk_gib` is the minimum root volume. `env` adds
    variables for the engine.

    Load is `concurrency` requests in flight, or `arrivals_per_s`; `concurrency` is then the number in flight when the
    service level is just met. Lengths are means; `input_p95` and `output_p95` are the 95th percentiles, if known. A
    speed limit is met if its probability is at least `confidence`.
    """

    model: Any
    engine_version: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    context_tokens: int
    budget_usd_per_hour: Decimal | None = None
    prefer: Preference = "cost"
    quantize: str = "auto"
    num_shard: int | None = None
    instance_type: str | None = None
    hardware: str | None = None
    regions: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ("on-demand",)
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    min_tokens_per_s: float | None = None
    utilization: float = 1.0
    allow_turing: bool = False
    flags: Any = ()
    env: Any = ()
    disk_gib: int | None = None
    port: int = 8080
    arrivals_per_s: float | None = None
    input_p95: int | None = None
    output_p95: int | None = None
    slo: ServiceLevel = "default"
    confidence: float = 0.5
    quality: QualityFloor = "auto"
    min_bits: int | None = None
    replicas: Replicas = Replicas()
    max_machines: int | None = None
    driver: str | None = None


class Request(RequestTerms, frozen=True, kw_only=True):
    """The user's request, resolved with defaults."""

    model: Profile
    flags: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """All speed limits, including those of the default service level that are not overridden."""
        asked: tuple[tuple[Metric, float | None, float | None], ...] = (
            ("ttft_ms", self.ttft_ms, DEFAULT_TTFT_MS),
            ("tpot_ms", self.tpot_ms, DEFAULT_TPOT_MS),
            ("output_tokens_per_s", self.min_tokens_per_s, None),
        )
        given = [Limit(metric=metric, value=value, default=False) for metric, value, _ in asked if value is not None]
        assumed = [
            Limit(metric=metric, value=default, default=True) for metric, value, default in asked
            if value is None and default is not None and self.slo == "default"
        ]  # fmt: skip
        return (*given, *assumed)

    @property
    def load(self) -> Load:
        return Load(
            input_tokens=self.input_tokens, output_tokens=self.output_tokens, concurrency=self.concurrency,
            context_tokens=self.context_tokens,
        )  # fmt: skip

    @property
    def document(self) -> RequestDocument:
        named = {"model": self.model.name, "flags": dict(self.flags), "env": dict(self.env)}
        terms = {name: getattr(self, name) for name in RequestTerms.__struct_fields__}
        return RequestDocument(**(terms | named))


class RequestDocument(RequestTerms, frozen=True, kw_only=True):
    """A request as printed and recorded, with the model's name."""

    model: str
    flags: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
