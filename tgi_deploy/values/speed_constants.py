"""Constants of the speed model, from `profiles/performance/constants.json`.

That file has each one's meaning and source. They describe how much of its datasheet a GPU family sustains, how an
interconnect affects an all-reduce, and what an engine of a given period adds to a step. Their keys are
`<kind>.<name>.<field>`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec.structs import replace

from tgi_deploy.values.base import Value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tgi_deploy.values.engine import Scheduling
    from tgi_deploy.values.hardware import Accelerator, Interconnect

DEFAULT: Final = "default"
# Metrics with correlated errors share one scale.
KIND_OF_METRIC: Final = {
    "ttft_ms": "first token", "tpot_ms": "each token", "e2e_ms": "each token", "decode_tok_s_per_user": "each token",
    "decode_tok_s_total": "throughput", "max_throughput_tok_s": "throughput", "req_s": "throughput",
}  # fmt: skip
TIMES: Final = frozenset({"ttft_ms", "tpot_ms", "e2e_ms"})
_LATE_NVLINK: Final = frozenset({"Hopper", "Blackwell", "Blackwell Ultra"})
_PAIR: Final = 2

T = TypeVar("T", bound=Value)


class CardShares(Value, frozen=True, kw_only=True):
    """Sustained shares of a GPU's datasheet: weight streaming, 16-bit matrix products, attention products.

    `host` is the host time of an engine's own work relative to an H100's hosts.
    """

    bandwidth: float
    compute: float
    attention: float
    host: float


class Link(Value, frozen=True, kw_only=True):
    """An all-reduce over T GPUs takes `latency_us` + 2 (T-1)/T bytes / `gb_s`.

    If `shared` is 1, the GPUs have no peer access and go through host memory: `gb_s` is their total.
    """

    latency_us: float
    gb_s: float
    shared: float

    def bus_gb_s(self, cards: int) -> float:
        return self.gb_s / math.pow(cards, self.shared)


class Kernel(Value, frozen=True, kw_only=True):
    """Speed of matrix products in a number format, relative to 16-bit ones on the same GPU.

    Without CUDA graphs the host takes `linear_us` more for each product than for one of 16 bits.
    """

    bandwidth: float
    compute: float
    linear_us: float


class EngineProfile(Value, frozen=True, kw_only=True):
    """An engine of a given period.

    Host time of a step: `step_ms` + `layer_us` per layer + `request_us` per running request; over HTTP an additional
    `served_us` per request. `first_ms` is added to every first token, over HTTP also `front_ms`; `prompt_ms` is the
    host's work per prompt. `compute` scales products, `experts` grouped ones further; `expert_us` is added per expert
    used in a layer's step. `reread` is the share of the KV cache that is reread for each additional query head of a
    group. `narrow_cache` is the share of the bytes saved by a KV cache below 16 bits that also saves time. Clients'
    arrivals after a step spread over `jitter_ms`. `reserve` is the share of the output that a request reserves in the
    KV cache on average. `small_chunk_tokens` and `small_max_batch` apply to GPUs that the engine considers small; 0: no
    difference. If `share_of_free` is 1, `memory_share` is of the memory that the weights leave free. `floor_ms` per
    layer is the fastest launch of a step whose batch exceeds `graph_batch`. Requests that arrive while others run enter
    after `waiting_steps`, unless there are many. `overlap` is 1 if a step's streaming and products add up.
    """

    compute: float
    cache: float
    experts: float
    expert_us: float
    step_ms: float
    layer_us: float
    request_us: float
    served_us: float
    prompt_ms: float
    first_ms: float
    front_ms: float
    jitter_ms: float
    reread: float
    narrow_cache: float
    reserve: float
    max_batch: float
    small_max_batch: float
    chunk_tokens: float
    small_chunk_tokens: float
    memory_share: float
    share_of_free: float
    overhead_gb: float
    floor_ms: float
    graph_batch: float
    waiting_steps: float
    overlap: float


class Constants:
    """All constants, by key. Fits use copies with changed `values`."""

    def __init__(self, document: Mapping[str, Any], values: Mapping[str, float] | None = None) -> None:
        self.document = document
        self.values = values if values is not None else {k: v["value"] for k, v in document["constants"].items()}
        self._families: Mapping[str, str] = document["card_families"]
        self._fabrics = frozenset(document["own_fabrics"])
        self._bridged = frozenset(document["bridged"])
        self._host_links: Mapping[str, Mapping[str, str]] = document["host_links"]
        self._engines: Mapping[str, Any] = document["engines"]
        self._slowness: Mapping[str, float] = document["slowness"]
        self._known: dict[tuple[str, str], Any] = {}
        self._planned: dict[tuple[str, bool, int], EngineProfile] = {}

    def with_values(self, values: Mapping[str, float]) -> Constants:
        return Constants(self.document, values)

    def with_slowness(self, slowness: Mapping[str, Any]) -> Constants:
        return Constants({**self.document, "slowness": slowness}, self.values)

    def family(self, accelerator: Accelerator) -> str:
        families = self._families
        return families.get(accelerator.name) or families.get(accelerator.architecture) or DEFAULT

    def card(self, accelerator: Accelerator) -> CardShares:
        return self._made("card", self.family(accelerator), CardShares)

    def link(self, interconnect: Interconnect, accelerator: Accelerator, cards: int) -> Link:
        """Return the link between `cards` of these GPUs.

        Other vendors' fabrics (AMD, Intel, Google) count as an A100's NVLink, for lack of measurements. Bridged GPUs
        have NVLink in pairs and PCIe between pairs.
        """
        if accelerator.name in self._bridged and interconnect in {"pcie", "nvlink"}:
            return self._made("link", "nvlink-late" if cards <= _PAIR else "pcie-p2p", Link)
        own_fabric = accelerator.architecture in self._fabrics and interconnect not in {"pcie", "pcie-p2p"}
        if interconnect in {"nvlink", "neuronlink"} or own_fabric:
            late = accelerator.architecture in _LATE_NVLINK
            return self._made("link", "nvlink-late" if late else "nvlink-early", Link)
        of_the_host = self._host_links.get(accelerator.name, {}).get(interconnect)
        return self._made("link", of_the_host or ("pcie-p2p" if interconnect == "pcie-p2p" else "pcie"), Link)

    def kernel(self, name: str) -> Kernel:
        return self._made("kernel", name, Kernel)

    def engine(self, name: str, version: str = "") -> EngineProfile:
        """Return the profile of an engine's version; an unknown engine gets the default one."""
        own = self._made("engine", self.engine_profile_name(name, version), EngineProfile)
        steps = self._engines["waiting_steps"].get(self.engine_name(name), {})
        return replace(own, waiting_steps=_of_version(steps, version, own.waiting_steps)) if steps else own

    def planned_engine(self, scheduling: Scheduling) -> EngineProfile:
        """Return the engine as plans run it: with CUDA graphs for every planned batch if the method supports them."""
        key = scheduling.profile, scheduling.cuda_graphs, scheduling.waiting_steps
        known = self._planned.get(key)
        if known is None:
            known = self._planned[key] = replace(
                self.engine(scheduling.profile),
                graph_batch=math.inf if scheduling.cuda_graphs else 0.0,
                waiting_steps=scheduling.waiting_steps,
            )
        return known

    def engine_name(self, name: str) -> str:
        """Return the constants' name of an engine: `NVIDIA NIM` is tensorrt-llm."""
        aliases: Mapping[str, str] = self._engines["aliases"]
        words = map(_plain, (name, *name.split()))
        return next((aliases[word] for word in words if word in aliases), DEFAULT)

    def pcie_through_host(self, name: str) -> bool:
        """Return whether the published measurements of that engine use PCIe through host memory, as on EC2."""
        return self.engine_name(name) in self._engines["pcie_through_host"]

    def engine_profile_name(self, name: str, version: str = "") -> str:
        known = self.engine_name(name)
        entry = self._engines["profiles"].get(known, self._engines["profiles"][DEFAULT])
        return str(_of_version(entry["versions"], version, entry["otherwise"]))

    def window_share(self, model_type: str) -> float:
        """Return the share of layers with sliding-window attention."""
        return float(self.document["windowed_layers"].get(model_type, 1.0))

    def interval(self, metric: str, unsure: float) -> tuple[float, float]:
        """Return the factors on the median that contain 80 % of measurements on unseen clusters.

        `unsure` is the share of the figure's time that is hard to predict, as `speed_load.unsure` counts it.
        """
        known = self._slowness
        scale = known[KIND_OF_METRIC[metric]] * math.exp(known["growth"] * unsure)
        fast, slow = math.exp(scale * known["fast"]), math.exp(scale * known["slow"])
        return (1 / fast, slow) if metric in TIMES else (1 / slow, fast)

    def _made(self, kind: str, name: str, made: type[T]) -> T:
        known = self._known.get((kind, name))
        if known is None:
            known = made(**{field: self._value(kind, name, field) for field in made.__struct_fields__})
            self._known[kind, name] = known
        return cast("T", known)

    def _value(self, kind: str, name: str, field: str) -> float:
        """Return the value of this name, or the kind's default."""
        own = self.values.get(f"{kind}.{name}.{field}")
        return own if own is not None else self.values[f"{kind}.{DEFAULT}.{field}"]


def _of_version(known: Mapping[str, Any], version: str, otherwise: Any) -> Any:  # noqa: ANN401 -- what the file holds
    """Return the entry whose key the version starts with."""
    version = version.removeprefix("v")
    for prefix, entry in known.items():
        if version == prefix or version.startswith((f"{prefix}.", f"{prefix}-", f"{prefix} ")):
            return entry
    return otherwise


def _plain(name: str) -> str:
    return "".join(ch for ch in name.lower() if ch.isalnum())


SLOWNESS: Final = (*dict.fromkeys(KIND_OF_METRIC.values()), "growth", "fast", "slow")
KINDS: Final[Mapping[str, type[Value]]] = {"card": CardShares, "link": Link, "kernel": Kernel, "engine": EngineProfile}
# Names required by the model. Other names may inherit fields from the kind's default.
_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    "card": (DEFAULT,),
    "link": ("nvlink-late", "nvlink-early", "pcie-p2p", "pcie", "pcie-g5", "pcie-g6", "pcie-desktop"),
    "kernel": ("16-bit", "fp8", "w8a16", "w8a8", "int4", "w4a8", "mxfp4", "bitsandbytes", "bitsandbytes-int8"),
    "engine": (DEFAULT,),
}


def missing(keys: Collection[str]) -> Iterator[str]:
    """Return the keys that the model needs and `keys` lacks."""
    for kind, names in _ASKED.items():
        for field in KINDS[kind].__struct_fields__:
            own = (f"{kind}.{name}.{field}" for name in names)
            if f"{kind}.{DEFAULT}.{field}" not in keys:
                yield from (key for key in own if key not in keys)
