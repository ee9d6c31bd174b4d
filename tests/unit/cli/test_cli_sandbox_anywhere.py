"""`--sandbox` goes with every command; those that ask no cloud take it for nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "llama3-13b", "--budget", "5"),
        ("render", "llama3-13b", "--as", "docker"),
        ("catalog", "list", "regions"),
        ("profile", "list"),
    ],
)
def test_a_command_that_asks_no_cloud_starts_none(words):
    done = subprocess.run(
        [sys.executable, "-m", "tgi_deploy", *words, "--sandbox", "--json"], capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout)["exit_code"] == 0
    assert not (Path(os.environ["TGI_DEPLOY_HOME"]) / "sandbox").exists()
