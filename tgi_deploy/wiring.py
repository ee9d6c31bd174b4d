"""Where parts that know nothing of one another are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.catalog.hub_models import HubModels
    from tgi_deploy.engines.protocol import Engine

# The first is what plans are made with.
ENGINES: Final[tuple[Engine, ...]] = (Tgi(),)


def engine_named(name: str | None = None) -> Engine:
    """Return the engine that a plan or a record names; None: what plans are made with.

    Raises:
        InputError: `unknown_engine`.
    """
    if name is None:
        return ENGINES[0]
    found = next((engine for engine in ENGINES if engine.name == name), None)
    if found is None:
        known = ", ".join(engine.name for engine in ENGINES)
        raise InputError("unknown_engine", f"there is no engine {name[:60]!a} here", hint=f"this version has {known}")
    return found


def open_catalog(user_dir: Path | None = None, *, hub: HubModels | None = None) -> Catalog:
    """Return the catalogue with every engine. Raises InputError `unreadable_path`."""
    return Catalog.open(user_dir, hub=hub, engines=ENGINES)
