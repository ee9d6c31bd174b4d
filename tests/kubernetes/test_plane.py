"""What the other tests rely on: the real servers, and nodes that treat pods as kubelets do."""

from __future__ import annotations

import json
import socket
import stat

import pytest
from builders.control_plane import APPLY, eventually

pytestmark = pytest.mark.control_plane
IMAGE = "ghcr.io/huggingface/text-generation-inference"
LABELS = {"app": "engine"}
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
GPU = {"nvidia.com/gpu": "1"}


def deployment(replicas, *, version="3.3.6", surge=1, unavailable=0, image=IMAGE):
    probe = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}
    container = {
        "name": "engine",
        "image": f"{image}:{version}",
        "args": ["--model-id", MODEL, "--port", "8080"],
        "env": [{"name": "GREETING", "value": "hello $(NAME) $$(NAME)"}, {"name": "NAME", "value": "you"}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"limits": GPU},
        "startupProbe": {**probe, "periodSeconds": 10, "failureThreshold": 600},
        "readinessProbe": {**probe, "periodSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 30},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "10"]}}},
    }
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "engine"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
            },
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {"containers": [container], "tolerations": [toleration], "terminationGracePeriodSeconds": 60},
            },
        },
    }


def launched(namespace, replicas, **how):
    """Apply a Deployment and wait until it is complete. Return its ready pods."""
    namespace.apply(namespace.deployments("engine"), deployment(replicas, **how))
    return eventually(lambda: len(found := namespace.ready()) == replicas and found)


def answer_of(namespace, pod):
    """Return the body of `/info` through a port-forward to this pod."""
    path = namespace.path("pods", f"{pod['metadata']['name']}/portforward") + "?ports=8080"
    request = b"GET /info HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n"
    pieces = [message[1:] for message in namespace.plane.messages(path, b"\x00" + request) if len(message) > 3]
    return json.loads(b"".join(pieces).partition(b"\r\n\r\n")[2])


def test_a_deployment_over_four_nodes_becomes_ready_and_each_pod_answers(namespace):
    pods = launched(namespace, 4)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}
    assert len({pod["status"]["podIP"] for pod in pods}) == 4
    assert {answer_of(namespace, pod)["model_id"] for pod in pods} == {MODEL}


def test_a_service_has_an_endpoint_for_each_ready_pod_and_the_api_server_reaches_it(namespace):
    (pod,) = launched(namespace, 1)
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "engine"}}
    namespace.apply(namespace.path("services", "engine"), {**service, "spec": {"selector": LABELS, "ports": ports}})
    slices = namespace.path("endpointslices", group="/apis/discovery.k8s.io/v1")

    def addresses():
        found = namespace.plane.call("GET", slices)["items"]
        return [one["addresses"] for item in found for one in item["endpoints"] or () if one["conditions"]["ready"]]

    assert eventually(addresses) == [[pod["status"]["podIP"]]]
    with socket.socket() as probe:
        try:
            probe.bind((pod["status"]["podIP"], 0))
        except OSError:
            return  # without root, pods have no addresses on this computer
    status, body = namespace.plane.ask("GET", namespace.path("services", "engine:http/proxy/info"))
    assert (status, json.loads(body)["model_id"]) == (200, MODEL)


def test_a_rolling_update_never_has_fewer_pods_than_promised(namespace):
    before = {pod["metadata"]["uid"] for pod in launched(namespace, 3)}
    namespace.apply(namespace.deployments("engine"), deployment(3, version="3.3.7"))
    least = []

    def is_complete():
        ready = namespace.ready()
        least.append(len(ready))
        return len(ready) == 3 and not before & {pod["metadata"]["uid"] for pod in ready} and len(namespace.pods()) == 3

    eventually(is_complete)
    assert min(least) >= 3
    assert {pod["spec"]["containers"][0]["image"] for pod in namespace.pods()} == {f"{IMAGE}:3.3.7"}


def test_without_a_spare_gpu_the_old_pods_serve_on_and_an_event_says_why(namespace):
    before = {pod["metadata"]["uid"] for pod in launched(namespace, 4)}
    namespace.apply(namespace.deployments("engine"), deployment(4, version="3.3.7"))
    (message,) = eventually(lambda: {words for reason, words in namespace.reasons() if reason == "FailedScheduling"})
    assert "4 Insufficient nvidia.com/gpu" in message
    assert {pod["metadata"]["uid"] for pod in namespace.ready()} == before


def test_a_disruption_budget_refuses_the_second_eviction(namespace):
    pods = launched(namespace, 2)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "engine"}}
    path = namespace.path("poddisruptionbudgets", "engine", "/apis/policy/v1")
    namespace.apply(path, {**budget, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}}})
    eventually(lambda: namespace.plane.call("GET", path).get("status", {}).get("disruptionsAllowed") == 1)

    def evicted(pod):
        about = {"name": pod["metadata"]["name"]}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        return namespace.plane.ask("POST", namespace.path("pods", about["name"] + "/eviction"), body)

    assert evicted(pods[0])[0] == 201
    status, reply = evicted(pods[1])
    assert status == 429
    assert b"disruption budget" in reply


def test_a_field_of_another_manager_is_a_conflict(namespace):
    launched(namespace, 1)
    path = namespace.deployments("engine", "?fieldManager=somebody-else")
    status, reply = namespace.plane.ask("PATCH", path, deployment(2), APPLY)
    assert status == 409
    assert b".spec.replicas" in reply


def test_a_misspelt_field_is_refused_and_nothing_is_stored(namespace):
    wrong = deployment(1)
    wrong["spec"]["replcas"] = 1
    path = namespace.deployments("engine", "?fieldManager=tests&fieldValidation=Strict&dryRun=All")
    status, reply = namespace.plane.ask("PATCH", path, wrong, APPLY)
    assert status in {400, 500}
    assert b"replcas" in reply
    assert namespace.plane.ask("GET", namespace.deployments("engine"))[0] == 404


def test_logs_and_commands_reach_the_container_through_the_api_server(namespace):
    (pod,) = launched(namespace, 1)
    path = namespace.path("pods", pod["metadata"]["name"])
    _, whole = namespace.plane.ask("GET", f"{path}/log")
    assert b"Connected" in whole
    _, tail = namespace.plane.ask("GET", f"{path}/log?tailLines=2&timestamps=true")
    assert [line.partition(b" ")[2] for line in tail.splitlines()] == whole.splitlines()[-2:]
    command = f"{path}/exec?stdout=true&stderr=true&command=sh&command=-c&command=echo+$GREETING%3Bexit+3"
    messages = namespace.plane.messages(command, protocol="v5.channel.k8s.io")
    channels = {message[0]: message[1:] for message in messages if len(message) > 1}
    assert channels[1] == b"hello $(NAME) $(NAME)\n"
    assert json.loads(channels[3])["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


@pytest.mark.parametrize(
    ("how", "faults", "waiting", "last"),
    [
        ({}, {"3.3.6": ["oom-warmup"]}, "CrashLoopBackOff", "Error"),
        ({}, {"3.3.6": ["oom-killed"]}, "CrashLoopBackOff", "OOMKilled"),
        ({"image": "ghcr.io/nobody/nothing"}, {}, "ImagePullBackOff", None),
    ],
    ids=["crash", "memory", "image"],
)
def test_a_pod_that_can_not_start_says_why(namespace, how, faults, waiting, last):
    namespace.plane.engines(faults=faults)
    namespace.apply(namespace.deployments("engine"), deployment(1, **how))

    def state():
        for pod in namespace.pods():
            for item in pod["status"].get("containerStatuses", ()):
                if item["state"].get("waiting", {}).get("reason") == waiting:
                    return item
        return None

    found = eventually(state)
    assert found.get("lastState", {}).get("terminated", {}).get("reason") == last
    assert not namespace.ready()


def test_a_deleted_node_loses_its_pod_and_the_others_stay(namespace):
    """Registered again at the end, as by a new machine: the nodes are those of all tests."""
    plane = namespace.plane
    pods = launched(namespace, 2)
    name = pods[0]["spec"]["nodeName"]
    node = plane.call("GET", f"/api/v1/nodes/{name}")
    plane.call("DELETE", f"/api/v1/nodes/{name}")
    try:
        plane.call("DELETE", namespace.path("pods", pods[0]["metadata"]["name"]) + "?gracePeriodSeconds=0")
        eventually(
            lambda: len(found := namespace.ready()) == 2 and name not in {pod["spec"]["nodeName"] for pod in found}
        )
    finally:
        about = {key: node["metadata"][key] for key in ("name", "labels")}
        plane.call("POST", "/api/v1/nodes", {**node, "metadata": about})
    assert pods[1]["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in namespace.ready()}


def test_only_the_owner_can_read_its_files_or_ask_it(plane):
    assert stat.S_IMODE(plane.home.stat().st_mode) == 0o700
    for path in (plane.kubeconfig, plane.home / "tokens.csv", plane.home / "plane.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert plane.ask("GET", "/version")[0] == 200
    status, _ = plane.ask("GET", "/api/v1/secrets")
    assert status == 200
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(plane), "headers", {})
        assert plane.ask("GET", "/api/v1/secrets")[0] == 401
