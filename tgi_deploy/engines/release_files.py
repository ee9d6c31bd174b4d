"""Reads an engine's release files, which contain only the differences from the one they extend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.base import Where, decode
from tgi_deploy.values.engine import Flag

if TYPE_CHECKING:
    from tgi_deploy.values.hardware import ComputeCapability

_LONGEST_CHAIN: Final = 200
_OWN: Final = frozenset({"version", "released", "extends", "image", "reported_version", "notice"})
_MERGED: Final = frozenset({"flags", "flags_removed"})
_REMARKS: Final = frozenset({"extends", "source", "collected_at", "image_compressed_bytes"})
_CAPABILITIES: Final = ("minimum", "maximum", "min_compute_capability", "native_fp8_compute")


class ReleaseFile:
    """A release and the files that it extends, oldest first, from `profiles/engines/<engine>/`.

    Raises InputError `bad_profile` or `missing_profile`.
    """

    def __init__(self, engine: str, version: str, documents: Mapping[str, Any]) -> None:
        self.engine = engine
        self.where = self._where(version)
        self.chain = self._chain(version, documents)

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(raw.get("version", "") for raw in self.chain)

    def _where(self, version: str) -> Where:
        return Where(f"engines/{self.engine}/{_file(version)}")

    def _chain(self, version: str, documents: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        chain: list[Mapping[str, Any]] = []
        name: Any = version
        while isinstance(name, str):
            raw = documents[_file(name)]
            if len(chain) == _LONGEST_CHAIN:
                raise self.where.child("extends").error("is circular")
            chain.append(raw)
            name = raw.get("extends")
        return tuple(reversed(chain))

    def fields(self) -> dict[str, Any]:
        """Return all fields of the release, with decoded flags and prepared architectures."""
        fields = {**self._flattened(), "name": self.engine, "flags": self._flags()}
        rules = fields.get("architectures")
        if isinstance(rules, list):
            below = self.where.child("architectures")
            fields["architectures"] = [
                with_capabilities(rule, below.child(index)) for index, rule in enumerate(rules)
            ]  # fmt: skip
        return fields

    def _flattened(self) -> dict[str, Any]:
        """Return the inherited keys with the release's own; names and descriptions are not inherited."""
        inherited: dict[str, Any] = {}
        for raw in self.chain[:-1]:
            inherited.update((key, value) for key, value in raw.items() if key not in _OWN | _MERGED | _REMARKS)
        own = {key: value for key, value in self.chain[-1].items() if key not in _MERGED | _REMARKS}
        return {**inherited, **own}

    def _flags(self) -> dict[str, Flag]:
        raw_flags: dict[str, tuple[Any, Where]] = {}
        for raw in self.chain:
            where = self._where(str(raw.get("version")))
            for removed in raw.get("flags_removed", ()):
                if raw_flags.pop(removed, None) is None:
                    raise where.child("flags_removed").error(f"{removed} did not exist")
            for name, flag in table(raw.get("flags", {}), where.child("flags")).items():
                raw_flags[name] = (flag, where.child("flags").child(name))
        return {name: _flag(name, flag, where) for name, (flag, where) in raw_flags.items()}


def _file(version: str) -> str:
    return f"releases/{version}.json"


def _flag(name: str, raw: object, where: Where) -> Flag:
    found = {key: value for key, value in table(raw, where).items() if key != "short"}
    return decode({**found, "name": name}, Flag, where)


def table(raw: object, where: Where) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise where.error("should be a table")
    return raw


def with_capabilities(raw: object, where: Where) -> dict[str, Any]:
    """Return the entry with its compute capabilities, written like "8.9", as pairs of numbers."""
    entry = dict(table(raw, where))
    for key in _CAPABILITIES:
        if key in entry:
            entry[key] = _capability(entry[key], where.child(key))
    return entry


def _capability(text: object, where: Where) -> ComputeCapability:
    major, dot, minor = text.partition(".") if isinstance(text, str) else ("", "", "")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise where.error('should be a compute capability like "8.9"')
    return int(major), int(minor)
