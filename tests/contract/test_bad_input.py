"""Bad input, one file per case: one line with a code and a hint, the right exit code, and nothing left behind."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.samples import quick

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.outcome import write

CASES = sorted((Path(__file__).parents[1] / "cases" / "bad_input").glob("*.toml"))
KEYS = {"schema", "command", "status", "exit_code", "data", "warnings", "errors"}
LONGEST_LINE = 800


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A working folder and a home folder, both checked for changes."""
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(home / "state"))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return work, home


@pytest.fixture
def prepared(request, places, monkeypatch):
    case = tomllib.loads(request.param.read_text())
    assert case.keys() <= {"args", "exit_code", "code", "says", "hint", "env", "files"}
    for name, content in case.get("files", {}).items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _seconds: None))  # between attempts
    case["args"] = [argument.replace("{70kb}", "x" * 70_000) for argument in case["args"]]
    return case


@pytest.mark.parametrize("prepared", quick(CASES, 25), ids=lambda path: path.stem, indirect=True)
def test_bad_input(prepared, places, capsys):
    before = [tree(place) for place in places]

    invocation = frame.Invocation(as_json=False)
    result = frame._result(ROOT, prepared["args"], invocation)
    exit_code = write(result, invocation)
    err = capsys.readouterr().err
    lines = err.splitlines()
    assert exit_code == prepared["exit_code"], err
    assert lines[0].startswith(f"error[{prepared['code']}]: "), err
    assert lines[1].startswith("hint: "), err
    assert len(lines) == 2
    assert all(len(line) <= LONGEST_LINE and line.isprintable() for line in lines)
    assert all(fragment in lines[0] for fragment in prepared["says"]), err
    assert prepared.get("hint", "") in lines[1]
    assert "Traceback" not in err

    invocation.as_json = True
    assert write(result, invocation) == exit_code
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert document.keys() == KEYS
    assert (document["status"], document["exit_code"]) == ("error", exit_code)
    assert document["errors"][0]["code"] == prepared["code"]
    assert document["errors"][0]["hint"]

    assert [tree(place) for place in places] == before
