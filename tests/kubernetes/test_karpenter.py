"""Karpenter's NodePools, served by Karpenter's own definition; the tests add the nodes as Karpenter would."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager

import pytest
from builders.control_plane import defined, eventually

from tgi_deploy.sandbox.kubernetes.nodes import node

pytestmark = pytest.mark.control_plane
NAME, OWN = "llama3-13b", "tgi-deploy-llama3-13b"
UP = ("up", NAME, "--target", "kubernetes", "--yes")
POOLS = "/apis/karpenter.sh/v1/nodepools"
NODES = "/api/v1/nodes"
TYPE = "node.kubernetes.io/instance-type"
MERGE = "application/merge-patch+json"


def nodepool(name="gpu", gpus=2, **requirement):
    """Return a NodePool of EC2 instances with L40S; `requirement` changes the one on the family."""
    family = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g6e"], **requirement}
    template = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [family],
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    }
    spec = {"limits": {"nvidia.com/gpu": gpus}, "template": {"spec": template}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def used(plane, gpus):
    """Report the pool's nodes, as Karpenter does."""
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    status = {"resources": {"nvidia.com/gpu": str(gpus)}, "conditions": [
        {**ready, "lastTransitionTime": "2026-01-09T00:00:00Z"},
    ]}  # fmt: skip
    plane.call("PATCH", f"{POOLS}/gpu/status", {"status": status}, MERGE)


@contextmanager
def full_nodes(plane):
    """Keep new pods off the nodes that are there."""
    names = [item["metadata"]["name"] for item in plane.call("GET", NODES)["items"]]
    try:
        for name in names:
            plane.call("PATCH", f"{NODES}/{name}", {"spec": {"unschedulable": True}}, MERGE)
        yield
    finally:
        for name in names:
            plane.call("PATCH", f"{NODES}/{name}", {"spec": {"unschedulable": None}}, MERGE)


@pytest.fixture
def pools(namespace):
    """A cluster whose only room is what a NodePool adds: two nodes."""
    plane = namespace.plane
    with defined(plane, "karpenter.sh_nodepools"), full_nodes(plane):
        plane.call("POST", f"{POOLS}?fieldValidation=Strict", nodepool())
        used(plane, 0)
        yield plane
        for item in plane.call("GET", NODES)["items"]:
            if item["metadata"]["labels"].get("karpenter.sh/nodepool"):
                plane.call("DELETE", f"{NODES}/{item['metadata']['name']}")


@contextmanager
def adding(namespace, number):
    """Add a node of the type that a pending pod asks for, as Karpenter does; yield the types that pods asked for."""
    plane, asked = namespace.plane, []

    def add():
        pod = eventually(lambda: next(filter(unscheduled, namespace.pods()), None))
        asked.extend(types_of(pod))
        there = plane.call("GET", NODES)["items"][0]["status"]
        port = there["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        made = node(f"added-{number}", asked[-1], port=port, version=there["nodeInfo"]["kubeletVersion"])
        made["metadata"]["labels"] |= {"karpenter.sh/nodepool": "gpu", "karpenter.sh/capacity-type": "on-demand"}
        plane.call("POST", NODES, made)
        used(plane, number)

    thread = threading.Thread(target=add, daemon=True)
    thread.start()
    yield asked
    thread.join()


def unscheduled(pod):
    conditions = {item["type"]: item for item in pod["status"].get("conditions", ())}
    return conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"


def types_of(pod):
    """Return the instance types of nodes that a pod asks for."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    named = [item for term in required["nodeSelectorTerms"] for item in term["matchExpressions"]]
    return [value for item in named if item["key"] == TYPE for value in item["values"]]


def test_the_definition_refuses_what_karpenter_does(pools):
    status, reply = pools.ask("POST", POOLS, nodepool("wrong", operator="Equals"))
    assert (status, "operator" in json.loads(reply)["message"]) == (422, True)
    misspelled = nodepool("wrong")
    misspelled["spec"]["limit"] = {}
    assert pools.ask("POST", f"{POOLS}?fieldValidation=Strict", misspelled)[0] == 400


def test_a_plan_reads_the_pools_that_the_server_returns(pools, run):
    plan = ("plan", NAME, "--target", "kubernetes")
    code, made = run(*plan, "--budget", "5")
    assert code == 0, made["errors"]
    chosen = made["data"]["plan"]["chosen"]
    assert (chosen["instance_type"], chosen["usd_per_hour"]) == ("1xL40S", 1.861)
    (notice,) = [item for item in made["warnings"] if item["code"] == "new_node"]
    assert "NodePool gpu: g6e.xlarge" in notice["message"]
    code, refused = run(*plan, "--budget", "1")
    assert (code, refused["errors"][0]["code"]) == (3, "no_feasible_plan")
    used(pools, 2)
    code, refused = run(*plan)
    assert (code, refused["errors"][0]["code"]) == (2, "no_free_gpus")
    assert "its limits leave no room" in refused["errors"][0]["message"]


def test_up_waits_for_the_new_node_and_scale_counts_what_the_pool_may_add(namespace, pools, run):
    with adding(namespace, 1) as asked:
        code, up = run(*UP, "--budget", "5")
    assert code == 0, up["errors"]
    assert asked == ["g6e.xlarge"]
    assert "new_node" in {item["code"] for item in up["warnings"]}
    (pod,) = namespace.ready()
    assert pod["spec"]["nodeName"] == "added-1"
    code, again = run(*UP, "--budget", "5")
    assert (code, again["data"]["changed"]) == (0, False), again["errors"]
    with adding(namespace, 2):
        code, scaled = run("scale", NAME, "2")
    assert code == 0, scaled["errors"]
    assert sorted(item["spec"]["nodeName"] for item in namespace.ready()) == ["added-1", "added-2"]
    code, refused = run("scale", NAME, "3")
    assert (code, refused["errors"][0]["code"]) == (1, "no_free_gpus")
    assert run("down", NAME, "--yes")[0] == 0


def test_an_update_gets_its_node_from_the_pool_while_the_old_revision_serves(namespace, pools, run):
    with adding(namespace, 1):
        code, up = run(*UP)
    assert code == 0, up["errors"]
    with adding(namespace, 2):
        code, updated = run(*UP, "--engine-version", "3.3.6", "--strategy", "rolling")
    assert code == 0, updated["errors"]
    (pod,) = namespace.ready()
    assert pod["spec"]["nodeName"] == "added-2"
    # The emptied node and that of the pod have room for two, but not the pool for a third.
    code, grown = run(*UP, "--engine-version", "3.3.7", "--strategy", "rolling", "--replicas", "2", "--dry-run")
    assert (code, grown["data"]["update"]["at_a_time"]) == (0, 1), grown["errors"]
    assert run("down", NAME, "--yes")[0] == 0
