"""Every rendered manifest passes a strict dry run on the real API server, KEDA's own definition included."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from builders.control_plane import APPLY, defined

pytestmark = pytest.mark.control_plane
CASES = Path(__file__).parents[1] / "cases"
RENDER = ("render", "llama3-13b", "--hardware", "1xL40S", "--as", "kubernetes")
PATHS = {
    "Deployment": ("/apis/apps/v1", "deployments"),
    "Service": ("/api/v1", "services"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "Job": ("/apis/batch/v1", "jobs"),
    "Ingress": ("/apis/networking.k8s.io/v1", "ingresses"),
    "HorizontalPodAutoscaler": ("/apis/autoscaling/v2", "horizontalpodautoscalers"),
}
CUSTOM = {
    "HTTPRoute": ("/apis/gateway.networking.k8s.io/v1", "httproutes"),
    "ScaledObject": ("/apis/keda.sh/v1alpha1", "scaledobjects"),
}


def dry_run(namespace, document):
    """Return the status and the reply of a strict dry run in the test's namespace."""
    group, plural = {**PATHS, **CUSTOM}[document["kind"]]
    document = {**document, "metadata": {**document["metadata"], "namespace": namespace.name}}
    for subject in document.get("subjects", ()):
        subject["namespace"] = namespace.name
    path = namespace.path(plural, document["metadata"]["name"], group)
    how = "?fieldManager=tests&fieldValidation=Strict&dryRun=All"
    return namespace.plane.ask("PATCH", path + how, document, APPLY)


def test_every_rendered_case_passes(namespace):
    rendered = sorted((CASES / "render").glob("*/kubernetes.yaml"))
    found = [item for path in rendered for item in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    assert len(found) > len(rendered)
    for document in found:
        status, reply = dry_run(namespace, document)
        assert status < 300, (document["metadata"]["name"], reply)
    assert namespace.pods() == []


def test_a_range_a_host_and_limits_pass(namespace, run):
    options = ("--replicas", "1..4", "--host", "llm.example.com", "--tls-secret", "web", "--api-key-secret", "key")
    code, rendered = run(*RENDER, *options, "--ttl", "2h", "--weights-claim", "models", "--namespace", namespace.name)
    assert code == 0, rendered["errors"]
    documents = list(yaml.safe_load_all(rendered["data"]["artifact"]["text"]))
    assert {item["kind"] for item in documents} == PATHS.keys()
    for document in documents:
        status, reply = dry_run(namespace, document)
        assert status < 300, reply


def test_a_route_passes_the_gateway_apis_own_definition(namespace, run):
    with defined(namespace.plane, "gateway.networking.k8s.io_httproutes"):
        host = ("--host", "llm.example.com", "--gateway", "infra/web/https", "--api-key-secret", "key")
        code, rendered = run(*RENDER, *host)
        assert code == 0, rendered["errors"]
        found = {item["kind"]: item for item in yaml.safe_load_all(rendered["data"]["artifact"]["text"])}
        assert "Ingress" not in found
        status, reply = dry_run(namespace, found["HTTPRoute"])
        assert status < 300, reply
        found["HTTPRoute"]["spec"]["rules"][0]["timeout"] = "0s"
        status, reply = dry_run(namespace, found["HTTPRoute"])
        assert (status >= 400, b"timeout" in reply) == (True, True)


def test_the_object_for_keda_passes_its_own_definition_and_follows_the_revision(namespace, run):
    prometheus = ("--prometheus", "http://prometheus.monitoring.svc:9090")
    with defined(namespace.plane, "keda.sh_scaledobjects"):
        code, rendered = run(*RENDER, "--replicas", "1..4", *prometheus)
        (document,) = (
            item for item in yaml.safe_load_all(rendered["data"]["artifact"]["text"]) if item["kind"] == "ScaledObject"
        )
        assert dry_run(namespace, document)[0] < 300
        document["spec"]["maxReplicas"] = 4
        status, reply = dry_run(namespace, document)
        assert (status >= 400, b"maxReplicas" in reply) == (True, True)
        up = ("up", "llama3-13b", "--target", "kubernetes", "--concurrency", "2", "--yes")
        code, refused = run(*up, "--replicas", "1..2")
        assert (code, refused["errors"][0]["code"]) == (1, "autoscaling_unavailable")
        code, made = run(*up, "--replicas", "1..2", *prometheus)
        assert code == 0, made["errors"]
        path = namespace.path("scaledobjects", "", CUSTOM["ScaledObject"][0])
        (live,) = namespace.plane.call("GET", path)["items"]
        bounds = live["spec"]["minReplicaCount"], live["spec"]["maxReplicaCount"]
        assert (live["metadata"]["name"], bounds) == ("tgi-deploy-llama3-13b", (1, 2))
        code, scaled = run("scale", "llama3-13b", "1..3")
        assert code == 0, scaled["errors"]
        assert namespace.plane.call("GET", path)["items"][0]["spec"]["maxReplicaCount"] == 3
        code, shown = run("status", "llama3-13b")
        assert shown["data"]["deployments"][0]["autoscaler"]["most"] == 3
        assert run("down", "llama3-13b", "--yes")[0] == 0
        assert namespace.plane.call("GET", path)["items"] == []
