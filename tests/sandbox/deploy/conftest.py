"""The real command line against one fast sandbox, emptied before each test."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from builders.sandboxed import Program

from tgi_deploy.sandbox import api, control

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("deploy")
    control.start(home / "sandbox", speed=600.0)
    yield home
    control.stop(home / "sandbox")


@pytest.fixture
def program(_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(_home))
    info = control.start(_home / "sandbox", speed=600.0)
    api.control(info.endpoint, "POST", "/_sandbox/reset")
    for records in ("sandbox/records", "deployments", "elsewhere"):
        shutil.rmtree(_home / records, ignore_errors=True)
    return Program(url=info.endpoint_url, access_key=info.access_key, home=_home, capsys=capsys)
