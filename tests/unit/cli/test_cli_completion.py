"""Shell completion, queried like the completion scripts do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT


def offers(line, **environment):
    """Return the completions of `line` in bash."""
    words = line.split(" ")
    finished = subprocess.run(
        [sys.executable, "-m", "tgi_deploy"],
        env={
            **os.environ,
            "_TGI_DEPLOY_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stderr == ""
    return [entry.partition(",")[2] for entry in finished.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tgi-deploy p", ["plan", "profile"]),
        ("tgi-deploy --v", ["--version"]),
        ("tgi-deploy plan llama3-1", ["llama3-13b"]),
        ("tgi-deploy plan elinas/", ["elinas/Llama-3-13B-Instruct"]),
        ("tgi-deploy plan x --instance g6e.x", ["g6e.xlarge"]),
        ("tgi-deploy plan x --hardware 2xRTX-4090", ["2xRTX-4090"]),
        ("tgi-deploy plan x --hardware l40s", ["1xL40S"]),
        ("tgi-deploy plan x --region us-east-", ["us-east-1", "us-east-2"]),
        ("tgi-deploy plan x --market s", ["spot"]),
        ("tgi-deploy plan x --engine-version 3.3.7", ["3.3.7"]),
        ("tgi-deploy plan x --bud", ["--budget"]),
        ("tgi-deploy catalog list re", ["regions"]),
        ("tgi-deploy completion z", ["zsh"]),
        ("tgi-deploy explain no_cap", ["no_capacity"]),
        ("tgi-deploy catalog show g6e.x", ["g6e.xlarge"]),
        ("tgi-deploy catalog list L40", ["L40S", "L40"]),
        ("tgi-deploy nothing x", []),
    ],
)
def test_completion_offers_matching_names(line, expected):
    assert offers(line) == expected


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "down", "logs", "open", "extend", "diagnose", "smoke"])
def test_deployments_are_offered_by_name(tmp_path, command):
    for where, name in (("deployments", "trial-1"), ("sandbox/records/deployments", "practice")):
        folder = tmp_path / where / name
        folder.mkdir(parents=True)
        (folder / "deployment.json").write_text("{}")
    home = {"TGI_DEPLOY_HOME": str(tmp_path)}
    assert offers(f"tgi-deploy {command} tri", **home) == ["trial-1"]
    assert offers(f"tgi-deploy {command} --sandbox pra", **home) == ["practice"]


def test_files_are_offered_to_diagnose():
    assert offers("tgi-deploy diagnose engine.l") == ["engine.l"]


def test_an_unreadable_catalog_offers_nothing(tmp_path):
    (tmp_path / "engines" / "tgi").mkdir(parents=True)
    (tmp_path / "accelerators.json").write_text("{")
    assert offers(f"tgi-deploy plan x --profiles-dir {tmp_path} --hardware 1xL4") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_valid(capsys, tmp_path, shell):
    assert frame.run(ROOT, ["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    interpreter = shutil.which(shell)
    if interpreter is None:
        pytest.skip(f"{shell} is not installed")
    finished = subprocess.run([interpreter, "-n", str(script)], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
