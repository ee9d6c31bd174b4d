"""A locked plan on disk, and the command line that wrote it."""

from __future__ import annotations

import contextlib
import io
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


@pytest.fixture(scope="session")
def written_lock(tmp_path_factory):
    """A lock's text, and what `plan` printed when it was written."""
    path = tmp_path_factory.mktemp("lock") / "plan.lock"
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(io.StringIO()) as out:
        patched.setenv("COLUMNS", "100")
        assert frame.run(ROOT, ("plan", "llama3-13b", "--budget", "5", "--lock", str(path))) == 0
    return path.read_text(), out.getvalue().partition("\nMore with --explain")[0]


@pytest.fixture
def locked(written_lock, tool, tmp_path):
    """The path of a lock in the empty folder, and what `plan` printed when it was written."""
    path = tmp_path / "plan.lock"
    path.write_text(written_lock[0])
    return path, written_lock[1]


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
