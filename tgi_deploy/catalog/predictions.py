"""The constants of predictions: speed from `performance/constants.json`, memory from `memory/engines.json`.

`values/speed_constants.py` and `operations/planning/memory_setup.py` document the keys.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.catalog.fields import (
    IGNORED,
    REQUIRED_TEXT,
    Field,
    anything,
    boolean,
    list_of,
    number,
    positive,
    read,
    table,
    table_of,
    text,
)
from tgi_deploy.values.base import Where
from tgi_deploy.values.speed_constants import DEFAULT, KINDS, SLOWNESS, Constants, missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.catalog.store import Store

SPEED_FILE: Final = "performance/constants.json"
MEMORY_FILE: Final = "memory/engines.json"

_SPEED: Final = {
    "collected_at": IGNORED,
    "source": IGNORED,
    "sources": IGNORED,
    "meanings": IGNORED,
    "card_families": Field(check=table_of(text)),
    "own_fabrics": Field(check=list_of(text)),
    "bridged": Field(check=list_of(text)),
    "host_links": Field(check=table_of(table_of(text))),
    "engines": Field(check=anything),
    "windowed_layers": Field(check=table_of(number)),
    "slowness": Field(check=table_of(number)),
    "fitted_to": IGNORED,
    "constants": Field(check=anything),
}
_ENGINES: Final = {
    "aliases": Field(check=table_of(text)),
    "pcie_through_host": Field(check=list_of(text)),
    "waiting_steps": Field(check=table_of(table_of(number))),
    "profiles": Field(check=anything),
}
_PROFILE: Final = {"versions": Field(check=table_of(text)), "otherwise": REQUIRED_TEXT}
_DIVISORS: Final = frozenset({"bandwidth", "compute", "attention", "gb_s", "cache", "experts", "chunk_tokens"})

_OPTIONAL_NUMBER: Final = Field(check=number, required=False)
_ALTERED: Final = {
    "note": IGNORED,
    "block_tokens": Field(check=positive, required=False),
    **dict.fromkeys(
        (
            "share", "sampler_bytes", "small_sampler_bytes", "sampler_rows", "small_sampler_rows", "prefill_tokens",
            "small_prefill_tokens", "old_prefill_tokens", "context_gib", "collective_gib",
            "collective_gib_per_further_rank", "graph_mib_per_layer", "talking_graph_mib_per_layer", "context_gb",
            "growth", "logit_bytes",
        ),
        _OPTIONAL_NUMBER,
    ),
}  # fmt: skip
_VERSION: Final = {**_ALTERED, "before": REQUIRED_TEXT}
_ENGINE: Final = {
    **_ALTERED,
    "planned": Field(check=boolean, required=False),
    "loose": Field(check=boolean, required=False),
    "of_free": Field(check=boolean, required=False),
    "bits": Field(check=table_of(number), required=False),
    "versions": Field(check=anything, required=False),
}
# Three kinds of engines: planned ones, ones that allocate on demand, ones that allocate their share at startup.
_NEEDED_PLANNED: Final = ("old_prefill_tokens",)
_NEEDED_LOOSE: Final = ("context_gb", "growth")
_NEEDED_OTHERWISE: Final = ("context_gib", "collective_gib", "collective_gib_per_further_rank")


class Predictions:
    """The constants; each file is read on first use. Raises InputError `bad_profile`, with file and key."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def speed(self) -> Constants:
        document, where = self._store.json(SPEED_FILE), Where(SPEED_FILE)
        found = read(document, _SPEED, where)
        _check_engines(found["engines"], where.child("engines"))
        _check_there(SLOWNESS, found["slowness"], where.child("slowness"))
        _check_constants(found["constants"], where.child("constants"))
        return Constants(document)

    def memory(self, engine: str) -> Mapping[str, Any]:
        """Return how an engine divides a GPU's memory; `versions` has the differences before a version."""
        if engine not in self._engines:
            raise Where(MEMORY_FILE).child("engines").child(engine).error("is missing")
        return self._engines[engine]

    def memory_engine(self, words: str) -> str | None:
        """Return the engine with this name in a table of measurements, or None."""
        where = Where(MEMORY_FILE).child("words")
        try:
            known = table_of(text)(self._store.json(MEMORY_FILE).get("words"))
        except ValueError as problem:
            raise where.error(str(problem)) from None
        return next((name for part, name in known.items() if part in words.lower()), None)

    @cached_property
    def _engines(self) -> Mapping[str, Mapping[str, Any]]:
        where = Where(MEMORY_FILE).child("engines")
        raws = table(self._store.json(MEMORY_FILE).get("engines"), where)
        return {name: _engine(raw, where.child(name)) for name, raw in raws.items()}


def _check_engines(raw: object, where: Where) -> None:
    below = where.child("profiles")
    profiles = table(read(raw, _ENGINES, where)["profiles"], below)
    for name, profile in profiles.items():
        read(profile, _PROFILE, below.child(name))
    _check_there((DEFAULT,), profiles, below)


def _check_constants(raw: object, where: Where) -> None:
    constants = table(raw, where)
    known = {kind: set(made.__struct_fields__) for kind, made in KINDS.items()}
    for key, entry in constants.items():
        kind, _, rest = key.partition(".")
        field = rest.rpartition(".")[2]
        if field not in known.get(kind, ()):
            raise where.child(key).error("is not a known key")
        if not isinstance(entry, dict):
            raise where.child(key).error("should be a table")
        try:
            (_above_zero if field in _DIVISORS else number)(entry.get("value"))
        except ValueError as problem:
            raise where.child(key).child("value").error(str(problem)) from None
    _check_there(missing(constants), constants, where)


def _above_zero(value: object) -> float:
    found = number(value)
    if not found:
        raise ValueError("should be a number above zero")
    return found


def _check_there(keys: Iterable[str], found: Mapping[str, Any], where: Where) -> None:
    for key in keys:
        if key not in found:
            raise where.child(key).error("is missing")


def _engine(raw: object, where: Where) -> Mapping[str, Any]:
    found = read(raw, _ENGINE, where)
    needed = _NEEDED_LOOSE if found.get("loose") else _NEEDED_OTHERWISE
    _check_there(_NEEDED_PLANNED if found.get("planned") else needed, found, where)
    below, versions = where.child("versions"), found.get("versions", [])
    if not isinstance(versions, list):
        raise below.error("should be a list")
    altered = [read(version, _VERSION, below.child(index)) for index, version in enumerate(versions)]
    return {**found, "versions": altered}
