"""One catalog for all planner tests: its files are read once."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tgi_deploy.values.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.catalog.catalog import Catalog


@pytest.fixture(scope="session")
def make_request(catalog: Catalog) -> Callable[..., Request]:
    """Return a request for a model with typical values; any field can be changed."""

    def make(model: str, **changes: Any) -> Request:
        profile = catalog.resolve(model)
        usual: dict[str, Any] = {
            "model": profile,
            "engine_version": catalog.default_release,
            "input_tokens": 512,
            "output_tokens": 128,
            "concurrency": 8,
            "context_tokens": min(profile.model.max_position_embeddings, 8192),
        }
        if isinstance(changes.get("budget_usd_per_hour"), str):
            changes["budget_usd_per_hour"] = Decimal(changes["budget_usd_per_hour"])
        return Request(**(usual | changes))

    return make
