"""The real program with the docker target on a real engine: up, crash, restart, status, logs, down."""

from __future__ import annotations

import os
import signal
import socket

import pytest
from builders.waiting import eventually

pytestmark = [pytest.mark.docker_engine, pytest.mark.xdist_group("docker_host")]
KEYED = ("--api-key-from-env", "ENGINE_KEY")
CACHE = "tgi-deploy-cache-hf-home"


def test_a_container_runs_crashes_restarts_and_is_removed(tool):
    code, document = tool.up(*KEYED)
    assert code == 0, document["errors"]
    url = f"http://127.0.0.1:{tool.port}"
    assert document["data"]["deployment"]["phase"] == "ready"
    assert document["data"]["endpoint"] == url
    item = tool.inspect()
    _is_as_promised(item, tool.port)

    assert tool.up(*KEYED)[1]["data"]["changed"] is False

    os.kill(item["State"]["Pid"], signal.SIGKILL)
    eventually(lambda: tool.inspect()["RestartCount"] == 1)
    (status,) = eventually(lambda: _healthy(tool))
    assert status["machine"]["state"] == "running"
    assert status["drift"] == []

    code, document = tool.run("logs", tool.name)
    assert "[tgi-deploy] phase=engine-exited code=137" in document["data"]["lines"]
    assert any("***" in line for line in document["data"]["lines"]), "the launcher writes its key"

    assert [row["machine"] for row in tool.listed()] == ["running"]

    code, document = tool.run("down", tool.name, "--yes", DOCKER_HOST="unix:///nowhere")
    assert code == 0, document["errors"]
    assert not tool.names()
    (kept,) = document["data"]["receipt"]["kept"]
    assert (kept["id"], document["data"]["receipt"]["cost"]["usd"]) == (CACHE, None)
    assert CACHE in tool.engine.docker("volume", "ls", "--quiet").split()


def _healthy(tool):
    _, document = tool.run("status", tool.name)
    found = document["data"]["deployments"]
    return found if found[0]["healthy"] else None


def _is_as_promised(item, port):
    host = item["HostConfig"]
    assert host["PortBindings"] == {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}
    assert host["RestartPolicy"] == {"Name": "on-failure", "MaximumRetryCount": 3}
    assert host["DeviceRequests"][0]["Capabilities"] == [["gpu"]]
    assert host["LogConfig"]["Config"]["max-size"]
    assert item["Config"]["Healthcheck"]["Test"][:3] == ["CMD", "bash", "-c"]
    assert item["Config"]["StopTimeout"] > 0
    assert item["Config"]["Labels"]["tgi-deploy:deployment"]
    assert [(mount["Name"], mount["Destination"]) for mount in item["Mounts"]] == [(CACHE, "/data")]


def test_it_plans_for_the_gpus_of_nvidia_smi(tool):
    folder = tool.home / "bin"
    folder.mkdir()
    rows = "".join(f"{at}, GPU-{at}, NVIDIA L40S, 46068, 3, 8.9, [N/A]\n" for at in range(4))
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{rows}END\n", encoding="utf-8")
    program.chmod(0o755)
    code, document = tool.up("--dry-run", hardware=None, PATH=f"{folder}:{os.environ['PATH']}")
    assert code == 0, document["errors"]
    code, document = tool.run("plan", "llama3-8b", "--target", "docker", PATH=f"{folder}:{os.environ['PATH']}")
    assert document["data"]["plan"]["chosen"]["instance_type"] == "4xL40S"
    assert document["data"]["plan"]["cost"]["usd_per_hour"] == 0
    assert not tool.names()


def test_a_taken_port_is_reported_and_nothing_is_left(tool):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", tool.port))
        holder.listen()
        code, document = tool.up()
    assert (code, document["errors"][0]["code"]) == (1, "port_in_use")
    assert "--port" in document["errors"][0]["hint"]
    assert not tool.names()
    assert tool.listed("--target", "docker") == []


def test_an_engine_that_can_not_start_is_reported_from_its_log_and_removed(tool):
    """Planned for a larger card than the host has: its weights do not fit."""
    code, document = tool.up("--on-failure", "remove", model="llama3-70b", hardware="2xH200-141GB")
    (error,) = document["errors"]
    assert (code, error["code"]) == (5, "engine_failed")
    assert "memory" in error["message"]
    assert not tool.names()


def test_a_used_name_is_a_conflict_and_its_container_stays(tool):
    tool.engine.docker("create", "--name", f"tgi-deploy-{tool.name}", tool.engine.image)
    code, document = tool.up()
    assert (code, document["errors"][0]["code"]) == (4, "name_taken")
    assert tool.names() == [f"tgi-deploy-{tool.name}"]


def test_a_lost_record_is_restored_from_labels(tool):
    assert tool.up("--no-wait")[0] == 0
    first = tool.inspect()["Id"]
    code, document = tool.run(
        "down", tool.name, "--yes", "--target", "docker", TGI_DEPLOY_HOME=str(tool.home / "elsewhere")
    )
    assert code == 0, document["errors"]
    assert document["data"]["removed"] == [tool.name]
    assert not tool.names(), first
