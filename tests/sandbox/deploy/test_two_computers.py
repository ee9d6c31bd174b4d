"""Two computers, one cloud: what the second can do with a deployment of the first, without its record."""

from __future__ import annotations

import shutil
import subprocess
import sys

import boto3
import pytest

UP = ("up", "tinyllama-1.1b", "--name", "shared", "--budget", "3", "--yes", "--ttl", "1h")


@pytest.fixture
def second(program, monkeypatch):
    """Bring it up on the first computer; return the second, which has a separate home."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", program.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", program.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sandbox")
    result = program.run(*UP, "--ready", "fast", "--allow-cidr", "127.0.0.1/32", "--json")
    assert result.code == 0, result.out
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(program.home / "elsewhere"))
    return program


def launches(program):
    return len(program.calls("RunInstances"))


def test_commands_that_need_only_tags_work(second):
    begun = launches(second)
    status = second.run("status", "shared", "--json")
    assert status.code == 0, status.out
    data = status.json["data"]
    assert data["url"].startswith("https://")
    assert [item["status"] for item in data["replicas"]] == ["ready"]
    (row,) = second.run("list", "--json").json["data"]["deployments"]
    assert (row["now"], row["endpoint"], row["recorded"]) == ("ready", data["url"], False)
    assert row["model"]
    opened = second.run("open", "shared", "--json")
    assert opened.json["data"]["url"] == data["url"]
    check_pinned(opened.json["data"])
    assert second.run("logs", "shared", "--tail", "3").code == 0
    assert second.run("diagnose", "shared", "--json").code == 0
    for words in (("--chat",), ("--no-chat",), ()):
        asked = second.run("ask", "shared", "What is a GPU?", "--max-tokens", "20", *words, "--json")
        assert asked.code == 0, asked.out
        assert asked.json["data"]["tokens"] == 20
        assert asked.json["data"]["answer"]
    page = second.run("runbook", "shared", "--json")
    assert page.code == 0, page.out
    assert data["url"] in page.json["data"]["markdown"]
    proved = second.run("smoke", "shared", "--json")
    assert proved.code == 0, proved.out
    assert proved.json["data"]["proofs"]["shared"]["level"] == "full"
    extended = second.run("extend", "shared", "--ttl", "2h", "--json")
    assert extended.code == 0, extended.out
    assert launches(second) == begun
    removed = second.run("down", "shared", "--yes", "--json")
    assert (removed.code, removed.json["data"]["removed"]) == (0, ["shared"])


def check_pinned(opened):
    """Check that the printed command reaches this machine's engine, and none with another certificate."""
    snippet = [sys.executable, "-c", opened["python"]]
    other = [*snippet[:2], snippet[2].replace(opened["certificate"], "5a" * 32)]
    curl = ["bash", "-c", opened["curl"]]
    another = [*curl[:2], curl[2].replace("--pinnedpubkey sha256//", "--pinnedpubkey sha256//AAAA")]
    commands = [(snippet, 0), (other, 1)]
    if shutil.which("curl"):
        commands += [(curl, 0), (another, 90)]  # 90: curl's own for another key
    for words, code in commands:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, "generated_text" in done.stdout) == (code, code == 0), done


def test_a_machine_terminated_by_others_exits_5_on_both(second, monkeypatch):
    (replica,) = second.run("status", "shared", "--json").json["data"]["replicas"]
    client = boto3.client("ec2", region_name=replica["location"], endpoint_url=second.url)
    client.terminate_instances(InstanceIds=[replica["id"]])
    for home in ("elsewhere", ""):
        monkeypatch.setenv("TGI_DEPLOY_HOME", str(second.home / home))
        result = second.run("status", "shared", "--json")
        assert (result.code, result.json["exit_code"]) == (5, 5), result.out
        assert result.json["errors"][0]["code"] in {"machine_missing", "not_answering"}
        assert "tgi-deploy down shared" in result.json["errors"][0]["hint"]


def test_the_same_up_on_another_computer_launches_nothing(second):
    begun = launches(second)
    result = second.run(*UP, "--ready", "fast", "--allow-cidr", "127.0.0.1/32", "--json")
    assert (result.code, result.json["errors"][0]["code"]) == (4, "name_taken"), result.out
    assert "the same command resumes it" in result.json["errors"][0]["hint"]
    assert launches(second) == begun
