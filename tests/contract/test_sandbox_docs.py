from __future__ import annotations

from pathlib import Path

from tgi_deploy.sandbox.engine.situation import Fault
from tgi_deploy.sandbox.faults import NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text(encoding="utf-8")


def test_every_fault_of_the_cloud_is_on_the_page():
    assert [name for name in NAMES if f"`{name}`" not in PAGE] == []


def test_every_fault_of_the_engine_is_on_the_page():
    assert [fault.value for fault in Fault if f"`{fault.value}`" not in PAGE] == []
