"""Reads the files in `engines/<name>/`; the engines decode them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tgi_deploy.catalog.store import Store

_FOLDER: Final = "engines"
_RELEASES: Final = "releases"
_ENDING: Final = ".json"


class EngineDocuments(Mapping[str, Any]):
    """Parsed files by name in the engine's folder, each read on first use."""

    def __init__(self, store: Store, engine: str) -> None:
        self._store = store
        self.folder = f"{_FOLDER}/{engine}"

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Raises InputError `missing_profile` or `bad_profile`."""
        return self._store.json(f"{self.folder}/{name}")

    def __iter__(self) -> Iterator[str]:
        for version in self.versions():
            yield f"{_RELEASES}/{version}{_ENDING}"
        for name in self._store.names(self.folder, _ENDING):
            yield f"{name}{_ENDING}"

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def versions(self) -> tuple[str, ...]:
        """Return the releases with a file, oldest first."""
        return tuple(sorted(self._store.names(f"{self.folder}/{_RELEASES}", _ENDING), key=_version_key))


def _version_key(version: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in version.split("."))
