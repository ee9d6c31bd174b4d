"""Releases of TGI, from `profiles/engines/tgi/`: each file says only what differs from the one it extends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from tgi_deploy.values.base import Value, Where, decode
from tgi_deploy.values.engine import Flag, Release
from tgi_deploy.values.hardware import ComputeCapability

FOLDER: Final = "engines/tgi"
QUANTIZATIONS: Final = "quantizations.json"
MODEL_CLASSES: Final = "model_classes.json"
_LONGEST_CHAIN: Final = 200
_OWN: Final = frozenset({"version", "released", "extends", "image", "reported_version", "notice"})
_MERGED: Final = frozenset({"flags", "flags_removed"})
_REMARKS: Final = frozenset({"extends", "source", "image_compressed_bytes"})
_CAPABILITIES: Final = ("minimum", "maximum", "min_compute_capability", "native_fp8_compute")
_PORT_VARIABLE: Final = "PORT"  # set in the image


class QuantizationRule(Value, frozen=True, kw_only=True):
    """What a quantization method needs and costs in a release.

    `bits` is what a linear layer's weight ends at, before group scales; `group_overhead_bits` is divided by the
    group size.
    """

    method: str
    on_the_fly: bool = False
    prequantized: bool = False
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


class ModelClass(Value, frozen=True, kw_only=True):
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


class TgiRelease(Release, frozen=True, kw_only=True):
    """A release with its rules.

    `request_counters` are those of `metrics_path` that rise with requests and their tokens, and with nothing else.
    `counts_all_devices`: left to itself, it takes `NVIDIA_VISIBLE_DEVICES=all` for all cards, not for one.
    """

    quantizations: Mapping[str, QuantizationRule]
    model_classes: Mapping[str, ModelClass]
    memory_share: float
    workspace_bytes: int
    chunked_prefill: bool
    default_attention: str
    block_tokens: Mapping[str, int]
    flash_head_dims: tuple[int, ...]
    cache_env: Mapping[str, str]
    metrics_path: str | None = None
    request_counters: tuple[str, ...] = ()
    counts_all_devices: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.quantizations)

    @property
    def reserved_env(self) -> frozenset[str]:
        return frozenset({*self.cache_env, _PORT_VARIABLE})


def read_release(version: str, documents: Mapping[str, Any]) -> TgiRelease:
    """Return one release with everything it inherits. Raises InputError `bad_profile` or `missing_profile`."""
    chain = _chain(version, documents)
    where = _where(version)
    flags = _flags(chain)
    versions = tuple(raw.get("version", "") for raw in chain)
    raw = {
        **_flattened(chain),
        "name": "tgi",
        "flags": flags,
        "quantizations": _quantizations(documents, versions, flags),
        "model_classes": _model_classes(documents, versions),
    }
    rules = raw.get("architectures")
    if isinstance(rules, list):
        below = where.child("architectures")
        raw["architectures"] = [_with_capabilities(rule, below.child(index)) for index, rule in enumerate(rules)]
    return decode(raw, TgiRelease, where)


def _release_file(version: str) -> str:
    return f"releases/{version}.json"


def _where(version: str) -> Where:
    return Where(f"{FOLDER}/{_release_file(version)}")


def _chain(version: str, documents: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the release and all it extends, oldest first."""
    chain: list[Mapping[str, Any]] = []
    name: Any = version
    while isinstance(name, str):
        raw = documents[_release_file(name)]
        if len(chain) == _LONGEST_CHAIN:
            raise _where(version).child("extends").error("goes round in a circle")
        chain.append(raw)
        name = raw.get("extends")
    return tuple(reversed(chain))


def _flattened(chain: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """Inherited keys, then the release's own; what names or describes one release is not inherited."""
    inherited: dict[str, Any] = {}
    for raw in chain[:-1]:
        inherited.update((key, value) for key, value in raw.items() if key not in _OWN | _MERGED | _REMARKS)
    own = {key: value for key, value in chain[-1].items() if key not in _MERGED | _REMARKS}
    return {**inherited, **own}


def _flags(chain: tuple[Mapping[str, Any], ...]) -> dict[str, Flag]:
    raw_flags: dict[str, tuple[Any, Where]] = {}
    for raw in chain:
        where = _where(str(raw.get("version")))
        for removed in raw.get("flags_removed", ()):
            if raw_flags.pop(removed, None) is None:
                raise where.child("flags_removed").error(f"{removed} was not there")
        for name, flag in _table(raw.get("flags", {}), where.child("flags")).items():
            raw_flags[name] = (flag, where.child("flags").child(name))
    return {name: _flag(name, flag, where) for name, (flag, where) in raw_flags.items()}


def _flag(name: str, raw: object, where: Where) -> Flag:
    found = {key: value for key, value in _table(raw, where).items() if key != "short"}
    return decode({**found, "name": name}, Flag, where)


def _changed(raw: object, versions: tuple[str, ...], where: Where) -> dict[str, Any]:
    """Return an entry as of the newest release: its changes up to there laid over it."""
    entry = dict(_table(raw, where))
    changes = _table(entry.pop("changes", {}), where.child("changes"))
    for version in versions:
        entry.update(_table(changes.get(version, {}), where.child("changes").child(version)))
    return entry


def _quantizations(
    documents: Mapping[str, Any], versions: tuple[str, ...], flags: Mapping[str, Flag]
) -> dict[str, QuantizationRule]:
    """The methods this release's `--quantize` takes."""
    where = Where(f"{FOLDER}/{QUANTIZATIONS}").child("quantizations")
    accepted = flags["--quantize"].values if "--quantize" in flags else ()
    found = {}
    for method, raw in _table(documents[QUANTIZATIONS].get("quantizations"), where).items():
        if method in accepted:
            below = where.child(method)
            entry = _with_capabilities(_changed(raw, versions, below), below)
            found[method] = decode({**entry, "method": method}, QuantizationRule, below)
    return found


def _model_classes(documents: Mapping[str, Any], versions: tuple[str, ...]) -> dict[str, ModelClass]:
    where = Where(f"{FOLDER}/{MODEL_CLASSES}").child("model_classes")
    entries = _table(documents[MODEL_CLASSES].get("model_classes"), where)
    return {name: _model_class(name, raw, versions, where.child(name)) for name, raw in entries.items()}


def _model_class(name: str, raw: object, versions: tuple[str, ...], where: Where) -> ModelClass:
    entry = _changed(raw, versions, where)
    since = entry.pop("since", None)
    if since is not None and since not in versions:
        entry.update(backend="refused", reason=f"it is served from release {since} on")
    return decode({**entry, "model_type": name}, ModelClass, where)


def _table(raw: object, where: Where) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise where.error("should be a table")
    return raw


def _with_capabilities(raw: object, where: Where) -> dict[str, Any]:
    """Return the entry with its compute capabilities, written like "8.9", as pairs of numbers."""
    entry = dict(_table(raw, where))
    for key in _CAPABILITIES:
        if key in entry:
            entry[key] = _capability(entry[key], where.child(key))
    return entry


def _capability(text: object, where: Where) -> ComputeCapability:
    major, dot, minor = text.partition(".") if isinstance(text, str) else ("", "", "")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise where.error('should be a compute capability like "8.9"')
    return int(major), int(minor)
