"""Values exchanged with engines: releases, schemes, a configuration and how it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from tgi_deploy.errors import Problem
from tgi_deploy.values.base import Fact, Value
from tgi_deploy.values.container import HostAccess
from tgi_deploy.values.hardware import Accelerator, ComputeCapability, InstanceType
from tgi_deploy.values.model import ModelSpec

FlagKind = Literal[
    "bool", "enum", "float", "int", "json", "list[int]", "list[string]", "list[uint]", "string", "uint", "uint16",
    "uint32", "uint64",
]  # fmt: skip

UNQUANTIZED: Final = "none"
AUTO: Final = "auto"


class Flag(Value, frozen=True, kw_only=True):
    """One option of an engine's command line. `kind` is its value's type, `env` the equivalent variable."""

    name: str
    env: str | None = None
    kind: FlagKind
    values: tuple[str, ...] = ()
    default: Fact = None
    switch: bool = False


class ArchitectureRule(Value, frozen=True, kw_only=True):
    """Whether a release runs on a compute capability. `minimum` ≤ capability ≤ `maximum`."""

    minimum: ComputeCapability
    maximum: ComputeCapability
    verdict: Literal["ok", "refused", "override"]
    code: str = ""
    message: str = ""
    loses: str = ""
    env: Mapping[str, str] = {}
    source: str = ""


class Release(Value, frozen=True, kw_only=True):
    """One pinned version of an engine. Engine-specific data is in subclasses.

    `needs_root`: only root can start the programs in its image.
    """

    name: str
    version: str
    released: str | None = None
    image: str
    image_bytes: int
    flags: Mapping[str, Flag]
    architectures: tuple[ArchitectureRule, ...]
    cpu_archs: tuple[str, ...]
    notice: str | None = None
    reported_version: str | None = None
    host: HostAccess | None = None
    needs_root: bool = False

    @property
    def reported_as(self) -> tuple[str, ...]:
        """All versions that it may report: some images contain another version."""
        return tuple(filter(None, (self.version, self.reported_version)))

    @property
    def methods(self) -> tuple[str, ...]:
        """The quantization methods that it can serve."""
        return ()

    @property
    def reserved_env(self) -> frozenset[str]:
        """Variables that the engine's container sets, other than those of flags."""
        return frozenset()

    def on(self, chip: Accelerator) -> Release:  # noqa: ARG002 -- for engines with other images for other chips
        """Return the release with the chip's image. Without `host` that is the CUDA image."""
        return self

    def architecture_rule(self, capability: ComputeCapability | None) -> ArchitectureRule | None:
        """Return the rule for this compute capability, or None."""
        if capability is None:
            return None
        return next((rule for rule in self.architectures if rule.minimum <= capability <= rule.maximum), None)


class Scheme(Value, frozen=True, kw_only=True):
    """A format in which to serve the weights.

    `bits` is the size of a linear layer's weight, with group scales; `lost_bits` counts whole bits removed from the
    checkpoint's precision: scales are overhead, not quality. `recast`: activations leave the checkpoint's 16-bit type.
    `method` is None for a 16-bit checkpoint served unchanged, and for a method unknown to the release. `native_fp8` is
    the compute capability from which it multiplies in 8 bits. Without `fused_experts` no kernel routes tokens to packed
    experts; with `packs_head` the head is packed like the layers. Ties go to the lower `after`. `intermediate_size` is
    that of a padded copy.
    """

    name: str
    hub_id: str
    bits: float
    lost_bits: float
    prequantized: bool
    recast: bool = False
    method: str | None = None
    group_size: int | None = None
    known: bool = True
    cuda_graphs: bool = True
    native_fp8: ComputeCapability | None = None
    fused_experts: bool = True
    packs_head: bool = False
    intermediate_size: int | None = None
    after: int = 0

    @property
    def order_name(self) -> str:
        """The tie-breaking key: `after` first, then methods that keep the checkpoint's 16-bit type."""
        return f"{self.after} {self.recast:d} {self.name}"


class Load(Value, frozen=True, kw_only=True):
    """The planned load: tokens per request, concurrent requests, and the longest request.

    The KV cache must hold the longest request. As many others run as fit, and the rest wait.
    """

    input_tokens: int
    output_tokens: int
    concurrency: int
    context_tokens: int

    @property
    def request_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Pins(Value, frozen=True, kw_only=True):
    """Flags (`--name` → value) and variables that the user set."""

    flags: Mapping[str, str] = {}
    env: Mapping[str, str] = {}

    @classmethod
    def of(cls, flags: tuple[tuple[str, str], ...], env: tuple[tuple[str, str], ...] = ()) -> Pins:
        """Return them with full flag names. The last one with a name wins."""
        return cls(
            flags={"--" + name.removeprefix("--").replace("_", "-"): value for name, value in flags}, env=dict(env)
        )


class Case(Value, frozen=True, kw_only=True):
    """One configuration to judge. `allow_turing`: the user accepts what the release can't do on that architecture.

    `prefill_tokens`: the maximum of prompt tokens per step; None: as many as leave room for the promise.
    `variables_only`: the container gets no arguments.
    """

    model: ModelSpec
    hardware: InstanceType
    num_shard: int
    scheme: Scheme
    load: Load
    pins: Pins
    release: Release
    allow_turing: bool = False
    prefill_tokens: int | None = None
    variables_only: bool = False


class EngineSettings(Value, frozen=True, kw_only=True):
    """Engine settings by meaning; the engine turns them into flags of the exact release.

    `default_prefill_tokens` is the release's default prefill batch, if it has one.
    """

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
    default_prefill_tokens: int | None = None


class MemoryBudget(Value, frozen=True, kw_only=True):
    """Memory of one accelerator, by parts, which add up to `total_bytes` if it fits.

    `reserved_bytes` is the share that the engine does not use; `kv_cache_bytes` is the rest and is negative if the
    weights don't fit. `context_bytes`, `workspace_bytes`, `graph_bytes` and `collective_bytes` are the parts of
    `overhead_bytes`. `load_peak_bytes` is the peak while loading. `largest_context_tokens` and `largest_concurrency`
    (at the planned lengths; 0 without a promise) are the maxima that fit. `uncertainty_bytes` is the largest observed
    difference between startup logs and this arithmetic.
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
    uncertainty_bytes: int = 0
    startup_kv_tokens: int = 0

    @property
    def fits(self) -> bool:
        return self.kv_capacity_tokens >= self.required_kv_tokens and self.load_peak_bytes <= self.total_bytes

    @property
    def margin_bytes(self) -> int:
        """KV cache beyond what the engine needs to start; negative if it falls short.

        Requests that wait for lack of room don't count: they don't prevent the start.
        """
        return self.kv_cache_bytes - (self.startup_kv_tokens or self.required_kv_tokens) * self.kv_bytes_per_token

    @property
    def tight(self) -> bool:
        """Whether the margin is smaller than the uncertainty."""
        return self.fits and self.margin_bytes < self.uncertainty_bytes


class Scheduling(Value, frozen=True, kw_only=True):
    """Engine inputs of a speed prediction besides the constants: a profile's name, and settings.

    `prefill_tokens` is the maximum of prompt tokens per step; None: the engine's default. Requests that arrive while
    others run start after `waiting_steps`, unless many do. For a mixture of experts, `runs_all_experts` means that
    every token uses every expert, `loops_over_experts` that the host calls them one by one. The host launches
    `layer_products` matrix products a layer.
    """

    profile: str
    cuda_graphs: bool = True
    kv_bits: int = 16
    prefill_tokens: int | None = None
    waiting_steps: int = 0
    runs_all_experts: bool = False
    loops_over_experts: bool = False
    layer_products: int = 4


class Fit(Value, frozen=True, kw_only=True):
    """A configuration as the engine would run it, with all reasons for rejection, the most fundamental first.

    `smaller_prefills`: other values for `Case.prefill_tokens`, the largest first; empty without chunked prefill, or if
    the user pins it.
    """

    case: Case
    settings: EngineSettings
    dtype: str
    memory: MemoryBudget
    scheduling: Scheduling
    problems: tuple[Problem, ...]
    smaller_prefills: tuple[int, ...] = ()


class Rates(Value, frozen=True, kw_only=True):
    """Seconds that a host takes to download and store the weights, and to read them again."""

    weights_bytes: int
    download_s: float
    read_s: float


class StartupPhase(Value, frozen=True, kw_only=True):
    """A phase between the container's start and the first answer.

    It may be silent for `step_s`, its longest single step, and for `silent_s`, the longest gap in the engine's log. Its
    deadline is at least `floor_s`. `amount_mb` is its download size.
    """

    phase: str
    expected_s: float
    floor_s: float
    silent_s: float
    step_s: float = 0.0
    amount_mb: float = 0.0


class RequestEdit(Value, frozen=True, kw_only=True):
    """A pinned flag, without its dashes, and its value."""

    flag: str
    value: str


class DefaultRun(Value, frozen=True, kw_only=True):
    """A model on an engine with default settings, as in published measurements.

    `bits` are those of a linear layer's weight, `share` is the engine's share of the memory, and `prefill_tokens` the
    batch for releases without a default.
    """

    model: ModelSpec
    bits: float
    num_shard: int
    accelerator: str
    total_bytes: int
    share: float
    prefill_tokens: int
