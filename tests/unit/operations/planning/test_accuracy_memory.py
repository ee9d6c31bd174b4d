"""The published table of memory errors is current and complete."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tgi_deploy.wiring import open_catalog

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "scripts"))

import accuracy_memory  # noqa: E402 -- scripts are not a package


def test_the_document_shows_todays_table() -> None:
    document = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert accuracy_memory.updated(document) == document


def test_rows_from_another_file_are_scored(tmp_path: Path) -> None:
    rows = accuracy_memory.measured_rows()
    other = tmp_path / "rows.csv"
    header = ",".join(rows[0])
    other.write_text(f"{header}\n" + ",".join('"' + rows[1][key] + '"' for key in rows[0]) + "\n", encoding="utf-8")
    assert "| checkpoint files | 1 | 0.00% |" in accuracy_memory.report(other)


def test_a_row_that_cannot_be_predicted_is_named() -> None:
    row = accuracy_memory.measured_rows()[0] | {"metric": "temperature", "id": "x1"}
    found, failed = accuracy_memory.scored([row], open_catalog())
    assert found == []
    assert failed[0][0] == "x1"
    assert "temperature" in failed[0][1]


@pytest.mark.parametrize(("measured", "reported"), [("16060522496", False), ("26060522496", True)])
def test_misses_are_named(measured: str, reported: bool) -> None:  # noqa: FBT001 -- a case
    row = next(row for row in accuracy_memory.measured_rows() if row["id"] == "m015") | {"value": measured}
    found, _ = accuracy_memory.scored([row], open_catalog())
    assert bool(list(accuracy_memory.misses(found))) is reported
