"""What others do to a deployment on the real control plane: evictions, a lost node, another field manager."""

from __future__ import annotations

import json

import pytest
from builders.control_plane import APPLY, eventually

pytestmark = pytest.mark.control_plane
NAME = "llama3-13b"
UP = ("up", NAME, "--target", "kubernetes", "--yes")


def evict(namespace, pod):
    """Ask for the eviction of a pod, as `kubectl drain` does; return the status and the message of the reply."""
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace.name}}
    status, reply = namespace.plane.ask("POST", namespace.path("pods", f"{name}/eviction"), body)
    return status, json.loads(reply).get("message", "")


def replicas(run):
    code, shown = run("status", NAME)
    return code, [item["status"] for item in shown["data"]["replicas"]], shown["data"]["deployments"][0]


def test_one_pod_at_a_time_may_be_evicted_and_a_lost_node_is_shown_until_its_pod_runs_elsewhere(namespace, run):
    code, made = run(*UP, "--replicas", "3")
    assert code == 0, made["errors"]
    budget = namespace.path("poddisruptionbudgets", f"tgi-deploy-{NAME}", "/apis/policy/v1")
    eventually(lambda: namespace.plane.call("GET", budget)["status"].get("disruptionsAllowed") == 1)
    first, second, _ = namespace.ready()
    assert evict(namespace, first)[0] == 201
    assert evict(namespace, second) == (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    eventually(lambda: replicas(run)[1] == ["ready"] * 3)
    code, scaled = run("scale", NAME, "4")
    assert code == 0, scaled["errors"]
    lost = namespace.ready()[0]["spec"]["nodeName"]
    path = f"/api/v1/nodes/{lost}"
    node = namespace.plane.call("GET", path)
    namespace.plane.call("DELETE", path)
    try:
        eventually(lambda: sorted(replicas(run)[1]) == ["pending", "ready", "ready", "ready"])
        code, answered = run("ask", NAME, "Hello")
        assert code == 0, answered["errors"]
    finally:
        about = {"name": lost, "labels": node["metadata"]["labels"]}
        namespace.plane.call("POST", "/api/v1/nodes", {**node, "metadata": about})
    eventually(lambda: replicas(run)[1] == ["ready"] * 4)
    assert run("down", NAME, "--yes")[0] == 0


def test_a_field_that_another_manager_has_changed_is_a_conflict_and_stays(namespace, run):
    assert run(*UP)[0] == 0
    before = {pod["metadata"]["uid"] for pod in namespace.ready()}
    path = namespace.path("poddisruptionbudgets", f"tgi-deploy-{NAME}", "/apis/policy/v1")
    other = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"tgi-deploy-{NAME}"},
        "spec": {"maxUnavailable": 0},
    }
    namespace.plane.call("PATCH", f"{path}?fieldManager=team&force=true", other, APPLY)
    code, refused = run(*UP, "--engine-version", "3.3.6")
    assert (code, refused["errors"][0]["code"]) == (4, "fields_conflict")
    assert ".spec.maxUnavailable" in refused["errors"][0]["message"]
    assert 'conflict with "team"' in refused["errors"][0]["message"]
    assert namespace.plane.call("GET", path)["spec"]["maxUnavailable"] == 0
    assert {pod["metadata"]["uid"] for pod in namespace.ready()} == before
    assert run("down", NAME, "--yes")[0] == 0
