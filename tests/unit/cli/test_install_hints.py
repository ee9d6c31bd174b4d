"""The command that adds a missing extra works wherever the program was installed from."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys

import pytest

from tgi_deploy import extras
from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT
from tgi_deploy.cli.output import error_lines


@pytest.fixture
def prefix(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def test_pip_of_this_very_python_installs_the_packages():
    words = shlex.split(extras.install_command("sandbox"))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert [word.partition("[")[0].partition(">")[0] for word in words[4:]] == [
        "moto",
        "psutil",
        "pyyaml",
        "websockets",
    ]


@pytest.mark.parametrize("extra", ["certificate", "docker", "hub", "kubernetes", "plot", "sandbox"])
def test_the_printed_command_is_whole(extra):
    missing = extras.extra_missing(extra, "starting", ImportError(name="it"))
    assert list(error_lines(missing.problem))[1].partition(": ")[2] == extras.install_command(extra)


def test_an_installation_of_pipx_is_added_to_by_pipx(prefix):
    (prefix / "pipx_metadata.json").write_text("{}")
    words = shlex.split(extras.install_command("hub"))
    assert words[:3] == ["pipx", "inject", "tgi-deploy"]
    assert words[3].startswith("huggingface")


def test_an_environment_without_pip_is_added_to_by_uv(prefix, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    words = shlex.split(extras.install_command("docker"))
    assert words[:5] == ["uv", "pip", "install", "--python", sys.executable]


def test_a_source_tree_that_was_never_installed_names_itself(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    words = shlex.split(extras.install_command("plot"))
    assert words[-2] == "-e"
    assert words[-1].endswith("[plot]")


@pytest.fixture
def without_the_sandbox(monkeypatch, tmp_path):
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "psutil", None)
    for name in [name for name in sys.modules if name.startswith("tgi_deploy.sandbox")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("tgi_deploy.sandbox", raising=False)
    return tmp_path / "sandbox"


@pytest.mark.parametrize("words", ["sandbox status", "sandbox stop", "rehearse llama3-8b --budget 2", "list --sandbox"])
def test_every_command_of_the_sandbox_names_its_extra(words, without_the_sandbox, capsys):
    without_the_sandbox.mkdir()
    assert frame.run(ROOT, words.split()) == 2
    err = capsys.readouterr().err
    assert "error[extra_missing]" in err
    assert "'psutil'" in err


def test_without_the_extra_and_without_a_sandbox_there_is_none_to_stop(without_the_sandbox):
    assert frame.run(ROOT, ["sandbox", "stop"]) == 0
    assert frame.run(ROOT, ["sandbox", "status"]) == 0
    assert not without_the_sandbox.exists()
