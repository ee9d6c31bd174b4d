"""A deployment that is reached through Session Manager alone: no network may connect, and every command works."""

from __future__ import annotations

import json
import urllib.request

import pytest

from tgi_deploy.sandbox import processes

UP = ("up", "tinyllama-1.1b", "--name", "closed", "--budget", "3", "--yes", "--ttl", "1h", "--tunnel")
KEY = "made-up-key-0123456789"


@pytest.fixture
def closed(program, monkeypatch):
    monkeypatch.setenv("KEY", KEY)
    result = program.here(*UP, "--api-key-from-env", "KEY")
    assert result.code == 0, result.out
    return program


def test_it_is_proved_through_the_tunnel_and_serves_every_command(closed):
    status = closed.here("status", "closed").json["data"]
    assert status["url"] == "http://localhost:8080"
    assert [item["status"] for item in status["replicas"]] == ["ready"]
    assert closed.client("ec2").describe_security_groups(
        Filters=[{"Name": "group-name", "Values": ["tgi-deploy-closed"]}]
    )["SecurityGroups"][0]["IpPermissions"] == []  # fmt: skip
    assert "unencrypted" not in json.dumps(closed.here("status", "closed").json["warnings"])
    asked = closed.here("ask", "closed", "What is a GPU?", "--max-tokens", "20")
    assert (asked.code, asked.json["data"]["tokens"]) == (0, 20), asked.out
    assert closed.here("logs", "closed", "--tail", "3").code == 0
    assert closed.here("smoke", "closed").json["data"]["proofs"]["closed"]["level"] == "full"
    page = closed.here("runbook", "closed").json["data"]["markdown"]
    assert "--tunnel --name closed" in page
    repeated = closed.here(*UP, "--api-key-from-env", "KEY")
    assert (repeated.code, repeated.json["data"]["changed"]) == (0, False)
    assert closed.here("down", "closed", "--yes").code == 0
    assert closed.here("list").json["data"]["deployments"] == []


def test_a_command_runs_on_the_machine_with_its_exit_code(closed):
    script = "pwd; echo 'it is' >&2; exit 7"
    ran = closed.run("exec", "closed", "--sandbox", "--json", "--", "sh", "-c", script)
    assert ran.code == 7, ran.out
    (machine,) = closed.here("status", "closed").json["data"]["replicas"]
    assert machine["id"] in ran.json["data"]["stdout"]  # a machine's folder has its id
    assert ran.json["data"]["stderr"] == "it is\n"
    assert closed.here("down", "closed", "--yes").code == 0


def test_without_the_role_the_error_has_a_remedy(program):
    assert program.here(*UP[:-1], "--no-wait").code == 0
    ran = program.here("exec", "closed", "true")
    assert (ran.code, ran.json["errors"][0]["code"]) == (1, "not_managed")
    assert "--tunnel" in ran.json["errors"][0]["hint"]
    assert program.here("down", "closed", "--yes").code == 0


def test_another_computer_knows_the_tunnel_by_the_machines_tags(closed, monkeypatch):
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(closed.home))
    (closed.home / "sandbox/records").rename(closed.home / "sandbox/hidden")
    try:
        asked = closed.here("ask", "closed", "What is a GPU?", "--max-tokens", "5")
        assert asked.code == 0, asked.out
    finally:
        (closed.home / "sandbox/hidden").rename(closed.home / "sandbox/records")
    assert closed.here("down", "closed", "--yes").code == 0


def test_the_output_of_open_works_when_pasted(closed):
    opened = closed.here("open", "closed").json["data"]
    assert opened["tunnel"] == ""
    asked = urllib.request.Request(f"{opened['url']}/health")  # noqa: S310 -- loopback
    with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 -- loopback
        assert answer.status == 200
    assert closed.here("down", "closed", "--yes").code == 0


def test_no_secret_is_in_a_command_line_while_a_tunnel_is_open(closed):
    tokens = [call["params"] for call in closed.calls("StartSession")]
    assert tokens
    commands = [process.command for process in processes.processes() if "sessions.plugin" in process.command]
    assert all(KEY not in command and "TokenValue" not in command for command in commands)
    assert closed.here("down", "closed", "--yes").code == 0
