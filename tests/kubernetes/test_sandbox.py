"""`--sandbox`: the program starts a cluster of its own, uses it in every command, and leaves nothing."""

from __future__ import annotations

import json
import shlex

import pytest

from tgi_deploy import Client
from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.errors import InputError
from tgi_deploy.sandbox.processes import processes

pytestmark = pytest.mark.control_plane
NAME = "llama3-13b"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    yield tmp_path / "home"
    Client().sandbox_stop()


@pytest.fixture
def run(home, capsys):
    """Return a function that runs a command and returns its exit code and its envelope."""

    def command(*words):
        code = frame.run(ROOT, (*words, "--json"))
        return code, json.loads(capsys.readouterr().out)

    return command


@pytest.mark.usefixtures("plane")  # skips where the servers are missing
def test_every_command_uses_the_sandbox_and_its_stop_leaves_nothing(home, run):
    up = ("up", NAME, "--budget", "5", "--target", "kubernetes", "--sandbox")
    code, made = run(*up, "--yes")
    assert code == 0, made["errors"]
    code, shown = run("status", NAME, "--sandbox")
    assert (code, shown["data"]["replicas"][0]["status"]) == (0, "ready")
    code, answered = run("ask", NAME, "Hello", "--sandbox")
    assert code == 0, answered["errors"]
    code, gated = run("up", "llama3-8b", *up[2:], "--dry-run")
    assert code == 0, gated["errors"]
    code, removed = run("down", NAME, "--sandbox", "--yes")
    assert code == 0, removed["errors"]
    assert run("sandbox", "stop")[0] == 0
    assert [item.command for item in processes() if str(home) in item.command] == []
    assert list(home.iterdir()) == []


def test_without_the_servers_the_hint_is_the_line_that_builds_them(home, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(InputError) as caught:
        Client(target="kubernetes", sandbox=True).up("llama3-13b")
    assert caught.value.code == "control_plane_missing"
    *_, script, verb = shlex.split(caught.value.hint)
    assert (script.endswith("/scripts/control_plane"), verb) == (True, "build")
