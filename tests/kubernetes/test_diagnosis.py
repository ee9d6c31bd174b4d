"""Why a pod does not run: what the real servers report about it, and what `diagnose` and `status` make of that."""

from __future__ import annotations

import pytest
from builders.control_plane import eventually

pytestmark = pytest.mark.control_plane
NAME = "llama3-13b"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = {
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}


def killed_for_memory(namespace):
    namespace.plane.engines(faults={"3.3.7": ["oom-killed"]})


def out_of_gpu_memory(namespace):
    namespace.plane.engines(faults={"3.3.7": ["oom-warmup"]})


def claim_without_a_volume(namespace):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "weights"}, "spec": spec}
    namespace.apply(namespace.path("persistentvolumeclaims", "weights"), body)


def policy_against_pods(namespace):
    """Let a policy refuse the pods of this namespace, and wait until it does."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    policy = {
        "matchConstraints": {"resourceRules": [pods], "namespaceSelector": here},
        "validations": [{"expression": "false", "message": "a label is missing"}],
    }
    binding = {"policyName": namespace.name, "validationActions": ["Deny"]}
    for (kind, path), spec in zip(POLICIES.items(), (policy, binding), strict=True):
        body = {"apiVersion": ADMISSION.removeprefix("/apis/"), "kind": kind, "metadata": {"name": namespace.name}}
        namespace.plane.call("POST", path, {**body, "spec": spec})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    eventually(lambda: namespace.plane.ask("POST", namespace.path("pods") + "?dryRun=All", pod)[0] >= 400)


@pytest.fixture(autouse=True)
def no_policies(namespace):
    yield
    for path in POLICIES.values():
        namespace.plane.ask("DELETE", f"{path}/{namespace.name}")


@pytest.mark.parametrize(
    ("prepare", "options", "code", "shown"),
    [
        (killed_for_memory, (), "host_oom_killed", "OOMKilled"),
        (out_of_gpu_memory, (), "oom_warmup_prefill", "CrashLoopBackOff"),
        (claim_without_a_volume, ("--weights-claim", "weights"), "claim_unbound", "unbound immediate"),
        (policy_against_pods, (), "admission_denied", "a label is missing"),
    ],
    ids=["OOMKilled", "CrashLoopBackOff", "claim", "policy"],
)
def test_a_pod_that_does_not_run_is_diagnosed(namespace, run, prepare, options, code, shown):
    prepare(namespace)
    up = ("up", NAME, "--target", "kubernetes", "--engine-version", "3.3.7", *options, "--no-wait", "--yes")
    exit_code, made = run(*up)
    assert exit_code == 0, made["errors"]

    def found():
        return [item["code"] for item in run("diagnose", NAME)[1]["data"]["findings"][:1]] == [code]

    eventually(found)
    eventually(lambda: shown in str(run("status", NAME)[1]))
    assert run("down", NAME, "--yes")[0] == 0
