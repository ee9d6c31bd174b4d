"""Releases of the engine, from `engines/<name>/`: each file says only what differs from the one it extends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.fields import (
    IGNORED,
    OPTIONAL_TEXT,
    REQUIRED_TEXT,
    Field,
    Where,
    anything,
    boolean,
    capability,
    count,
    list_of,
    number,
    one_of,
    positive,
    read,
    table,
    table_of,
    text,
)
from tgi_deploy.planner.types import ArchitectureRule, EngineRelease, Flag, ModelClass, QuantizationRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.store import Store

_LONGEST_CHAIN: Final = 200
_OWN: Final = frozenset({"version", "released", "extends", "image", "reported_version", "notice"})
_MERGED: Final = frozenset({"flags", "flags_removed"})

_RELEASE: Final = {
    "version": REQUIRED_TEXT,
    "released": REQUIRED_TEXT,
    "image": REQUIRED_TEXT,
    "source": IGNORED,
    "image_bytes": Field(check=positive),
    "image_compressed_bytes": IGNORED,
    "workspace_bytes": Field(check=count),
    "memory_share": Field(check=number),
    "chunked_prefill": Field(check=boolean),
    "counts_all_devices": Field(check=boolean, required=False),
    "default_attention": Field(check=str),
    "block_tokens": Field(check=table_of(positive)),
    "flash_head_dims": Field(check=list_of(positive)),
    "cpu_archs": Field(check=list_of(text)),
    "cache_env": Field(check=table_of(text)),
    "metrics_path": OPTIONAL_TEXT,
    "request_counters": Field(check=list_of(text), required=False),
    "architectures": Field(check=anything),
    "reported_version": OPTIONAL_TEXT,
    "notice": OPTIONAL_TEXT,
}
_FLAG: Final = {
    "kind": Field(check=one_of(
        "bool", "enum", "float", "list[string]", "list[uint]", "string", "uint", "uint16", "uint32", "uint64"
    )),
    "env": OPTIONAL_TEXT,
    "values": Field(check=list_of(text), required=False),
    "default": Field(check=anything, required=False),
    "switch": Field(check=boolean, required=False),
    "short": IGNORED,
}  # fmt: skip
_ARCHITECTURE: Final = {
    "minimum": Field(check=capability),
    "maximum": Field(check=capability),
    "verdict": Field(check=one_of("ok", "refused", "override")),
    "code": OPTIONAL_TEXT,
    "message": OPTIONAL_TEXT,
    "loses": OPTIONAL_TEXT,
    "env": Field(check=table_of(text), required=False),
    "source": OPTIONAL_TEXT,
}
_QUANTIZATION: Final = {
    "on_the_fly": Field(check=boolean, required=False),
    "prequantized": Field(check=boolean, required=False),
    "bits": Field(check=number),
    "group_overhead_bits": Field(check=number),
    "min_compute_capability": Field(check=capability),
    "shardable": Field(check=boolean, required=False),
    "takes_dtype": Field(check=boolean, required=False),
    "forces_dtype": OPTIONAL_TEXT,
    "transformers_backend": Field(check=boolean, required=False),
    "fused_moe": Field(check=boolean, required=False),
    "cuda_graphs": Field(check=boolean, required=False),
    "native_fp8_compute": Field(check=capability, required=False),
    "note": OPTIONAL_TEXT,
    "source": OPTIONAL_TEXT,
}
_MODEL_CLASS: Final = {
    "backend": Field(check=one_of("native", "transformers", "refused")),
    "flash": Field(check=boolean, required=False),
    "default_dtype": OPTIONAL_TEXT,
    "shardable": Field(check=boolean, required=False),
    "replicated_kv": Field(check=boolean, required=False),
    "prefill_chunking": Field(check=boolean, required=False),
    "paged_only": Field(check=boolean, required=False),
    "reason": OPTIONAL_TEXT,
}


def load(store: Store, engine: str, version: str) -> EngineRelease:
    """One release with everything it inherits.

    Raises:
        InputError: `bad_profile` or `missing_profile`.
    """
    chain = _chain(store, engine, version)
    where = Where(_release_file(engine, version))
    flags = _flags(chain, engine)
    found = read(_flattened(chain), _RELEASE, where)
    versions = tuple(raw.get("version", "") for raw in chain)
    found["architectures"] = _architectures(found["architectures"], where.child("architectures"))
    return EngineRelease(
        name=engine,
        flags=flags,
        quantizations=_quantizations(store, engine, versions, flags),
        model_classes=_model_classes(store, engine, versions),
        **found,
    )


def _release_file(engine: str, version: str) -> str:
    return f"engines/{engine}/releases/{version}.json"


def _chain(store: Store, engine: str, version: str) -> tuple[Mapping[str, Any], ...]:
    """The release and all it extends, oldest first."""
    chain: list[Mapping[str, Any]] = []
    name: Any = version
    while isinstance(name, str):
        raw = store.json(_release_file(engine, name))
        if len(chain) == _LONGEST_CHAIN:
            raise Where(_release_file(engine, version)).child("extends").error("goes round in a circle")
        chain.append(raw)
        name = raw.get("extends")
    return tuple(reversed(chain))


def _flattened(chain: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
    """Inherited keys, then the release's own; what names or describes one release is not inherited."""
    inherited: dict[str, Any] = {}
    for raw in chain[:-1]:
        inherited.update((key, value) for key, value in raw.items() if key not in _OWN | _MERGED)
    own = {key: value for key, value in chain[-1].items() if key not in _MERGED and key != "extends"}
    return {**inherited, **own}


def _flags(chain: tuple[Mapping[str, Any], ...], engine: str) -> dict[str, Flag]:
    raw_flags: dict[str, tuple[Any, Where]] = {}
    for raw in chain:
        where = Where(_release_file(engine, str(raw.get("version"))))
        for removed in raw.get("flags_removed", ()):
            if raw_flags.pop(removed, None) is None:
                raise where.child("flags_removed").error(f"{removed} was not there")
        for name, flag in table(raw.get("flags", {}), where.child("flags")).items():
            raw_flags[name] = (flag, where.child("flags").child(name))
    return {name: _flag(name, flag, where) for name, (flag, where) in raw_flags.items()}


def _flag(name: str, raw: object, where: Where) -> Flag:
    found = read(raw, _FLAG, where)
    found.setdefault("env", None)
    return Flag(name=name, **found)


def _architectures(raw: object, where: Where) -> tuple[ArchitectureRule, ...]:
    if not isinstance(raw, list):
        raise where.error("should be a list")
    return tuple(ArchitectureRule(**read(rule, _ARCHITECTURE, where.child(index))) for index, rule in enumerate(raw))


def _changed(raw: object, versions: tuple[str, ...], where: Where) -> dict[str, Any]:
    """An entry as of the newest release: its changes up to there laid over it."""
    entry = dict(table(raw, where))
    changes = table(entry.pop("changes", {}), where.child("changes"))
    for version in versions:
        entry.update(table(changes.get(version, {}), where.child("changes").child(version)))
    return entry


def _quantizations(
    store: Store, engine: str, versions: tuple[str, ...], flags: Mapping[str, Flag]
) -> dict[str, QuantizationRule]:
    """The methods this release's `--quantize` takes."""
    name = f"engines/{engine}/quantizations.json"
    where = Where(name).child("quantizations")
    entries = table(store.json(name).get("quantizations"), where)
    accepted = flags["--quantize"].values if "--quantize" in flags else ()
    return {
        method: _quantization(method, _changed(raw, versions, where.child(method)), where.child(method))
        for method, raw in entries.items()
        if method in accepted
    }


def _quantization(method: str, raw: Mapping[str, Any], where: Where) -> QuantizationRule:
    found = {"on_the_fly": False, "prequantized": False, **read(raw, _QUANTIZATION, where)}
    return QuantizationRule(method=method, **found)


def _model_classes(store: Store, engine: str, versions: tuple[str, ...]) -> dict[str, ModelClass]:
    name = f"engines/{engine}/model_classes.json"
    where = Where(name).child("model_classes")
    entries = table(store.json(name).get("model_classes"), where)
    return {key: _model_class(key, raw, versions, where.child(key)) for key, raw in entries.items()}


def _model_class(name: str, raw: object, versions: tuple[str, ...], where: Where) -> ModelClass:
    entry = _changed(raw, versions, where)
    since = entry.pop("since", None)
    found = read(entry, _MODEL_CLASS, where)
    if since is not None and since not in versions:
        found.update(backend="refused", reason=f"it is served from release {since} on")
    return ModelClass(model_type=name, **found)
