from __future__ import annotations

import pytest

from tgi_deploy.catalog.catalog import Catalog


@pytest.fixture(scope="session")
def catalog():
    return Catalog.open()
