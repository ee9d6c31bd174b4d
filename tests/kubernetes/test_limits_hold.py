"""Limits hold without the caller: the real control plane runs the Job that `up --ttl` creates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import yaml
from builders.control_plane import eventually
from urllib3 import PoolManager

from tgi_deploy.sandbox.kubernetes import CERTIFICATE

pytestmark = pytest.mark.control_plane
NAME = "llama3-13b"
OWN = f"tgi-deploy-{NAME}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PLURALS = {
    "serviceaccounts": "/api/v1", "services": "/api/v1", "deployments": "/apis/apps/v1", "jobs": "/apis/batch/v1",
    "poddisruptionbudgets": "/apis/policy/v1", "roles": RBAC, "rolebindings": RBAC,
}  # fmt: skip


def up(namespace, run, *limits):
    code, made = run("up", NAME, "--target", "kubernetes", "--namespace", namespace.name, *limits, "--yes")
    assert code == 0, made["errors"]
    return made


def labeled(namespace):
    """Return the plural of everything with the deployment's label."""
    query = f"?labelSelector=tgi-deploy/deployment={NAME}"
    paths = {plural: namespace.path(plural, "", group) + query for plural, group in PLURALS.items()}
    return {plural for plural, path in paths.items() if namespace.plane.call("GET", path)["items"]}


def jobs(namespace):
    items = namespace.plane.call("GET", namespace.path("jobs", "", "/apis/batch/v1"))["items"]
    return [item["metadata"]["uid"] for item in items]


def annotate(namespace, name=OWN, **limits):
    """Set limits as `extend` does."""
    annotations = {f"tgi-deploy/{name.replace('_', '-')}": value for name, value in limits.items()}
    body = {"metadata": {"annotations": annotations}}
    namespace.plane.call("PATCH", namespace.deployments(name), body, "application/merge-patch+json")


def ends(shown):
    return {end["reason"]: datetime.fromisoformat(end["at"]) for end in shown["data"]["deployments"][0]["ends"]}


def as_the_job(namespace):
    """Return a function that sends a request with the Job's own token, and returns the status."""
    path = namespace.path("serviceaccounts", f"{OWN}/token")
    token = namespace.plane.call("POST", path, {"spec": {"expirationSeconds": 600}})["status"]["token"]
    http = PoolManager(ca_certs=str(namespace.plane.home / CERTIFICATE), retries=False)
    headers = {"Authorization": f"Bearer {token}"}
    return lambda method, path: http.request(method, namespace.plane.server + path, headers=headers).status


def test_a_deployment_ends_at_its_ttl_without_the_caller_even_if_the_pod_of_the_job_is_lost(namespace, run):
    up(namespace, run, "--ttl", "2h")
    assert labeled(namespace) == set(PLURALS)
    code, shown = run("status", NAME)
    assert (code, ends(shown)["ttl"] - datetime.now(UTC) < timedelta(hours=2)) == (0, True)
    code, moved = run("extend", NAME, "--ttl", "4h")
    assert code == 0, moved["errors"]
    code, shown = run("status", NAME)
    assert ends(shown)["ttl"] - datetime.now(UTC) > timedelta(hours=3)
    (before,) = jobs(namespace)
    up(namespace, run, "--engine-version", "3.3.6", "--ttl", "5h")
    (after,) = jobs(namespace)
    assert after != before
    eventually(lambda: run("status", NAME)[1]["data"]["deployments"][0]["drift"] == [])
    assert ends(run("status", NAME)[1])["ttl"] - datetime.now(UTC) > timedelta(hours=4)
    assert labeled(namespace) == set(PLURALS)
    (lost,) = (
        pod["metadata"]["name"]
        for pod in namespace.pods()
        if pod["metadata"]["labels"].get("tgi-deploy/limits-of") == f"{OWN}-r2"
    )
    namespace.plane.call("DELETE", namespace.path("pods", lost) + "?gracePeriodSeconds=0")
    annotate(namespace, f"{OWN}-r2", expires=datetime.now(UTC).isoformat(timespec="seconds"))
    eventually(lambda: not labeled(namespace) and not namespace.pods())
    code, shown = run("status", NAME)
    assert code != 0
    assert run("down", NAME, "--yes")[0] == 0


def apply_rendered(namespace, run):
    words = ("render", NAME, "--hardware", "1xL40S", "--as", "kubernetes", "--namespace", namespace.name)
    code, rendered = run(*words, "--ttl", "2h")
    assert code == 0, rendered["errors"]
    for item in yaml.safe_load_all(rendered["data"]["artifact"]["text"]):
        plural = f"{item['kind'].lower()}s"
        namespace.apply(namespace.path(plural, item["metadata"]["name"], PLURALS[plural]), item)
    eventually(lambda: len(namespace.ready()) == 2)


def test_rendered_limits_hold_each_time_that_the_manifests_are_applied(namespace, run):
    for _ in range(2):
        apply_rendered(namespace, run)
        annotate(namespace, ttl_s="1")
        eventually(lambda: labeled(namespace) <= {"roles", "rolebindings"} and not namespace.pods())


def test_the_job_may_end_its_own_deployment_and_nothing_else(namespace, run):
    up(namespace, run, "--lease", "1h")
    ask = as_the_job(namespace)
    other = namespace.deployments("other")
    assert ask("GET", namespace.deployments(OWN)) == 200
    for method, path in (
        ("DELETE", other), ("GET", other), ("GET", namespace.deployments()), ("DELETE", namespace.deployments()),
        ("PATCH", namespace.deployments(OWN)), ("GET", namespace.path("secrets", "hf-token")),
        ("GET", namespace.path("pods")), ("DELETE", namespace.path("services", "other")),
    ):  # fmt: skip
        assert ask(method, path) == 403, (method, path)
    assert run("down", NAME, "--yes")[0] == 0
    assert labeled(namespace) == set()


def test_extend_gives_the_first_limit_to_a_deployment_without_one_and_down_removes_it(namespace, run):
    up(namespace, run)
    assert labeled(namespace) == {"services", "deployments", "poddisruptionbudgets"}
    code, moved = run("extend", NAME, "--lease", "30m")
    assert code == 0, moved["errors"]
    assert labeled(namespace) == set(PLURALS)
    before = jobs(namespace)
    up(namespace, run, "--ttl", "2h")
    assert ends(run("status", NAME)[1]).keys() == {"lease", "ttl"}
    assert jobs(namespace) == before
    assert run("down", NAME, "--yes")[0] == 0
    assert labeled(namespace) == set()


def test_a_deployment_ends_when_its_pods_had_no_request_for_a_while(namespace, run):
    up(namespace, run, "--idle-timeout", "30m")
    _, shown = run("status", NAME)
    assert shown["data"]["deployments"][0]["ends"] == [{"reason": "idle", "at": None, "seconds": 1800}]
    assert namespace.ready()
    annotate(namespace, idle_s="5")
    eventually(lambda: not labeled(namespace) and not namespace.pods())
    assert run("down", NAME, "--yes")[0] == 0


def kept(looked):
    """Return what `gc` kept, which was everything."""
    code, found = looked
    assert (code, found["data"]["removed"]) == (0, [])
    return [group["deployment"] for group in found["data"]["kept"]]


def test_gc_removes_what_is_left_of_a_deployment_and_spares_what_runs(namespace, run, monkeypatch, tmp_path):
    gc = ("gc", "--target", "kubernetes", "--older-than", "0s", "--yes")
    up(namespace, run, "--lease", "1h")
    assert kept(run(*gc)) == [NAME]
    monkeypatch.setenv("TGI_DEPLOY_HOME", str(tmp_path / "another computer"))
    assert kept(run(*gc)) == [NAME]
    namespace.plane.call("DELETE", namespace.deployments(OWN) + "?propagationPolicy=Background")
    assert labeled(namespace) == set(PLURALS) - {"deployments"}
    code, looked = run(*gc)
    assert (code, looked["data"]["removed"]) == (0, [NAME]), looked
    assert labeled(namespace) == set()
