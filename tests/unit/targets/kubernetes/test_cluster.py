"""What a cluster has left, what it refuses, and what its pods show, on an API server in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from builders.hostile import HOSTILE
from fakes.kubernetes_api import FakeCluster, failure, node

from tgi_deploy.errors import ConflictError, DeployError, InputError
from tgi_deploy.reconcile.errors import LostReplyError, ThrottledError
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
from tgi_deploy.targets.kubernetes.nodes import is_any_deployment, read_nodes, supplied
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.placement import Placement
from tgi_deploy.targets.kubernetes.pools import Growth
from tgi_deploy.targets.kubernetes.transport import Answer, encoded
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, TAG_SPEC
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from tgi_deploy.targets.protocol import Supplied

PLACE = "kubernetes:team-a@dev"
TAGS = {TAG_NAME: "demo", TAG_ID: "id1", TAG_KEY: "deployment@1.1", TAG_SPEC: "abc"}
LABELS = {"tgi-deploy/deployment": "demo", "tgi-deploy/id": "id1"}
MANIFEST: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "tgi-deploy-demo", "labels": {}},
    "spec": {"selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": {}}},
}
PROPERTIES = {"name": "tgi-deploy-demo", "manifest": MANIFEST}


def api(cluster: FakeCluster) -> Api:
    return Api(place=Place.of(PLACE), sender=cluster)


def cloud(cluster: FakeCluster) -> KubernetesCloud:
    return KubernetesCloud(api=api(cluster))


def supply(*nodes: dict[str, Any]) -> Supplied:
    catalog = open_catalog()
    found = read_nodes(api(FakeCluster(nodes=list(nodes))), NodeLabels.packaged(), catalog, ours=is_any_deployment)
    return supplied(found, PLACE, catalog, Growth())


def test_a_plan_gets_the_most_that_one_node_has_left_of_each_card():
    l4 = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    found = supply(node("a", gpus=4, requested=3), node("b", gpus=4, requested=2), node("c", gpus=8, labels=l4))
    assert found.hardware == "8xL4,2xL40S"
    assert found.place == PLACE


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"unschedulable": True}, "it is cordoned"),
        ({"ready": False}, "it is not ready"),
        ({"taints": [{"key": "team", "effect": "NoSchedule"}]}, "it has the taint team"),
        ({"labels": {"nvidia.com/gpu.product": "Voodoo"}}, "its accelerator is unknown"),
    ],
)
def test_a_node_that_takes_no_pods_is_left_out_with_the_reason(changes: dict[str, Any], why: str):
    found = supply(node("a"), node("b", gpus=8, **changes))
    assert found.hardware == "1xL40S"
    assert [item.message for item in found.notices if item.code == "node_left_out"] == [f"planning without b: {why}"]


def test_the_taint_of_gpu_nodes_is_tolerated():
    assert supply(node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])).hardware == "1xL40S"


def test_an_instance_type_names_the_card_and_the_price():
    labels = {
        "nvidia.com/gpu.product": "",
        "node.kubernetes.io/instance-type": "g6.xlarge",
        "topology.kubernetes.io/region": "us-east-1",
    }
    found = supply(node(labels=labels))
    assert found.hardware == "1xL4"
    (price,) = found.notices
    assert price.code == "node_price"
    assert "g6.xlarge in us-east-1: $0." in price.message


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ([node(gpus=0)], "no_gpu_nodes"),
        ([node(requested=1)], "no_free_gpus"),
        ([node(labels={"nvidia.com/gpu.product": ""})], "unknown_card"),
    ],
)
def test_a_cluster_without_a_usable_gpu_is_an_error(nodes: list[dict[str, Any]], code: str):
    with pytest.raises(InputError) as caught:
        supply(*nodes)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (failure(401, "Unauthorized"), "cluster_login"),
        (failure(403, 'deployments.apps is forbidden: User "ann" cannot create'), "cluster_forbidden"),
        (failure(403, 'pods "x" is forbidden: exceeded quota: team'), "cluster_quota"),
        (failure(400, 'admission webhook "policy.example" denied the request: no'), "admission_refused"),
        (failure(404, 'namespaces "team-a" not found'), "namespace_missing"),
    ],
)
def test_a_refusal_has_a_code_and_a_remedy(answer: Answer, code: str):
    cluster = FakeCluster(refusals={"POST deployments": answer})
    with pytest.raises(DeployError) as caught:
        cloud(cluster).handler("deployment").create(PROPERTIES, tags=TAGS, token="t")
    assert (caught.value.code, bool(caught.value.hint)) == (code, True)
    assert caught.value.hint.count("kubectl ") == caught.value.hint.count("kubectl --context dev --namespace team-a ")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failure(429, "slow down"), ThrottledError),
        (failure(503, "apiserver is starting"), ThrottledError),
        (Answer(status=200, body=b"<html>proxy</html>"), LostReplyError),
    ],
)
def test_an_unclear_answer_to_a_change_is_not_taken_for_a_refusal(answer: Answer, kind: type[DeployError]):
    cluster = FakeCluster(refusals={"POST deployments": answer})
    with pytest.raises(kind):
        cloud(cluster).handler("deployment").create(PROPERTIES, tags=TAGS, token="t")


def test_a_field_that_somebody_else_manages_is_a_conflict_in_words():
    cause = {"reason": "FieldManagerConflict", "field": ".spec.replicas", "message": 'conflict with "kubectl"'}
    cluster = FakeCluster(refusals={"PATCH poddisruptionbudgets": failure(409, "Apply failed", causes=[cause])})
    with pytest.raises(ConflictError) as caught:
        cloud(cluster).handler("poddisruptionbudget").create(PROPERTIES, tags=TAGS, token="t")
    assert caught.value.code == "fields_conflict"
    assert '.spec.replicas, conflict with "kubectl"' in caught.value.message


def test_a_missing_namespace_is_named_in_the_command_that_creates_it():
    cluster = FakeCluster(refusals={"POST deployments": failure(404, 'namespaces "team-a" not found')})
    with pytest.raises(DeployError) as caught:
        cloud(cluster).handler("deployment").create(PROPERTIES, tags=TAGS, token="t")
    assert "'kubectl --context dev --namespace team-a create namespace team-a'" in caught.value.hint


def test_a_name_of_somebody_else_is_not_taken_over():
    cluster = FakeCluster()
    handler = cloud(cluster).handler("deployment")
    handler.create(PROPERTIES, tags=TAGS, token="t")
    with pytest.raises(ConflictError) as caught:
        handler.create(PROPERTIES, tags={**TAGS, TAG_ID: "id2"}, token="t")
    assert caught.value.code == "name_taken"


def test_a_pod_without_its_secret_is_explained_with_a_command_for_its_cluster():
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": "secret not found"}}
    cluster = pod(phase="Pending", conditions=[ON_NODE], containerStatuses=statuses(waiting))
    state = cloud(cluster).machine("deployment/tgi-deploy-demo")
    assert "'kubectl --context dev --namespace team-a create secret generic --help'" in state.remedy


def test_creating_again_returns_what_exists_and_deleting_spares_a_successor():
    cluster = FakeCluster()
    handler = cloud(cluster).handler("deployment")
    first = handler.create(PROPERTIES, tags=TAGS, token="t")
    assert handler.create(PROPERTIES, tags=TAGS, token="t") == first
    handler.delete({**first.attributes, "uid": "of an earlier one"})
    assert handler.read(first.attributes) == first


def pod(**status: Any) -> FakeCluster:
    cluster = FakeCluster(pod_status=status)
    cloud(cluster).handler("deployment").create(PROPERTIES, tags=TAGS, token="t")
    return cluster


ON_NODE = {"type": "PodScheduled", "status": "True"}
NO_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
}


def statuses(state: dict[str, Any], *, restarts: int = 0, last: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [{"name": "engine", "restartCount": restarts, "state": state, "lastState": last or {}}]


def test_an_unscheduled_pod_is_pending_with_the_schedulers_reason():
    state = cloud(pod(phase="Pending", conditions=[NO_NODE])).machine("deployment/tgi-deploy-demo")
    assert (state.state, state.reason_code, state.address) == ("pending", "Unschedulable", None)
    assert state.reason == NO_NODE["message"]
    assert state.remedy


def test_a_pod_whose_claim_has_no_volume_needs_no_other_node():
    condition = {**NO_NODE, "message": "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims."}
    state = cloud(pod(phase="Pending", conditions=[condition])).machine("deployment/tgi-deploy-demo")
    assert (state.reason, "persistentvolumeclaim" in state.remedy) == (condition["message"], True)


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ('pods "x" is forbidden: exceeded quota: team, requested: pods=1', "cluster_quota"),
        ('pods "x" is forbidden: failed quota: team: must specify limits.cpu', "cluster_quota"),
        ('admission webhook "policy.example" denied the request: no', "admission_refused"),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', "admission_refused"),
        ('failed calling webhook "policy.example": connection refused', ""),
    ],
)
def test_a_pod_that_the_cluster_refuses_to_create_is_pending_with_the_reason(message: str, refusal: str):
    cluster = pod()
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    cluster.objects["deployments", "tgi-deploy-demo"]["status"] = {"conditions": [condition]}
    for key in [key for key in cluster.objects if key[0] == "pods"]:
        del cluster.objects[key]
    state = cloud(cluster).machine("deployment/tgi-deploy-demo")
    assert (state.state, state.refusal, state.reason, bool(state.remedy)) == ("pending", refusal, message, True)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"observedGeneration": 2, "updatedReplicas": 1}, "running"),
        ({"observedGeneration": 2}, "pending"),
        ({"observedGeneration": 1, "updatedReplicas": 1}, "pending"),
    ],
    ids=["replaced", "pods of the former template", "not seen by the cluster yet"],
)
def test_a_restart_is_over_once_all_pods_are_replaced(status: dict[str, int], state: str):
    cluster = pod()
    workload = cluster.objects["deployments", "tgi-deploy-demo"]
    workload["metadata"]["generation"], workload["status"] = 2, status
    assert cloud(cluster).machine("deployment/tgi-deploy-demo").state == state


def test_a_pod_whose_image_is_pulled_runs_without_an_address():
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    state = cloud(pod(phase="Pending", conditions=[ON_NODE], containerStatuses=statuses(waiting))).machine("d/x")
    assert state.state == "missing"
    state = cloud(pod(phase="Pending", conditions=[ON_NODE], containerStatuses=statuses(waiting))).machine(
        "deployment/tgi-deploy-demo"
    )
    assert (state.state, state.address) == ("running", None)


READY = {"type": "Ready", "status": "True"}


def three(*, ready: int) -> FakeCluster:
    """Return a cluster with a Deployment of three pods, of which so many are ready."""
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    cluster = pod(phase="Pending", conditions=[NO_NODE], containerStatuses=statuses(waiting))
    cloud(cluster).handler("deployment").update({"id": "deployment/tgi-deploy-demo"}, {"replicas": 3})
    running = {"phase": "Running", "conditions": [ON_NODE, READY], "containerStatuses": statuses({"running": {}})}
    pods = [item for (kind, _), item in cluster.objects.items() if kind == "pods"]
    for item in pods[:ready]:
        item["status"] = running
    return cluster


def test_several_pods_have_an_address_once_all_are_ready_and_until_then_the_other_ones_reason():
    state = cloud(three(ready=2)).machine("deployment/tgi-deploy-demo")
    assert (state.state, state.reason_code, state.address) == ("pending", "Unschedulable", None)
    state = cloud(three(ready=3)).machine("deployment/tgi-deploy-demo")
    assert (state.state, state.reason_code) == ("running", None)
    assert state.address


def test_each_pod_is_a_replica_with_its_status_and_its_own_output():
    cluster = three(ready=2)
    cluster.log = "serving\n"
    state = cloud(cluster).machine("deployment/tgi-deploy-demo")
    assert sorted(item.status for item in state.replicas) == ["pending", "ready", "ready"]
    texts = cloud(cluster).consoles("deployment/tgi-deploy-demo")
    assert {f"pod/{name}" for name in texts} == {item.id for item in state.replicas}
    assert sorted(texts.values()) == ["", "serving\n", "serving\n"]


def test_scaling_changes_the_number_alone_and_nothing_if_it_is_the_same():
    cluster = three(ready=3)
    handler, changes = cloud(cluster).handler("deployment"), len(cluster.calls)
    before = cluster.objects["deployments", "tgi-deploy-demo"]["metadata"]
    handler.update({"id": "deployment/tgi-deploy-demo"}, {"replicas": 3})
    assert cluster.calls[changes:] == ["GET deployments"]
    handler.update({"id": "deployment/tgi-deploy-demo"}, {"replicas": 1})
    assert sum(kind == "pods" for kind, _ in cluster.objects) == 1
    assert cluster.objects["deployments", "tgi-deploy-demo"]["metadata"] == before


@pytest.mark.parametrize(("gpus", "replicas"), [(1, 7), (2, 3), (4, 1), (8, 0)])
def test_a_replica_has_room_only_on_one_node(gpus: int, replicas: int):
    nodes = [node("a", gpus=4), node("b", gpus=4, requested=1), node("c", gpus=8, unschedulable=True)]
    found = read_nodes(api(FakeCluster(nodes=nodes)), NodeLabels.packaged(), open_catalog(), ours=is_any_deployment)
    cluster = Placement(nodes=found, growth=Growth, used={}, types={}, labels=NodeLabels.packaged())
    assert cluster.room(NodeLabels.packaged().selector("L40S"), "L40S", gpus).there == replicas


def test_an_end_by_the_oom_killer_is_named_while_the_container_waits_to_start_again():
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container"}}
    cluster = pod(phase="Running", conditions=[ON_NODE], containerStatuses=statuses(waiting, restarts=2, last=killed))
    cluster.log = "loading\n"
    there = cloud(cluster)
    assert there.machine("deployment/tgi-deploy-demo").reason_code == "OOMKilled"
    assert there.console("deployment/tgi-deploy-demo").splitlines() == [
        "[tgi-deploy] phase=engine-exited",
        "loading",
        "Reason: OOMKilled",
        "[tgi-deploy] phase=engine-exited code=137",
    ]


def test_the_console_has_the_pods_events_before_its_log():
    cluster = pod(phase="Running", conditions=[ON_NODE], containerStatuses=statuses({"running": {}}))
    name = next(name for kind, name in cluster.objects if kind == "pods")
    about = {"involvedObject": {"name": name}}
    cluster.events = [
        {**about, "type": "Normal", "reason": "Pulling", "message": 'Pulling image "x:1"', "lastTimestamp": "2"},
        {**about, "type": "Warning", "reason": "FailedScheduling", "message": "0/1 nodes", "lastTimestamp": "1"},
        {**about, "type": "Normal", "reason": "Scheduled", "message": "assigned", "lastTimestamp": "1"},
    ]
    cluster.log = "engine\n"
    assert cloud(cluster).console("deployment/tgi-deploy-demo").splitlines() == [
        "FailedScheduling: 0/1 nodes",
        "[tgi-deploy] phase=pulling image=x:1",
        "engine",
    ]


def test_a_body_is_the_same_as_json_and_as_yaml():
    """The server reads what is applied as YAML, where an escaped pair of surrogates is an error."""
    body = {"args": [*HOSTILE, "\\ud83d\\ude80 🚀", "delete\x7f"]}
    assert json.loads(encoded(body)) == body
    assert yaml.safe_load(encoded(body)) == body


def test_a_group_of_kinds_that_the_cluster_lacks_has_no_objects():
    """Its reply is a line of text, not an object."""
    cluster = FakeCluster(refusals={"GET scaledobjects": Answer(status=404, body=b"404 page not found\n")})
    handler = cloud(cluster).handler("scaledobject")
    assert handler.find({TAG_NAME: "demo"}) == ()
    assert handler.read({"id": "scaledobject/tgi-deploy-demo"}) is None


@pytest.mark.parametrize("kind", ["ingress", "horizontalpodautoscaler", "scaledobject"])
def test_without_permission_for_kinds_that_few_have_everything_else_is_found(kind: str):
    plurals = {"ingress": "ingresses"}
    cluster = FakeCluster(refusals={f"GET {plurals.get(kind, f'{kind}s')}": failure(403, "it is forbidden")})
    there = cloud(cluster)
    assert there.find({TAG_NAME: "demo"}) == ()
    assert there.unsearched == {}
