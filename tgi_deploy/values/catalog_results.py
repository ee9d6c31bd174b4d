"""What `catalog` and `profile` print with `--json`. Keys are a contract."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

from msgspec import UnsetType

from tgi_deploy.values.base import UNSET, Value
from tgi_deploy.values.engine import Flag
from tgi_deploy.values.hardware import Accelerator, InstanceType, Interconnect, TypeStatus
from tgi_deploy.values.model import Profile

Verdict = Literal["runs", "by_hand", "override", "no"]


class RegionEntry(Value, frozen=True, kw_only=True):
    name: str


class EngineEntry(Value, frozen=True, kw_only=True):
    """A release of an engine."""

    name: str
    version: str
    released: str | None
    image: str
    default: bool


class ModelEntry(Value, frozen=True, kw_only=True):
    """A model's profile, or a hub id that plans support without one."""

    name: str
    hub_id: str
    summary: str


class HardwarePrice(Value, frozen=True, kw_only=True):
    """The cheapest on-demand machine with the chip, or the named machine's price, without disk and address.

    `estimated`: no price is listed in the region, and it is derived from another one.
    """

    instance_type: str
    usd_per_hour: Decimal
    usd_per_gib_hour: Decimal
    source: str
    date: str
    estimated: bool = False


class EngineVerdict(Value, frozen=True, kw_only=True):
    """Whether the engine runs there. `by_hand`: only with an image that plans don't support."""

    verdict: Verdict
    backend: str | None
    image: str | None
    reason: str
    source: str


class MisquotedFigure(Value, frozen=True, kw_only=True):
    """A commonly misquoted figure: a field of the accelerator, or `memory`."""

    figure: str
    quoted: str | float
    right: str | float
    why: str
    source: str


class HardwareEntry(Value, frozen=True, kw_only=True):
    """An accelerator or an instance type. Figures are dense and per accelerator.

    `memory_bytes` is the usable memory. The last fields are only for instance types.
    """

    name: str
    accelerator: str
    vendor: str
    architecture: str
    compute_capability: str | None
    accelerator_count: int
    partition: float
    memory_bytes: int
    bandwidth_gb_s: float | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    int8_tops: float | None
    bf16: bool
    interconnect: Interconnect
    price: HardwarePrice | None
    engine: EngineVerdict
    misquoted: tuple[MisquotedFigure, ...]
    confidence: str
    source: str
    note: str | None
    status: TypeStatus | UnsetType = UNSET
    memory_bytes_per_accelerator: int | UnsetType = UNSET
    vcpus: int | UnsetType = UNSET
    ram_bytes: int | UnsetType = UNSET
    nvme_bytes: int | UnsetType = UNSET


class RegionsData(Value, frozen=True, kw_only=True):
    """`data` of `catalog list regions`."""

    kind: Literal["regions"] = "regions"
    items: tuple[RegionEntry, ...]


class EnginesData(Value, frozen=True, kw_only=True):
    """`data` of `catalog list engines`."""

    kind: Literal["engines"] = "engines"
    items: tuple[EngineEntry, ...]


class ModelsData(Value, frozen=True, kw_only=True):
    """`data` of `catalog list models`: profiles first."""

    kind: Literal["models"] = "models"
    items: tuple[ModelEntry, ...]


class HardwareData(Value, frozen=True, kw_only=True):
    """`data` of `catalog list` for hardware: prices of the region, verdicts for the engine's version."""

    kind: Literal["accelerators", "instances", "hardware"]
    region: str
    engine_version: str
    catalog_date: str
    items: tuple[HardwareEntry, ...]


class ShownAccelerator(Accelerator, frozen=True, kw_only=True):
    """An accelerator, with its compute capability as in `8.9`."""

    compute_capability: str | None  # type: ignore[assignment]  # a pair only where it is compared


class AcceleratorItem(ShownAccelerator, frozen=True, kw_only=True):
    """An accelerator, with the cheapest machine that has it."""

    price: HardwarePrice | None
    engine: EngineVerdict
    misquoted: tuple[MisquotedFigure, ...]


class InstanceItem(InstanceType, frozen=True, kw_only=True):
    """An instance type, with its price."""

    accelerator: ShownAccelerator
    price: HardwarePrice | None
    engine: EngineVerdict
    misquoted: tuple[MisquotedFigure, ...]


class EngineItem(Value, frozen=True, kw_only=True):
    """A release of an engine. `methods` are the quantizations that it serves."""

    name: str
    version: str
    released: str | None
    image: str
    image_bytes: int
    flags: Mapping[str, Flag]
    methods: tuple[str, ...]
    cpu_archs: tuple[str, ...]
    notice: str | None
    reported_version: str | None


class AcceleratorData(Value, frozen=True, kw_only=True):
    """`data` of `catalog show` of an accelerator."""

    kind: Literal["accelerator"] = "accelerator"
    item: AcceleratorItem


class InstanceData(Value, frozen=True, kw_only=True):
    """`data` of `catalog show` of an instance type."""

    kind: Literal["instance"] = "instance"
    item: InstanceItem


class EngineData(Value, frozen=True, kw_only=True):
    """`data` of `catalog show` of an engine's version."""

    kind: Literal["engine"] = "engine"
    item: EngineItem


class ModelData(Value, frozen=True, kw_only=True):
    """`data` of `catalog show` of a model."""

    kind: Literal["model"] = "model"
    item: Profile


class ProfilesData(Value, frozen=True, kw_only=True):
    """`data` of `profile list`."""

    profiles: tuple[ModelEntry, ...]


class ProfileData(Value, frozen=True, kw_only=True):
    """`data` of `profile show` and `profile validate`: the profile as in its file."""

    profile: Profile


class TextData(Value, frozen=True, kw_only=True):
    """A file's text. `out` is the file that it was written to."""

    name: str
    text: str
    out: str | None = None


class ProfileTextData(Value, frozen=True, kw_only=True):
    """`data` of `profile new`."""

    profile: TextData


class DeploymentTextData(Value, frozen=True, kw_only=True):
    """`data` of `profile init`."""

    deployment: TextData
