"""The tests that docs/testing.md names for the promises of docs/guarantees.md exist, and every promise has one."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROMISES = (REPOSITORY / "docs" / "guarantees.md").read_text(encoding="utf-8")
INDEX = (REPOSITORY / "docs" / "testing.md").read_text(encoding="utf-8").partition("## Which test proves")[2]
PROOFS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", INDEX)


def sections(text, level):
    """The text under each heading of that level."""
    parts = re.split(f"^{level} ", text, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_every_named_test_exists():
    assert PROOFS
    for path, name in PROOFS:
        source = (REPOSITORY / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"{path}::{name}"


def test_every_promise_has_limits_and_tests():
    promises, proofs = sections(PROMISES, "##"), sections(INDEX, "###")
    assert list(promises) == list(proofs)
    for title, text in promises.items():
        assert "*Limits.*" in text, title
        assert "::test_" in proofs[title], title
