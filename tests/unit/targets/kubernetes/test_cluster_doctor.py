"""What `doctor` finds in a cluster, on an API server in memory."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.kubernetes_api import FakeCluster, failure, node

from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.doctor import examined
from tgi_deploy.targets.kubernetes.options import KubernetesOptions
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.wiring import open_catalog

NAMESPACE = ("namespaces", "team-a")


def cluster(**changes: Any) -> FakeCluster:
    found = FakeCluster(**changes)
    found.objects.setdefault(NAMESPACE, {"metadata": {"name": "team-a"}})
    return found


def findings(there: FakeCluster, **options: str) -> dict[str, tuple[str, str]]:
    """Return the severity and the message of each code."""
    api = Api(place=Place.of("kubernetes:team-a@dev"), sender=there)
    found = examined(api, KubernetesOptions(**options), open_catalog())
    return {item.code: (item.severity, item.message) for item in found}


def quota(used: dict[str, str], hard: dict[str, str], **spec: Any) -> dict[tuple[str, str], Any]:
    return {("resourcequotas", "q"): {"metadata": {"name": "q"}, "spec": spec, "status": {"used": used, "hard": hard}}}


def claim(phase: str, *classes: str, wanted: str = "", default: str = "") -> dict[tuple[str, str], Any]:
    note = "storageclass.kubernetes.io/is-default-class"
    made = {"spec": {"storageClassName": wanted} if wanted else {}, "status": {"phase": phase}}
    listed = {
        ("storageclasses", name): {"metadata": {"name": name, "annotations": {note: str(name == default).lower()}}}
        for name in classes
    }
    return {("persistentvolumeclaims", "w"): {"metadata": {"name": "w"}, **made}, **listed}


def test_a_usable_cluster_has_no_error_and_nothing_is_changed():
    there = cluster()
    found = findings(there)
    assert {code: severity for code, (severity, _) in found.items()} == {
        "cluster_access": "ok", "cluster_apis": "ok", "cluster_gpus": "ok", "cluster_quota": "ok",
        "autoscaling_unavailable": "warning",
    }  # fmt: skip
    assert {call.partition(" ")[0] for call in there.calls} == {"GET", "POST"}
    assert {call for call in there.calls if call.startswith("POST")} == {"POST selfsubjectaccessreviews"}


@pytest.mark.parametrize(
    ("denied", "options", "words"),
    [
        ({"create deployments"}, {}, "create deployments"),
        ({"list nodes"}, {}, "list nodes of the cluster"),
        ({"get pods/log"}, {}, "get pods/log"),
        ({"get pods/portforward", "create pods/portforward"}, {}, "get or create pods/portforward"),
        ({"get secrets"}, {"hub_token_secret": "hub"}, "get secrets"),
        ({"get secrets"}, {"api_key_secret": "key"}, "get secrets"),
    ],
)
def test_a_missing_permission_is_named(denied: set[str], options: dict[str, str], words: str):
    severity, message = findings(cluster(denied=frozenset(denied)), **options)["cluster_forbidden"]
    assert (severity, words in message) == ("error", True)


def test_a_permission_that_only_limits_need_is_a_warning():
    found = findings(cluster(denied=frozenset({"create roles", "list serviceaccounts"})))
    assert found["cluster_access"][0] == "ok"
    severity, message = found["limits_forbidden"]
    assert (severity, message.endswith("may not list serviceaccounts, create roles")) == ("warning", True)


@pytest.mark.parametrize(
    ("denied", "options"), [({"create pods/portforward"}, {}), ({"get secrets", "get persistentvolumeclaims"}, {})]
)
def test_a_permission_that_is_not_needed_is_not_missed(denied: set[str], options: dict[str, str]):
    assert findings(cluster(denied=frozenset(denied)), **options)["cluster_access"][0] == "ok"


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ([node(gpus=0)], "no_gpu_nodes"),
        ([node(requested=1)], "no_free_gpus"),
        ([node(labels={"nvidia.com/gpu.product": ""})], "unknown_card"),
    ],
)
def test_a_cluster_without_a_usable_gpu_is_an_error(nodes: list[dict[str, Any]], code: str):
    assert findings(cluster(nodes=nodes))[code][0] == "error"


LABELED = {"nvidia.com/gpu.product": "NVIDIA-L4"}
TYPED = {"nvidia.com/gpu.product": "", "node.kubernetes.io/instance-type": "g6.xlarge"}
PLAIN = {"nvidia.com/gpu.product": "", "node.kubernetes.io/instance-type": "m7i.large"}


def test_a_node_whose_gpu_is_not_offered_lacks_the_device_plugin():
    nodes = [node("a"), *(node(name, gpus=0, labels=of) for name, of in (("b", LABELED), ("c", TYPED), ("d", PLAIN)))]
    severity, message = findings(cluster(nodes=nodes))["device_plugin_missing"]
    assert (severity, message.endswith(": b, c")) == ("warning", True)


def test_what_else_the_cluster_serves_is_named():
    _, message = findings(cluster(groups={f"/apis/{name}": {} for name in ("apps", "keda.sh", "karpenter.sh")}))[
        "cluster_apis"
    ]
    has, lacks = message.split(";")
    assert has.endswith("has KEDA, Karpenter")
    assert "an adapter of external metrics" in lacks


def test_a_namespace_that_does_not_exist_is_an_error():
    assert findings(FakeCluster())["namespace_missing"][0] == "error"


@pytest.mark.parametrize(
    ("used", "hard", "expected"),
    [
        ({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "4"}, "requests.nvidia.com/gpu, 4 of 4 (q)"),
        ({"memory": "1024Mi"}, {"memory": "1Gi"}, "memory, 1024Mi of 1Gi (q)"),
        ({"requests.cpu": "1500m"}, {"requests.cpu": "1.5"}, "requests.cpu, 1500m of 1.5 (q)"),
        ({"pods": "9"}, {"pods": "8"}, "pods, 9 of 8 (q)"),
    ],
)
def test_a_used_up_quota_is_named(used: dict[str, str], hard: dict[str, str], expected: str):
    severity, message = findings(cluster(objects=quota(used, hard)))["cluster_quota"]
    assert (severity, message.endswith(expected)) == ("error", True)


@pytest.mark.parametrize(
    "there",
    [
        quota({"pods": "7", "memory": "1Gi"}, {"pods": "8", "memory": "2G"}),
        quota({"services.loadbalancers": "0"}, {"services.loadbalancers": "0"}),
        quota({"pods": "8"}, {"pods": "8"}, scopes=["BestEffort"]),
    ],
    ids=["room", "not needed", "other pods"],
)
def test_a_quota_that_leaves_room_is_no_finding(there: dict[tuple[str, str], Any]):
    assert findings(cluster(objects=there))["cluster_quota"][0] == "ok"


@pytest.mark.parametrize(
    ("there", "code", "severity"),
    [
        ({}, "claim_missing", "error"),
        (claim("Bound"), "weights_claim", "ok"),
        (claim("Pending", "fast", wanted="fast"), "weights_claim", "ok"),
        (claim("Pending", "fast", default="fast"), "weights_claim", "ok"),
        (claim("Pending", "fast"), "storage_class_missing", "error"),
        (claim("Pending", "fast", wanted="slow"), "storage_class_missing", "error"),
    ],
)
def test_the_claim_for_weights_is_examined(there: dict[tuple[str, str], Any], code: str, severity: str):
    assert findings(cluster(objects=there), weights_claim="w")[code][0] == severity


def test_a_cluster_that_rejects_the_credentials_is_one_finding():
    there = cluster(refusals={"POST selfsubjectaccessreviews": failure(401, "Unauthorized")})
    assert [(code, severity) for code, (severity, _) in findings(there).items()] == [("cluster_login", "error")]


GAUGES = ("tgi_queue_size", "tgi_batch_current_size")


def metrics(group: str, prefix: str, names: tuple[str, ...] = GAUGES) -> dict[str, Any]:
    """Return the documents of a metrics API."""
    version = f"{group}/v1beta1"
    listed = [{"name": f"{prefix}{name}"} for name in names]
    return {
        f"/apis/{group}": {"preferredVersion": {"groupVersion": version}},
        f"/apis/{version}": {"resources": listed},
    }


@pytest.mark.parametrize(
    ("groups", "denied", "code", "words"),
    [
        ({}, "", "autoscaling_unavailable", "KEDA is not installed"),
        (metrics("custom.metrics.k8s.io", "pods/"), "", "cluster_autoscaling", "the metrics API for pods"),
        (metrics("external.metrics.k8s.io", ""), "", "cluster_autoscaling", "the metrics API for external"),
        (metrics("custom.metrics.k8s.io", "pods/", ()), "", "metrics_missing", "does not have yet"),
        ({"/apis/keda.sh/v1alpha1": {}}, "", "cluster_autoscaling", "--prometheus"),
        ({"/apis/keda.sh/v1alpha1": {}}, "patch", "autoscaling_unavailable", "patch scaledobjects"),
        (metrics("custom.metrics.k8s.io", "pods/"), "get", "autoscaling_unavailable", "get horizontalpodautoscalers"),
    ],
)
def test_it_names_what_lets_the_replicas_follow_the_load(groups: dict[str, Any], denied: str, code: str, words: str):
    kinds = ("horizontalpodautoscalers", "scaledobjects")
    found = findings(cluster(groups=groups, denied=frozenset(f"{denied} {kind}" for kind in kinds)))
    assert words in found[code][1]


@pytest.mark.parametrize(
    ("default", "words"), [("true", "nginx of k8s.io/ingress-nginx"), ("false", "--ingress-class")]
)
def test_it_names_the_ingress_class_that_a_host_would_have(default: str, words: str):
    note = {"ingressclass.kubernetes.io/is-default-class": default}
    there = {"metadata": {"name": "nginx", "annotations": note}, "spec": {"controller": "k8s.io/ingress-nginx"}}
    assert words in findings(cluster(objects={("ingressclasses", "nginx"): there}))["cluster_ingress"][1]


@pytest.mark.parametrize(
    ("reach", "words"), [("All", "--gateway infra/web/https (*.example.com)"), ("Same", "take no HTTP routes")]
)
def test_it_names_the_listeners_of_gateways_that_a_host_could_use(reach: str, words: str):
    allowed = {"namespaces": {"from": reach}}
    listener = {
        "name": "https",
        "protocol": "HTTPS",
        "port": 443,
        "hostname": "*.example.com",
        "allowedRoutes": allowed,
    }
    there = {"metadata": {"name": "web", "namespace": "infra"}, "spec": {"listeners": [listener]}}
    assert words in findings(cluster(objects={("gateways", "web"): there}))["cluster_gateways"][1]
