"""The real command line against one quick sandbox, emptied before each test."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.sandbox import api, control

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Said:
    """One run: exit code, stdout, stderr; `json` is the envelope."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Program:
    url: str
    access_key: str
    home: Path
    capsys: pytest.CaptureFixture[str]

    def control(self, method: str, path: str, document: object = None) -> Any:
        return api.control(
            api.Endpoint(url=self.url, access_key=self.access_key), method, f"/_sandbox/{path}", document
        )

    def run(self, *words: str) -> Said:
        code = frame.run(ROOT, words)
        captured = self.capsys.readouterr()
        return Said(code, captured.out, captured.err)

    def here(self, *words: str) -> Said:
        """With --sandbox and --json."""
        return self.run(*words, "--sandbox", "--json")

    def fault(self, **document: Any) -> None:
        self.control("POST", "faults", document)

    def calls(self, action: str) -> list[dict[str, Any]]:
        return self.control("GET", f"calls?action={action}")["calls"]

    def all_calls(self) -> list[dict[str, Any]]:
        return self.control("GET", "calls")["calls"]

    def instances(self) -> list[dict[str, Any]]:
        """Deployments that the cloud itself knows."""
        return self.here("list").json["data"]["deployments"]


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
