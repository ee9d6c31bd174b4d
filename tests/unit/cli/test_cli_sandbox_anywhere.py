"""Every command accepts `--sandbox`; commands without a cloud ignore it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tgi_deploy.cli import frame
from tgi_deploy.cli.main import ROOT


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "llama3-13b", "--budget", "5"),
        ("render", "llama3-13b", "--as", "docker"),
        ("catalog", "list", "regions"),
        ("profile", "list"),
    ],
)
def test_a_command_without_cloud_calls_starts_no_sandbox(words):
    assert frame.run(ROOT, [*words, "--sandbox"]) == 0
    assert not (Path(os.environ["TGI_DEPLOY_HOME"]) / "sandbox").exists()


def test_missing_credentials_are_reported_before_an_address_lookup(capsys):
    """The lookup needs the internet, and is pointless without credentials."""
    assert frame.run(ROOT, ["up", "llama3-13b", "--budget", "5", "--yes"]) == 1
    assert "error[no_credentials]" in capsys.readouterr().err
