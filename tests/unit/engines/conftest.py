"""One catalogue for all tests of engines: its files are read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.catalog.catalog import Catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return open_catalog()
