"""The program against the real servers: what `up` creates, and what `down` leaves, as the cluster shows them."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import pytest
from builders.control_plane import eventually

pytestmark = pytest.mark.control_plane
NAME = "llama3-13b"
PLURALS = {
    "Deployment": ("deployments", "/apis/apps/v1"),
    "Service": ("services", "/api/v1"),
    "PodDisruptionBudget": ("poddisruptionbudgets", "/apis/policy/v1"),
}


def labeled(namespace):
    """Return the kind and name of everything with the deployment's label."""
    query = f"?labelSelector=tgi-deploy/deployment={NAME}"
    kinds = {**PLURALS, "Pod": ("pods", "/api/v1"), "ReplicaSet": ("replicasets", "/apis/apps/v1")}
    return [
        (kind, item["metadata"]["name"])
        for kind, (plural, group) in kinds.items()
        for item in namespace.plane.call("GET", namespace.path(plural, group=group) + query)["items"]
    ]


def test_up_serves_once_and_down_leaves_nothing(namespace, run):
    up = ("up", NAME, "--target", "kubernetes", "--namespace", namespace.name, "--yes")
    code, first = run(*up)
    assert code == 0, first["errors"]
    (before,) = namespace.plane.call("GET", namespace.deployments())["items"]
    assert (before["status"]["readyReplicas"], len(namespace.ready())) == (1, 1)
    code, shown = run("status", NAME)
    assert (code, shown["data"]["replicas"][0]["status"]) == (0, "ready")
    code, answered = run("ask", NAME, "Hello")
    assert code == 0, answered["errors"]
    code, _ = run(*up)
    (after,) = namespace.plane.call("GET", namespace.deployments())["items"]
    assert (code, after["metadata"]["generation"]) == (0, before["metadata"]["generation"])
    code, removed = run("down", NAME, "--yes")
    assert code == 0, removed["errors"]
    assert labeled(namespace) == []


def enforce(namespace, standard):
    labels = {"pod-security.kubernetes.io/enforce": standard}
    path = f"/api/v1/namespaces/{namespace.name}"
    namespace.plane.call("PATCH", path, {"metadata": {"labels": labels}}, "application/merge-patch+json")


def test_pods_run_under_the_strictest_standard_that_their_image_allows(namespace, run):
    """The API server enforces both standards; the nodes know which images only root can start."""
    up = ("up", NAME, "--target", "kubernetes", "--ttl", "2h", "--yes")
    enforce(namespace, "restricted")
    code, refused = run(*up)
    assert (code, refused["errors"][0]["code"]) == (1, "admission_refused"), refused["errors"]
    assert labeled(namespace) == []
    for standard, options, user in (("restricted", ("--engine-version", "3.0.1"), 1000), ("baseline", (), 0)):
        enforce(namespace, standard)
        code, made = run(*up, *options)
        assert code == 0, made["errors"]
        eventually(lambda: len(namespace.ready()) == 2)
        assert {pod["spec"]["securityContext"]["runAsUser"] for pod in namespace.ready()} == {user}
        assert run("down", NAME, "--yes")[0] == 0


def endpoints(namespace):
    """Return the addresses of the Service that take requests."""
    slices = namespace.plane.call("GET", namespace.path("endpointslices", group="/apis/discovery.k8s.io/v1"))["items"]
    return {one["addresses"][0] for item in slices for one in item["endpoints"] or () if one["conditions"]["ready"]}


def test_several_replicas_are_all_ready_and_one_of_them_may_be_evicted(namespace, run):
    code, up = run("up", NAME, "--target", "kubernetes", "--replicas", "3", "--yes")
    assert code == 0, up["errors"]
    pods = namespace.ready()
    assert len(pods) == len({pod["spec"]["nodeName"] for pod in pods}) == 3
    eventually(lambda: endpoints(namespace) == {pod["status"]["podIP"] for pod in pods})
    code, scaled = run("scale", NAME, "2")
    assert (code, scaled["data"]["before"], scaled["data"]["replicas"]) == (0, 3, 2)
    eventually(lambda: len(namespace.pods()) == 2)  # until then the third one has its GPU
    code, scaled = run("scale", NAME, "4")
    assert code == 0, scaled["errors"]
    assert len(namespace.ready()) == 4
    kept = {pod["metadata"]["uid"] for pod in namespace.ready()} & {pod["metadata"]["uid"] for pod in pods}
    assert len(kept) == 2
    code, shown = run("status", NAME)
    assert (code, [item["status"] for item in shown["data"]["replicas"]]) == (0, ["ready"] * 4)
    code, log = run("logs", NAME, "--tail", "1")
    assert (code, len(log["data"]["lines"])) == (0, 4)
    code, refused = run("scale", NAME, "5")
    assert (code, refused["errors"][0]["code"]) == (1, "no_free_gpus")
    code, again = run("up", NAME, "--target", "kubernetes", "--yes")
    assert code == 0, again["errors"]
    assert len(namespace.ready()) == 4
    code, sized = run("up", NAME, "--target", "kubernetes", "--replicas", "2", "--yes")
    assert (code, [item["code"] for item in sized["warnings"]].count("replicas_changed")) == (0, 1)
    eventually(lambda: len(namespace.pods()) == 2)
    path = namespace.path("poddisruptionbudgets", f"tgi-deploy-{NAME}", "/apis/policy/v1")
    assert eventually(lambda: namespace.plane.call("GET", path)["status"].get("disruptionsAllowed")) == 1
    assert run("down", NAME, "--yes")[0] == 0
    assert labeled(namespace) == []


def images(namespace):
    """Return the releases of the pods that are ready."""
    pods = namespace.ready()
    return {pod["spec"]["containers"][0]["image"].partition("@")[0].rpartition(":")[2] for pod in pods}


def templates(namespace):
    """Return the specification of the pods of each Deployment, without the number of the revision."""
    items = namespace.plane.call("GET", namespace.deployments())["items"]
    texts = (json.dumps(item["spec"]["template"]["spec"], indent=1) for item in items)
    return [re.sub(r'(?<="tgi-deploy/revision": )"\d+"', "any", text) for text in texts]


def move_on():
    """Leave the kubeconfig without a current context, and its only context in another namespace."""
    path = Path(os.environ["KUBECONFIG"])
    document = json.loads(path.read_text(encoding="utf-8"))
    document["contexts"][0]["context"]["namespace"] = "default"
    path.write_text(json.dumps({**document, "current-context": ""}), encoding="utf-8")


def test_an_update_serves_from_the_new_pod_once_it_is_proved_and_rollback_goes_back(namespace, run, tmp_path):
    up = ("up", NAME, "--target", "kubernetes", "--yes")
    code, first = run(*up)
    assert code == 0, first["errors"]
    before = templates(namespace)
    move_on()  # from here on it is found by its record
    file = tmp_path / "llm.toml"
    file.write_text(f'model = "{NAME}"\ntarget = "kubernetes"\nengine_version = "3.3.6"\n', encoding="utf-8")
    code, updated = run("up", "-f", str(file), "--yes")
    assert code == 0, updated["errors"]
    assert images(namespace) == {"3.3.6"}
    eventually(lambda: endpoints(namespace) == {pod["status"]["podIP"] for pod in namespace.ready()})
    code, answered = run("ask", NAME, "Hello")
    assert code == 0, answered["errors"]
    code, back = run("rollback", NAME, "--yes")
    assert code == 0, back["errors"]
    assert templates(namespace) == before
    assert run("down", NAME, "--yes")[0] == 0
    assert labeled(namespace) == []


def test_a_failed_update_leaves_the_pods_that_serve(namespace, run):
    up = ("up", NAME, "--target", "kubernetes", "--yes")
    assert run(*up)[0] == 0
    assert run("scale", NAME, "2")[0] == 0
    before = {pod["metadata"]["uid"] for pod in namespace.ready()}
    namespace.plane.engines(faults={"3.3.6": ["oom-warmup"]})
    code, failed = run(*up, "--engine-version", "3.3.6", "--on-failure", "remove")
    assert (code, failed["status"]) == (5, "error")
    assert len(before) == 2
    assert {pod["metadata"]["uid"] for pod in namespace.ready()} == before
    assert run("down", NAME, "--yes")[0] == 0


def test_without_any_room_next_to_what_serves_an_update_is_refused_or_recreates(namespace, run):
    up = ("up", NAME, "--target", "kubernetes", "--replicas", "4", "--yes")
    assert run(*up)[0] == 0
    before = {pod["metadata"]["uid"] for pod in namespace.ready()}
    code, refused = run(*up, "--engine-version", "3.3.6", "--strategy", "rolling")
    assert (code, refused["errors"][0]["code"]) == (4, "rolling_unavailable")
    assert "room" in refused["errors"][0]["message"]
    assert {pod["metadata"]["uid"] for pod in namespace.ready()} == before
    code, updated = run(*up, "--engine-version", "3.3.6")
    assert code == 0, updated["errors"]
    assert images(namespace) == {"3.3.6"}
    eventually(lambda: endpoints(namespace) == {pod["status"]["podIP"] for pod in namespace.ready()})
    assert run("down", NAME, "--yes")[0] == 0
    assert labeled(namespace) == []


def break_engines_after_the_first(namespace, release):
    """Have the engines of a release crash that start after its first one is ready."""

    def wait():
        eventually(lambda: release in images(namespace))
        namespace.plane.engines(faults={release: ["oom-warmup"]})

    threading.Thread(target=wait, daemon=True).start()


def test_a_step_that_fails_leaves_both_revisions_serving_and_a_rollback_goes_back(namespace, run):
    up = ("up", NAME, "--target", "kubernetes", "--replicas", "3", "--yes")
    assert run(*up)[0] == 0
    before = {pod["metadata"]["uid"] for pod in namespace.ready()}
    break_engines_after_the_first(namespace, "3.3.6")
    code, failed = run(*up, "--engine-version", "3.3.6")
    hint = failed["errors"][0]["hint"]
    assert (code, "ready replicas of revisions 2 and 1 serve at" in hint) == (5, True), hint
    kept = {pod["metadata"]["uid"] for pod in namespace.ready()} & before
    assert (len(kept), images(namespace)) == (2, {"3.3.6", "3.3.7"})
    assert len(endpoints(namespace)) == 3
    _, shown = run("status", NAME)
    assert sorted(item["revision"] for item in shown["data"]["replicas"] if item["status"] == "ready") == [1, 1, 2]
    code, back = run("rollback", NAME, "--yes")
    assert code == 0, back["errors"]
    after = {pod["metadata"]["uid"] for pod in namespace.ready()}
    assert (len(after), kept <= after, images(namespace)) == (3, True, {"3.3.7"})
    assert run("down", NAME, "--yes")[0] == 0
    assert labeled(namespace) == []


def test_a_restart_replaces_each_pod_and_a_stop_is_refused(namespace, run):
    assert run("up", NAME, "--target", "kubernetes", "--replicas", "2", "--yes")[0] == 0
    before = {pod["metadata"]["uid"] for pod in namespace.ready()}
    code, restarted = run("restart", NAME, "--yes")
    assert code == 0, restarted["errors"]
    after = {pod["metadata"]["uid"] for pod in namespace.ready()}
    assert (len(after), before & after) == (2, set())
    code, refused = run("stop", NAME, "--yes")
    assert (code, refused["errors"][0]["code"]) == (2, "not_stoppable"), refused["errors"]
    assert len(namespace.ready()) == 2
    assert run("down", NAME, "--yes")[0] == 0


def test_more_replicas_than_the_cluster_has_room_for_are_refused_before_anything_is_created(namespace, run):
    code, refused = run("up", NAME, "--target", "kubernetes", "--replicas", "5", "--yes")
    assert code != 0
    assert "4" in json.dumps(refused["errors"])
    assert labeled(namespace) == []


def test_a_quota_is_compared_before_anything_is_created_and_ends_a_wait(namespace, run):
    path = namespace.path("resourcequotas", "team")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}}

    def allow(gpus):
        namespace.apply(path, {**quota, "spec": {"hard": {"requests.nvidia.com/gpu": str(gpus)}}})
        hard = {"requests.nvidia.com/gpu": str(gpus)}
        eventually(lambda: namespace.plane.call("GET", path).get("status", {}).get("hard") == hard)

    allow(1)
    up = ("up", NAME, "--target", "kubernetes", "--replicas", "2", "--yes")
    code, refused = run(*up)
    assert (code, refused["errors"][0]["code"]) == (1, "cluster_quota")
    assert labeled(namespace) == []
    code, waited = run(*up, "--no-preflight")
    assert (code, waited["errors"][0]["code"]) == (1, "cluster_quota")
    assert labeled(namespace) == []
    code, made = run(*up[:4], "--yes")
    assert code == 0, made["errors"]
    code, refused = run("scale", NAME, "2")
    assert (code, refused["errors"][0]["code"]) == (1, "cluster_quota")
    assert len(namespace.pods()) == 1
    allow(2)
    code, scaled = run("scale", NAME, "2")
    assert code == 0, scaled["errors"]
    assert run("down", NAME, "--yes")[0] == 0


def test_a_key_of_a_secret_is_required_and_only_its_name_is_recorded(namespace, run, monkeypatch):
    key = "sekret-key-1"
    monkeypatch.setenv("LLM_KEY", key)
    up = ("up", NAME, "--target", "kubernetes", "--api-key-from-env", "LLM_KEY", "--yes")
    code, refused = run(*up)
    assert (code, refused["errors"][0]["code"]) == (1, "secret_not_in_cluster")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "engine-api-key"}}
    path = namespace.path("secrets", "engine-api-key")
    namespace.apply(path, {**secret, "stringData": {"api-key": f"{key}\n"}})
    code, refused = run(*up)
    assert (code, refused["errors"][0]["code"]) == (1, "api_key_differs")
    assert labeled(namespace) == []
    namespace.apply(path, {**secret, "stringData": {"api-key": key}})
    code, made = run(*up, "--idle-timeout", "20m")
    assert code == 0, made["errors"]
    code, answered = run("ask", NAME, "Hello")
    assert code == 0, answered["errors"]
    monkeypatch.setenv("LLM_KEY", "another")
    code, refused = run("ask", NAME, "Hello")
    assert (code, refused["errors"][0]["code"]) == (5, "unauthorized")
    jobs = namespace.plane.call("GET", namespace.path("jobs", group="/apis/batch/v1"))["items"]
    live = json.dumps([namespace.plane.call("GET", namespace.deployments())["items"], namespace.pods(), jobs])
    files = (item for item in Path(os.environ["TGI_DEPLOY_HOME"]).rglob("*") if item.is_file())
    written = "".join(item.read_text(encoding="utf-8", errors="replace") for item in files)
    assert key not in live + json.dumps(made) + written
    assert "LLM_KEY" in written
    assert run("down", NAME, "--yes")[0] == 0


def test_a_plan_is_made_for_the_cluster_and_the_namespace_that_are_named(namespace, run):
    path = Path(os.environ["KUBECONFIG"])
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "current-context": ""}), encoding="utf-8")
    plan = ("plan", NAME, "--target", "kubernetes")
    assert run(*plan)[0] != 0
    named = (*plan, "--kube-context", document["contexts"][0]["name"], "--namespace", namespace.name)
    for words in (named, (*named, "--why-not", "L40S"), (*named, "--sweep", "concurrency=1,2")):
        code, planned = run(*words)
        assert code == 0, planned["errors"]
    _, examined = run("doctor", *named[2:])
    found = {item["code"]: item["message"] for item in examined["data"]["findings"]}
    assert "the cluster has none known; it does not have the metrics server" in found["cluster_apis"]
