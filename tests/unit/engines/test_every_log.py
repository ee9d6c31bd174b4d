"""The logs of every engine, read with its grammar."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders import engines
from builders.logs import grammar_of
from builders.samples import quick

from tgi_deploy import wiring
from tgi_deploy.data_files import profiles_dir
from tgi_deploy.diagnosis.lines import redacted
from tgi_deploy.diagnosis.patterns import STARTUP_PHASES
from tgi_deploy.diagnosis.reader import read

CASES = Path(__file__).parents[2] / "cases/engines"


def recorded() -> list[Any]:
    return [
        pytest.param(engine.name, case, id=f"{engine.name}: {case['name']}")
        for engine in engines.EVERY
        for case in json.loads((CASES / engine.name / "logs.json").read_text())
    ]


@pytest.mark.parametrize(("engine", "case"), recorded())
def test_a_real_log_is_read_as_recorded(engine: str, case: dict[str, Any]) -> None:
    grammar, expected = grammar_of(engine), case["expect"]
    parts = ["\n".join(case["lines"][:count]) + "\n" for count in range(1, len(case["lines"]) + 1)]
    readings = [read(part, grammar) for part in parts]
    shown = [reading.startup_phase for reading in readings if reading.latest.phase_seen]
    assert list(dict.fromkeys(shown)) == expected["phases"]
    last = readings[-1]
    assert last.progress.kv_capacity_tokens == expected["kv_capacity_tokens"]
    assert last.latest.failed == expected["failed"]
    assert next((item.code for item in last.findings), None) == expected["finding"]


@pytest.mark.parametrize("engine", engines.EVERY, ids=lambda engine: engine.name)
def test_a_start_that_is_read_line_by_line_never_goes_back(engine: Any) -> None:
    case = json.loads((CASES / engine.name / "logs.json").read_text())[0]
    grammar, reading, phases = grammar_of(engine.name), None, []
    for line in case["lines"]:
        reading = read(f"{line}\n", grammar, before=reading)
        phases.append(STARTUP_PHASES.index(reading.startup_phase))
    assert phases == sorted(phases)


@pytest.mark.parametrize("engine", engines.EVERY, ids=lambda engine: engine.name)
def test_remedies_name_only_their_own_engines_flags(engine: Any) -> None:
    releases = {path.stem for path in (profiles_dir() / "engines" / engine.name / "releases").glob("*.json")}
    for code, page in grammar_of(engine.name).pages.items():
        for command in page.remedy.commands:
            assert set(re.findall(r"--engine-version (\d[\w.]*)", command)) <= releases, code
            assert engine.name == "tgi" or "--set" not in command, code


def documented() -> list[Any]:
    return [
        pytest.param(path.parent.name, case, id=f"{path.parent.name}: {case['code']}")
        for path in sorted(CASES.glob("*/failures.json"))
        for case in json.loads(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("engine", "case"), documented())
def test_failure_texts_of_an_engine_are_recognized(engine: str, case: dict[str, Any]) -> None:
    found = read("\n".join(case["log"]) + "\n", grammar_of(engine)).findings
    assert [item.code for item in found][:1] == [case["code"]]


@pytest.mark.parametrize("path", quick(sorted(CASES.glob("*/logs/*.log")), 4), ids=lambda path: path.stem)
def test_a_complete_log_shows_its_engine_and_failure(path: Path) -> None:
    """The file is named after the failure; `clean` is none."""
    log = path.read_text(encoding="utf-8")
    assert wiring.engine_of_log(log) == path.parent.parent.name
    found = [item.code for item in read(log, grammar_of(path.parent.parent.name)).findings]
    code = path.stem.partition("-")[0]
    assert found[:1] == ([] if code == "clean" else [code])


@pytest.mark.slow
def test_logs_of_the_planned_engine_are_recognized() -> None:
    logs = sorted(CASES.parent.glob("diagnosis/*/log.*"))
    assert {wiring.engine_of_log(path.read_text(encoding="utf-8")) for path in logs} == {wiring.engine_named().name}


@pytest.mark.parametrize("engine", engines.EVERY, ids=lambda engine: engine.name)
def test_an_api_key_is_redacted_from_logs(engine: Any) -> None:
    log = (CASES / engine.name / "logs_its_api_key.txt").read_text()
    shown = redacted(log, grammar_of(engine.name))
    assert "sekret-key-1" in log
    assert "sekret-key-1" not in shown
    assert re.search(r"\*\*\*|…", shown)
