from __future__ import annotations

import importlib
from pathlib import Path

from tgi_deploy.sandbox.engine.situation import Fault
from tgi_deploy.sandbox.faults import NAMES
from tgi_deploy.sandbox.guest.docker import FAULTS

ROOT = Path(__file__).parents[2]


def test_the_table_of_faults_is_current(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    faults = importlib.import_module("update_faults")
    assert faults.TARGET.read_text(encoding="utf-8") == faults.page(), "run scripts/update_faults.py"
    assert faults.main(["--check"]) == 0


def test_machine_faults_are_documented():
    page = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")
    assert [name for name in FAULTS if f"`{name}`" not in page] == []


def test_engine_machine_and_cloud_faults_have_different_names():
    names = [*NAMES, *(fault.value for fault in Fault), *FAULTS]
    assert len(names) == len(set(names))
