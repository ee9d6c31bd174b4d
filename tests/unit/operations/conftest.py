"""What every use case is tested in: a cloud in memory, and a disk that is not waited for."""

from __future__ import annotations

import pytest
from fakes.surroundings import Surroundings


@pytest.fixture(autouse=True)
def _no_disk_sync(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _handle: None)


@pytest.fixture
def around(tmp_path):
    return Surroundings(home=tmp_path)
