"""What is asked of an inference engine, and what it answers: releases, schemes, one configuration and how it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from tgi_deploy.errors import Problem
from tgi_deploy.values.base import Value
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
    """One option of an engine's command line. `kind` is the type of its value, `env` the variable that sets it, too."""

    name: str
    env: str | None = None
    kind: FlagKind
    values: tuple[str, ...] = ()
    default: Any = None
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
    """One pinned version of an engine, as every engine has it. What only one engine has is in a class of its own."""

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

    @property
    def reported_as(self) -> tuple[str, ...]:
        """All that it may call itself: some images were built with another version inside."""
        return tuple(filter(None, (self.version, self.reported_version)))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the quantization methods that it can serve."""
        return ()

    @property
    def reserved_env(self) -> frozenset[str]:
        """Variables beside those of flags that the engine's container sets."""
        return frozenset()

    def on(self, chip: Accelerator) -> Release:  # noqa: ARG002 -- for engines with other images for other chips
        """Return the release as the chip's own image has it. Without `host` that is the CUDA image."""
        return self

    def architecture_rule(self, capability: ComputeCapability | None) -> ArchitectureRule | None:
        """Return the rule for cards of this compute capability; None for a chip without one, or without a rule."""
        if capability is None:
            return None
        return next((rule for rule in self.architectures if rule.minimum <= capability <= rule.maximum), None)


class Scheme(Value, frozen=True, kw_only=True):
    """One way to serve the weights.

    `bits` is what a linear layer's weight takes, group scales included; `lost_bits` counts whole bits from the
    checkpoint's own precision: scales are overhead, not quality. `recast`: activations leave the checkpoint's
    16-bit type. `method` is None for a 16-bit checkpoint served as it is, and for a method the release does not know.
    `native_fp8` is the compute capability from which it multiplies in 8 bits. Without `fused_experts` no kernel routes
    tokens to packed experts; with `packs_head` the head is packed like the layers. Of equals the one with the lower
    `after` is better. `intermediate_size` is the copy's own, where it was padded.
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
        """What a tie ends in: `after` first, then methods that keep the checkpoint's 16-bit type before the others."""
        return f"{self.after} {self.recast:d} {self.name}"


class Load(Value, frozen=True, kw_only=True):
    """What is promised: tokens of a request, requests at once, and the longest request there may be.

    The KV cache has to hold the longest request. Of the others as many run as it holds, and the rest wait.
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
        """Return them with the flags' names as command lines write them. The last one of a name counts."""
        return cls(
            flags={"--" + name.removeprefix("--").replace("_", "-"): value for name, value in flags}, env=dict(env)
        )


class Case(Value, frozen=True, kw_only=True):
    """One configuration to judge. `allow_turing`: the user takes what a release loses on an overridden architecture.

    `prefill_tokens`: at most so many prompt tokens a step; None: as many as leave room for the promise.
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


class EngineSettings(Value, frozen=True, kw_only=True):
    """What the engine is set to, by meaning; it turns them into flags of the exact release.

    `default_prefill_tokens` is the prefill batch that the release would choose by itself, where it chooses one.
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
    """Memory of one accelerator, by parts. The parts add up to `total_bytes` when it fits.

    `reserved_bytes` is the share the engine leaves alone; `kv_cache_bytes` is everything that remains and may be
    negative: then the weights alone do not fit. `context_bytes`, `workspace_bytes`, `graph_bytes` and
    `collective_bytes` are the parts of `overhead_bytes`. `load_peak_bytes` is the most that loading holds.
    `largest_context_tokens` and `largest_concurrency` (at the promised lengths; 0 where none were promised) fit.
    `uncertainty_bytes` is what start-up logs have differed by from this arithmetic.
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
        """What the KV cache holds beyond what the engine needs to start; negative where it falls short.

        With less room more requests wait: that is not what starting takes.
        """
        return self.kv_cache_bytes - (self.startup_kv_tokens or self.required_kv_tokens) * self.kv_bytes_per_token

    @property
    def tight(self) -> bool:
        """Whether it starts by less than the arithmetic is sure of."""
        return self.fits and self.margin_bytes < self.uncertainty_bytes


class Scheduling(Value, frozen=True, kw_only=True):
    """All that a prediction of speed needs of an engine beside constants: which of their profiles, and its settings.

    `prefill_tokens` is the prompt tokens that a step takes at most; None: what the engine chooses by itself. Requests
    that come while others run enter after `waiting_steps`, unless many do. Of a mixture, `runs_all_experts` means that
    every token passes every expert, `loops_over_experts` that the host calls them one by one.
    """

    profile: str
    cuda_graphs: bool = True
    kv_bits: int = 16
    prefill_tokens: int | None = None
    waiting_steps: int = 0
    runs_all_experts: bool = False
    loops_over_experts: bool = False


class Fit(Value, frozen=True, kw_only=True):
    """A configuration as the engine would run it, with everything that speaks against it, most fundamental first.

    `smaller_prefills`: what else `Case.prefill_tokens` may be, the largest first; none where prompts are not prefilled
    in pieces, or the user pins it.
    """

    case: Case
    settings: EngineSettings
    dtype: str
    memory: MemoryBudget
    scheduling: Scheduling
    problems: tuple[Problem, ...]
    smaller_prefills: tuple[int, ...] = ()


class Rates(Value, frozen=True, kw_only=True):
    """What a host needs for the weights: seconds until they have come and are stored, and to read them again."""

    weights_bytes: int
    download_s: float
    read_s: float


class StartupPhase(Value, frozen=True, kw_only=True):
    """A phase between the container's start and the first answer.

    Nothing need be heard of it for `step_s`, its longest single step, nor for `silent_s`, what the engine itself lets
    pass in silence. Its deadline is never below `floor_s`. `amount_mb` is what comes over the network in it.
    """

    phase: str
    expected_s: float
    floor_s: float
    silent_s: float
    step_s: float = 0.0
    amount_mb: float = 0.0


class RequestEdit(Value, frozen=True, kw_only=True):
    """A flag that a request pins, without its dashes, and its value."""

    flag: str
    value: str


class DefaultRun(Value, frozen=True, kw_only=True):
    """A model on cards under an engine that is left to its own defaults, as published measurements are made.

    `bits` are those of a linear layer's weight, `share` is the part of the memory that the engine was given, and
    `prefill_tokens` the batch of releases that choose none by themselves.
    """

    model: ModelSpec
    bits: float
    num_shard: int
    accelerator: str
    total_bytes: int
    share: float
    prefill_tokens: int
