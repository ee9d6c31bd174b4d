from __future__ import annotations

import pytest
from builders.logs import GRAMMAR
from fakes.docker_host import FakeDocker

from tgi_deploy.diagnosis.reader import read
from tgi_deploy.diagnosis.window import LogWindow
from tgi_deploy.targets.docker.api import Api
from tgi_deploy.targets.docker.cloud import DockerCloud
from tgi_deploy.targets.docker.endpoint import Endpoint
from tgi_deploy.targets.docker.errors import ErrorTable
from tgi_deploy.targets.docker.pull import Layers
from tgi_deploy.targets.reply import Reply

ID = "a" * 64


@pytest.fixture
def docker():
    return FakeDocker(containers_by_id={ID: container()})


def container(state="running", *, restarts=0, bind="127.0.0.1", **more):
    return {
        "Id": ID,
        "Name": "/tgi-deploy-demo",
        "Created": "2026-01-09T00:00:00Z",
        "RestartCount": restarts,
        "State": {"Status": state, "FinishedAt": "2026-01-09T00:00:05.5Z", **more},
        "Config": {"Image": "i", "Labels": {}},
        "HostConfig": {"PortBindings": {"80/tcp": [{"HostIp": bind, "HostPort": "8080"}]}},
        "request": {"host_config": {"mounts": []}},
    }


def cloud(docker, url="unix:///var/run/docker.sock"):
    return DockerCloud(
        api=Api(endpoint=Endpoint(url=url), table=ErrorTable(()), environ={}, connect=lambda _at: docker)
    )


def death(second, code):
    return {"timeNano": (1767916800 + second) * 10**9, "Actor": {"Attributes": {"exitCode": str(code)}}}


def line(second, text):
    return f"2026-01-09T00:00:{second:02}.000000000Z {text}\n".encode()


@pytest.mark.parametrize(
    ("state", "more", "expected", "code", "remedy"),
    [
        ("created", {}, "pending", None, ""),
        ("running", {}, "running", None, ""),
        ("restarting", {}, "running", None, ""),
        ("paused", {}, "stopped", "Paused", f"'docker unpause {ID[:12]}' resumes it"),
        ("exited", {"ExitCode": 1}, "stopped", "Exited", "logs NAME"),
        ("exited", {"ExitCode": 137, "OOMKilled": True}, "stopped", "OOMKilled", "too little memory"),
        ("dead", {"Error": "broken"}, "terminated", "Exited", "logs NAME"),
        ("removing", {}, "shutting-down", None, ""),
    ],
)
def test_container_states_map_to_machine_states(docker, state, more, expected, code, remedy):
    docker.containers_by_id[ID] = container(state, **more)
    machine = cloud(docker).machine(ID[:12])
    assert (machine.state, machine.reason_code, machine.address) == (expected, code, "127.0.0.1")
    assert remedy in machine.remedy
    assert bool(machine.remedy) is bool(remedy)


def test_a_deleted_container_is_missing(docker):
    assert cloud(docker).machine("b" * 12).state == "missing"
    assert cloud(docker).console("b" * 12) == ""


@pytest.mark.parametrize(
    ("url", "bind", "address"),
    [
        ("tcp://box:2376", "0.0.0.0", "box"),  # noqa: S104 -- what a container may be published on
        ("tcp://box:2376", "192.0.2.7", "192.0.2.7"),
        ("unix:///x", "::", "127.0.0.1"),
    ],
)
def test_a_published_port_has_a_reachable_address(docker, url, bind, address):
    docker.containers_by_id[ID] = container(bind=bind)
    assert cloud(docker, url).machine(ID).address == address


def test_exits_appear_in_order_in_the_log(docker):
    docker.containers_by_id[ID] = container("restarting", restarts=2)
    docker.log = line(1, "Args { one }") + line(3, "Args { two }") + line(5, "Args { three }")
    docker.deaths = [death(2, 1), death(4, 137)]
    assert cloud(docker).console(ID).splitlines() == [
        "Args { one }",
        "[tgi-deploy] phase=engine-exited code=1",
        "Args { two }",
        "[tgi-deploy] phase=engine-exited code=137",
        "Args { three }",
    ]


def test_repeated_exits_are_counted(docker):
    docker.containers_by_id[ID] = container("restarting", restarts=2)
    docker.log = line(1, "Args { one }") + line(3, "Args { two }")
    docker.deaths = [death(2, 1), death(4, 1)]
    assert read(cloud(docker).console(ID), GRAMMAR).exits == 2


def test_the_last_exit_is_reported_without_host_events(docker):
    docker.containers_by_id[ID] = container("exited", ExitCode=3)
    docker.log = line(1, "Args { one }")
    assert cloud(docker).console(ID).endswith("code=3\n")


def test_the_history_of_a_running_container_is_not_read(docker):
    docker.log = line(1, "Connected")
    docker.events = None
    assert cloud(docker).console(ID) == "Connected\n"


def test_container_secrets_are_removed_from_logs(docker):
    """TGI's launcher writes its arguments over many lines, its own API key among them."""
    docker.containers_by_id[ID]["Config"]["Env"] = ["API_KEY=sk-planted", "HF_TOKEN=planted-token", "PORT=80", "X_KEY="]
    docker.log = line(1, "Args {") + line(1, "    api_key: Some(") + line(1, '        "sk-planted",')
    docker.log += line(2, "listening on 80 with planted-token")
    result = cloud(docker).console(ID)
    assert "planted" not in result
    assert result.splitlines()[2:] == ['        "***",', "listening on 80 with ***"]


def test_following_shows_the_last_line_at_once(docker):
    docker.log = line(1, "Serving") + line(2, "Connected")
    assert LogWindow().advance(cloud(docker).console(ID)) == ("Serving", "Connected")


def test_layer_progress_is_summed():
    layers = Layers()
    for message in (
        {"status": "Pulling from x", "id": "1"},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 10, "total": 100}},
        {"status": "Downloading", "id": "b", "progressDetail": {"current": 50, "total": 50}},
        {"status": "Already exists", "id": "c"},
    ):
        layers.add(Reply(message))
    assert (layers.done_bytes, layers.total_bytes) == (60, 150)
    layers.add(Reply({"status": "Download complete", "id": "a"}))
    layers.add(Reply({"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 100}}))
    assert (layers.done_bytes, layers.total_bytes) == (150, 150)
    assert "unpacking" in str(layers)
    layers.add(Reply({"status": "Pull complete", "id": "a"}))
    assert "unpacking" not in str(layers)
