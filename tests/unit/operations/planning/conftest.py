"""A locked plan on disk, and the command line that made it."""

from __future__ import annotations

import json

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT


@pytest.fixture
def tool(capsys, tmp_path, monkeypatch):
    """Runs a command in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(tmp_path / "state"))

    def run(*argv):
        exit_code = frame.run(ROOT, argv)
        return exit_code, *capsys.readouterr()

    return run


@pytest.fixture
def locked(tool, tmp_path):
    """The path of a lock, and what `plan` printed when it was written."""
    exit_code, out, _ = tool("plan", "llama3-13b", "--budget", "5", "--lock", "plan.lock")
    assert exit_code == 0
    return tmp_path / "plan.lock", out.partition("\nMore with --explain")[0]


@pytest.fixture
def edited(locked):
    """Writes a changed copy of the lock: `edited("new.lock", cost={...})` merges tables of the plan."""
    path, _ = locked

    def write(name, **tables):
        document = json.loads(path.read_text())
        for table, changes in tables.items():
            document["plan"][table] |= changes
        copy = path.with_name(name)
        copy.write_text(json.dumps(document))
        return copy

    return write
