from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tgi_deploy.cli.frame import run
from tgi_deploy.cli.main import ROOT

NOWHERE = "unix:///nowhere/docker.sock"


@pytest.fixture
def tool(capsys, monkeypatch, tmp_path):
    """Run the program; return the exit code and the `--json` output."""
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    monkeypatch.setenv("KEY", "made-up-key-0123456789")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)

    def call(*words):
        code = run(ROOT, [*words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def up(*words):
    return ("up", "llama3-8b", "--target", "docker", "--hardware", "1xL40S", "--yes", *words)


def refused(tool, *words):
    code, document = tool(*words)
    (error,) = document["errors"]
    assert error["hint"]
    return code, error["code"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--ttl", "2h"), "limits_unsupported"),
        (("--max-spend", "5"), "limits_unsupported"),
        (("--bind", "0.0.0.0"), "world_exposed"),  # noqa: S104 -- what is refused
        (("--bind", "::"), "world_exposed"),
        (("--bind", "nonsense"), "bad_option_value"),
        (("--bind", "8.8.4.4", "--api-key-from-env", "KEY"), "plaintext_key"),
        (("--expose-to-world", "--api-key-from-env", "KEY"), "plaintext_key"),
        (("--subnet", "subnet-1"), "conflicting_options"),
        (("--allow-cidr", "203.0.113.0/24"), "conflicting_options"),
        (("--ami", "ami-0123456789abcdef0"), "conflicting_options"),
        (("--sandbox",), "conflicting_options"),
    ],
)
def test_ec2_options_are_rejected_on_docker(tool, words, code):
    assert refused(tool, *up(*words)) == (2, code)


def test_bind_is_rejected_on_ec2(tool):
    assert refused(tool, "up", "llama3-8b", "--bind", "127.0.0.1", "--yes") == (2, "conflicting_options")


def test_a_limit_from_the_environment_is_rejected(tool, monkeypatch):
    monkeypatch.setenv("TGI_DEPLOY_TTL", "2h")
    assert refused(tool, *up()) == (2, "limits_unsupported")


def test_an_unreachable_host_is_named(tool, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    code, document = tool(*up())
    assert (code, document["errors"][0]["code"]) == (1, "docker_unreachable")
    assert NOWHERE in document["errors"][0]["message"]


def test_a_remote_host_needs_the_hardware_option(tool, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert refused(tool, "plan", "llama3-8b", "--target", "docker") == (2, "hardware_needed")


def test_without_a_gpu_nothing_is_planned_silently(tool):
    assert refused(tool, "plan", "llama3-8b", "--target", "docker") == (2, "no_gpu")


def test_this_computers_gpus_are_planned_for(tool, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, GPU-a, NVIDIA RTX A6000, 49140, 9000, 8.6, [N/A]'\n", encoding="utf-8")
    program.chmod(0o755)
    code, document = tool("plan", "llama3-8b", "--target", "docker")
    assert code == 0
    assert document["data"]["plan"]["chosen"]["instance_type"] == "1xRTX-A6000"
    assert "gpu_in_use" in {warning["code"] for warning in document["warnings"]}


@pytest.mark.parametrize("command", [("list",), ("gc", "--dry-run"), ("status", "x"), ("logs", "x"), ("down", "x")])
def test_a_region_and_a_docker_host_exclude_each_other(tool, command):
    assert refused(tool, *command, "--target", "docker", "--region", "us-east-1") == (2, "conflicting_options")


def test_a_list_of_an_unreachable_host_is_a_warning(tool):
    code, document = tool("list", "--target", "docker")
    assert code == 0
    assert document["data"]["regions"] == [f"docker:{NOWHERE}"]
    assert [warning["code"] for warning in document["warnings"]] == ["docker_unreachable"]


def test_planning_for_docker_does_not_load_dockers_package(tmp_path):
    look = (
        "import sys; from tgi_deploy.cli.frame import run; from tgi_deploy.cli.main import ROOT; "
        "run(ROOT, ['plan', 'llama3-8b', '--target', 'docker', '--hardware', '1xL40S']); "
        "sys.exit(any(name in sys.modules for name in ('docker', 'boto3', 'pynvml', 'requests')))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
