"""The fake cloud for tests of use cases."""

from __future__ import annotations

import pytest
from fakes.computer import FakeComputer


@pytest.fixture
def around(tmp_path):
    return FakeComputer(home=tmp_path)
