"""docs/guarantees.md names tests as proof: they exist, and every promise has one."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs" / "guarantees.md").read_text(encoding="utf-8")
PROOFS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)
SECTIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]


def test_every_test_that_is_named_exists():
    assert len(PROOFS) >= 25
    for path, name in PROOFS:
        source = (REPOSITORY / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"{path}::{name}"


def test_every_section_has_its_proofs_and_its_limits():
    for section in SECTIONS:
        title = section.splitlines()[0]
        assert "::test_" in section, title
        assert "*Limits.*" in section, title
