"""Data for comparisons only: which engine backend runs a chip, and commonly misquoted figures.

Read from the engine's `backends.json` and from `misquoted.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.fields import IGNORED, OPTIONAL_TEXT, REQUIRED_TEXT, Field, boolean, read, scalar, table
from tgi_deploy.values.base import Where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.store import Store

BACKENDS_FILE: Final = "backends.json"
MISQUOTED_FILE: Final = "misquoted.json"

_BACKEND: Final = {
    "title": REQUIRED_TEXT,
    "image": Field(check=lambda value: value if value is None else str(value)),
    "needs": REQUIRED_TEXT,
    "planned": Field(check=boolean),
    "build": IGNORED,
    "source": REQUIRED_TEXT,
}
_SUPPORT: Final = {
    "backend": Field(check=lambda value: value if value is None else str(value)),
    "reason": OPTIONAL_TEXT,
    "unproven": Field(check=boolean, required=False),
    "source": OPTIONAL_TEXT,
}
_MISQUOTE: Final = {
    "accelerator": REQUIRED_TEXT,
    "figure": REQUIRED_TEXT,
    "quoted": Field(check=scalar),
    "right": Field(check=scalar),
    "why": REQUIRED_TEXT,
    "source": REQUIRED_TEXT,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """One of the engine's builds. `planned`: plans support it; others must be set up by hand."""

    name: str
    title: str
    image: str | None
    needs: str
    planned: bool
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Support:
    """The backend that runs a chip, or None with the reason. `unproven`: there is no evidence that it works."""

    backend: Backend | None
    reason: str = ""
    unproven: bool = False
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Misquote:
    """A commonly misquoted figure. `figure` is a field of the accelerator, or `memory`."""

    accelerator: str
    figure: str
    quoted: str | float
    right: str | float
    why: str
    source: str


class Comparison:
    """The backends and the misquoted figures, each file read on first use."""

    def __init__(self, store: Store, engine_folder: str) -> None:
        self._store = store
        self._file = f"{engine_folder}/{BACKENDS_FILE}"

    @cached_property
    def backends(self) -> Mapping[str, Backend]:
        where = Where(self._file).child("backends")
        entries = table(self._store.json(self._file).get("backends"), where)
        return {name: Backend(name=name, **read(raw, _BACKEND, where.child(name))) for name, raw in entries.items()}

    def support(self, accelerator: str) -> Support:
        """Return the backend that runs a chip. Raises InputError `bad_profile` for a chip that is not in the file."""
        where = Where(self._file).child("accelerators").child(accelerator)
        entries = table(self._store.json(self._file).get("accelerators"), Where(self._file))
        if accelerator not in entries:
            raise where.error("is missing")
        found = read(entries[accelerator], _SUPPORT, where)
        name = found.pop("backend")
        if name is not None and name not in self.backends:
            raise where.child("backend").error("is not one of the backends")
        backend = self.backends[name] if name is not None else None
        return Support(backend=backend, **found)

    def misquoted(self, accelerator: str) -> tuple[Misquote, ...]:
        where = Where(MISQUOTED_FILE).child("misquoted")
        raws = self._store.json(MISQUOTED_FILE).get("misquoted")
        if not isinstance(raws, list):
            raise where.error("should be a list")
        found = (Misquote(**read(raw, _MISQUOTE, where.child(index))) for index, raw in enumerate(raws))
        return tuple(item for item in found if item.accelerator == accelerator)
