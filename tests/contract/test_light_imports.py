"""Commands that need no cloud don't load cloud libraries, measured in a real process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_HEAVY = ("boto3", "botocore", "docker", "moto", "rich", "tenacity", "urllib3", "asyncio", "http.client")
_PROBE = """
import json, sys
from tgi_deploy.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
loaded = sorted(name for name in %r if name in sys.modules)
print(json.dumps({"exit_code": code, "loaded": loaded, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


def probe(*args):
    finished = subprocess.run(
        [sys.executable, "-c", _PROBE % (_HEAVY,), *args], capture_output=True, text=True, check=True
    )
    return json.loads(finished.stderr.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("plan", "--help"),
        ("up", "--help"),
        ("down", "--help"),
        ("sandbox", "--help"),
        ("plan", "llama3-13b", "--budget", "5"),
        ("plan", "llama3-13b", "--budget", "0.3"),
        ("render", "llama3-13b", "--budget", "5", "--as", "docker"),
        ("plan", "llama3-13b", "--budget", "5", "--target", "sagemaker"),
        ("render", "llama3-13b", "--budget", "5", "--as", "sagemaker"),
        ("doctor", "--policy", "--target", "sagemaker"),
        ("catalog", "list", "engines"),
        ("completion", "bash"),
    ],
)
def test_no_cloud_library_is_loaded(args):
    assert probe(*args)["loaded"] == []


def test_planning_loads_no_template_engine_and_nothing_that_acts():
    """Importing the code that starts machines would take more than a tenth of a plan's time."""
    modules = set(probe("plan", "llama3-13b", "--budget", "5", "--json")["modules"])
    assert "jinja2" not in modules
    assert {name.rpartition(".")[2] for name in modules if name.startswith("tgi_deploy.targets.ec2.")} == {
        "connection", "ingress", "options", "survey", "target",
    }  # fmt: skip


def test_help_loads_no_command():
    ours = {name for name in probe("--help")["modules"] if name.startswith("tgi_deploy")}
    assert ours == {
        "tgi_deploy",
        "tgi_deploy.cli",
        "tgi_deploy.cli.frame",
        "tgi_deploy.cli.main",
    }


def test_a_loaded_library_is_detected():
    found = subprocess.run(
        [sys.executable, "-c", f"import boto3, sys; print([n for n in {_HEAVY!r} if n in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "boto3" in found.stdout
