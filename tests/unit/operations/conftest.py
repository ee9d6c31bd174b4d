"""The fake cloud for tests of use cases."""

from __future__ import annotations

import pytest
from fakes.surroundings import Surroundings


@pytest.fixture
def around(tmp_path):
    return Surroundings(home=tmp_path)
