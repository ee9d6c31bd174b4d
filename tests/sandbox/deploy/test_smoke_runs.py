"""`smoke` as CI runs it: real processes against the sandbox."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from builders.waiting import eventually

SMOKE = ("smoke", "--budget", "3", "--sandbox", "--yes", "--json")


def left(program):
    kept = program.here("gc", "--older-than", "1d").json["data"]["kept"]
    return [thing for group in kept for thing in group["resources"]]


def test_two_models_at_once_leave_nothing(program, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    program.fault(name="engine", engine="oom-load", when={"InstanceType": "g6.xlarge"})
    report = tmp_path / "smoke.xml"
    words = (*SMOKE, "tinyllama-1.1b", "qwen2.5-0.5b", "-j", "2", "--junit", str(report), "--github")
    result = program.run(*words)
    assert result.code == 5, result.out + result.err
    results = result.json["data"]["results"]
    assert sorted(item["exit_code"] for item in results) == [0, 5]
    failed = next(item for item in results if item["exit_code"])
    (case,) = [case for case in failed["cases"] if case["failure"]]
    assert "oom" in case["failure"]["text"] + case["failure"]["message"]
    passed = next(item for item in results if not item["exit_code"])
    assert {"proof longest", "proof together", "removal"} <= {case["name"] for case in passed["cases"]}
    assert passed["usd"] > 0
    root = ET.fromstring(report.read_text())  # noqa: S314 -- our own file
    assert [suite.get("failures") for suite in root].count("1") == 1
    assert summary.read_text().count("\n| ") == 3
    assert result.err.count("::error ") == result.err.count("::notice ") == 1
    assert left(program) == []


def test_a_canceled_job_leaves_nothing(program):
    program.fault(name="slow-boot", boot_s=300)
    job = subprocess.Popen(
        [sys.executable, "-m", "tgi_deploy", *SMOKE, "tinyllama-1.1b"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    eventually(lambda: job.poll() is not None or any(row["phase"] == "running" for row in program.instances()))
    assert job.poll() is None
    job.send_signal(signal.SIGTERM)
    out, _ = job.communicate(timeout=120)
    assert job.returncode == 130, out
    assert json.loads(out)["errors"][0]["code"] == "interrupted"
    assert left(program) == []


def test_smoke_of_a_deployment_proves_it_and_changes_nothing(program):
    assert program.run("up", "tinyllama-1.1b", "--budget", "3", "--yes", "--sandbox", "--ready", "fast").code == 0
    result = program.here("smoke", "tinyllama-1-1b")
    assert result.code == 0, result.out
    proof = result.json["data"]["proofs"]["tinyllama-1-1b"]
    assert proof["level"] == "full"
    assert proof["measured"]["requests"] == 8
    assert len(program.instances()) == 1


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("smoke", "no-such-model", "--yes"), 2, "unknown_model"),
        (("smoke", "tinyllama-1.1b", "--budget", "0.01", "--yes"), 3, "no_feasible_plan"),
        (("smoke", "tinyllama-1.1b"), 2, "confirmation_needed"),
        (
            ("smoke", "tinyllama-1.1b", "--yes", "--junit", "/nowhere/smoke.xml", "--budget", "0.01"),
            2,
            "unwritable_file",
        ),
    ],
)
def test_an_unplannable_model_is_reported(program, words, code, error):
    result = program.here(*words)
    assert (result.code, result.json["errors"][0]["code"]) == (code, error)
