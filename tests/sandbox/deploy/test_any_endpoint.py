"""Commands work with any EC2-compatible endpoint in AWS_ENDPOINT_URL, without the sandbox's extensions."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture
def endpoint():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def run(endpoint, tmp_path):
    def call(*words):
        environ = {**os.environ, "AWS_ENDPOINT_URL": endpoint, "TGI_DEPLOY_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "tgi_deploy", *words, "--json"],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return json.loads(done.stdout)

    return call


def test_up_and_down_need_only_the_endpoint(run):
    up = run("up", "llama3-13b", "--budget", "5", "--no-wait", "--yes")
    assert up["exit_code"] == 0, up["errors"]
    (listed,) = run("list")["data"]["deployments"]
    assert (listed["name"], listed["region"]) == ("llama3-13b", "us-east-1")
    again = run("up", "llama3-13b", "--budget", "5", "--no-wait", "--yes")
    assert (again["exit_code"], again["data"]["changed"]) == (0, False)
    down = run("down", "llama3-13b", "--yes")
    assert down["exit_code"] == 0, down["errors"]
    assert run("list")["data"]["deployments"] == []


def test_every_command_that_prints_the_address_reports_unencrypted_traffic(run):
    up = run("up", "llama3-13b", "--budget", "5", "--no-wait", "--yes", "--plaintext")
    assert "unencrypted" in [item["code"] for item in up["warnings"]]
    reported = "prompts and answers travel unencrypted to a public address"
    again = run("up", "llama3-13b", "--budget", "5", "--no-wait", "--yes")
    assert any(item["message"].startswith(reported) for item in again["warnings"] if item["code"] == "unencrypted")
    assert run("open", "llama3-13b")["data"]["unencrypted"].startswith(reported)
    assert run("status", "llama3-13b")["data"]["deployments"][0]["unencrypted"].startswith(reported)
    assert reported in run("runbook", "llama3-13b")["data"]["markdown"]
    assert run("down", "llama3-13b", "--yes")["exit_code"] == 0
