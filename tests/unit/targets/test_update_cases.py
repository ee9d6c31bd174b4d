"""The script that rewrites expectations, on a tests folder of its own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parents[3] / "scripts" / "update_cases.py"
WALKER = "def outputs(folder):\n    return {'out.txt': (folder / 'case.toml').read_text().upper()}\n"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_cases", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tests folder with one kind of case, `shout`, and one that has no walker."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "builders.case_shout", raising=False)
    for folder in ("builders", "cases/shout/deep/one", "cases/shout/two", "cases/other/three"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "builders" / "case_shout.py").write_text(WALKER)
    for case in ("shout/deep/one", "shout/two", "other/three"):
        (tmp_path / "cases" / case / "case.toml").write_text(f"# {case}")
    return tmp_path


def test_writes_what_is_missing_and_then_nothing(script, tests: Path, capsys: pytest.CaptureFixture[str]):
    assert script.main(["--tests", str(tests)]) == 0
    assert capsys.readouterr().out.split() == ["cases/shout/deep/one/out.txt", "cases/shout/two/out.txt"]
    assert (tests / "cases/shout/two/out.txt").read_text() == "# SHOUT/TWO"
    assert script.main(["--tests", str(tests)]) == 0
    assert capsys.readouterr().out == ""


def test_check_tells_and_writes_nothing(script, tests: Path):
    assert script.main(["--tests", str(tests), "--check"]) == 1
    assert not (tests / "cases/shout/two/out.txt").exists()
    script.main(["--tests", str(tests)])
    assert script.main(["--tests", str(tests), "--check"]) == 0


def test_removes_what_is_no_longer_wanted(script, tests: Path):
    stale = tests / "cases/shout/two/errors.txt"
    stale.write_text("old")
    script.main(["--tests", str(tests), "two"])
    assert not stale.exists()
    assert not (tests / "cases/shout/deep/one/out.txt").exists()


def test_leaves_kinds_without_a_walker_alone(script, tests: Path):
    script.main(["--tests", str(tests)])
    assert [path.name for path in (tests / "cases/other/three").iterdir()] == ["case.toml"]
