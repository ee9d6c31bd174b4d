from __future__ import annotations

import pytest

from tgi_deploy.wiring import open_catalog


@pytest.fixture(scope="session")
def catalog():
    return open_catalog()
