"""What enforces limits in a cluster: its permissions, its pod, its program, and how it comes and goes."""

from __future__ import annotations

import runpy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from builders import plans
from fakes.kubernetes_api import FakeCluster, failure

from tgi_deploy.errors import ConflictError, InputError
from tgi_deploy.reconcile.ends import TAG_IDLE_S
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.limits import enforcer, limit_manifests
from tgi_deploy.targets.kubernetes.manifests import deployment, workload
from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.resources import KINDS, OWN_KINDS, PATHS
from tgi_deploy.templating import render_text
from tgi_deploy.values.resource import TAG_EXPIRES, TAG_ID, TAG_KEY, TAG_NAME, TAG_SPEC

if TYPE_CHECKING:
    from pathlib import Path

PLACE = Place.of("kubernetes:team-a@dev")
NODES = NodeLabels.packaged().selector("L40S")
NAME = "tgi-deploy-demo"
TAGS = {TAG_NAME: "demo", TAG_ID: "id1", TAG_KEY: "serviceaccount", TAG_SPEC: "abc"}
NOW = datetime(2026, 1, 9, 12, 0, tzinfo=UTC)
SETS = {TAG_EXPIRES: "2026-01-09T14:00:00+00:00 7200"}


def engine(**changes: Any) -> dict[str, Any]:
    deployable = plans.deployable(name="demo", candidate=plans.candidate(engine=plans.engine(**changes)))
    return deployment(workload(deployable, NODES, deployment_id="id1"))


def manifests() -> dict[str, Any]:
    return {item["kind"]: item for item in limit_manifests(engine(), "team-a")}


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = manifests()["Job"]["spec"]["template"]["spec"]
    return spec


def cloud(cluster: FakeCluster) -> KubernetesCloud:
    return KubernetesCloud(api=Api(place=PLACE, sender=cluster))


def kinds(cluster: FakeCluster) -> set[str]:
    return {plural for plural, _ in cluster.objects if plural != "pods"}


def test_its_role_allows_only_to_read_the_deployment_and_to_delete_what_is_named_after_it():
    rules = manifests()["Role"]["rules"]
    assert {(*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in rules} == {
        ("", "endpoints", "get"), ("", "serviceaccounts", "delete"), ("apps", "deployments", "get", "delete"),
        ("", "services", "delete"), ("policy", "poddisruptionbudgets", "delete"),
    }  # fmt: skip
    assert {tuple(rule["resourceNames"]) for rule in rules} == {(NAME,)}
    (subject,) = manifests()["RoleBinding"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": NAME, "namespace": "team-a"}


def test_its_pod_runs_the_engines_image_beside_the_engine_without_a_gpu():
    wanted, (container,) = engine()["spec"]["template"]["spec"], pod()["containers"]
    assert container["image"] == wanted["containers"][0]["image"]
    (beside,) = pod()["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert beside["labelSelector"] == engine()["spec"]["selector"]
    assert wanted["tolerations"][0] in pod()["tolerations"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["restartPolicy"] == "OnFailure"


def test_its_pod_runs_as_root_only_if_the_engines_does_because_python_is_in_the_same_image():
    made = engine()
    made["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": 0}
    job = limit_manifests(made, "team-a")[-1]["spec"]["template"]["spec"]
    assert job["securityContext"]["runAsUser"] == 0
    assert "runAsNonRoot" not in job["securityContext"]


def test_the_service_does_not_select_its_pod():
    labels = manifests()["Job"]["spec"]["template"]["metadata"]["labels"]
    assert not labels.keys() & engine()["spec"]["selector"]["matchLabels"].keys()


def test_it_deletes_everything_else_last_what_allows_it_to():
    *_, first, budget, service, account = pod()["containers"][0]["args"]
    rest = (budget, service, account)
    assert first == f"/apis/apps/v1/namespaces/team-a/deployments/{NAME}"
    assert rest[-1] == f"/api/v1/namespaces/team-a/serviceaccounts/{NAME}"
    assert {path.split("/")[-2] for path in (first, *rest)} == {PATHS[kind][1] for kind in OWN_KINDS}


def test_limits_are_enforced_from_before_the_deployment_exists_until_it_is_gone():
    assert KINDS.index("serviceaccount") < KINDS.index("deployment")


def made(cluster: FakeCluster) -> None:
    wanted = engine()
    properties = {"name": NAME, "manifest": wanted}
    cloud(cluster).handler("deployment").create(properties, tags={**TAGS, TAG_KEY: "deployment@1.1"}, token="t")


def test_the_first_limit_creates_what_enforces_it_and_the_next_changes_only_the_annotation():
    cluster = FakeCluster()
    made(cluster)
    handler = cloud(cluster).handler("deployment")
    handler.update({"id": f"deployment/{NAME}"}, {"tags": SETS})
    assert kinds(cluster) == {"deployments", "serviceaccounts", "roles", "rolebindings", "jobs"}
    before = [item["metadata"]["uid"] for (plural, _), item in cluster.objects.items() if plural == "jobs"]
    handler.update({"id": f"deployment/{NAME}"}, {"tags": {TAG_EXPIRES: "none"}})
    notes = cluster.objects["deployments", NAME]["metadata"]["annotations"]
    assert (notes["tgi-deploy/expires"], notes["tgi-deploy/limits"]) == ("none", "tags")
    assert [item["metadata"]["uid"] for (plural, _), item in cluster.objects.items() if plural == "jobs"] == before


def test_everything_that_enforces_limits_is_deleted_with_its_account():
    cluster = FakeCluster()
    made(cluster)
    there = cloud(cluster)
    there.handler("deployment").update({"id": f"deployment/{NAME}"}, {"tags": SETS})
    (found,) = there.handler("serviceaccount").find({TAG_NAME: "demo"})
    there.handler("serviceaccount").delete(found.attributes)
    assert kinds(cluster) == {"deployments"}


def test_a_new_image_gets_a_new_job_before_the_former_one_goes():
    cluster = FakeCluster()
    accounts = cloud(cluster).handler("serviceaccount")
    found = accounts.create(enforcer(engine(), PLACE).properties, tags=TAGS, token="t")
    (former,) = (name for plural, name in cluster.objects if plural == "jobs")
    accounts.update(found.attributes, enforcer(engine(num_shard=1, image="x:2"), PLACE).properties)
    (now,) = (name for plural, name in cluster.objects if plural == "jobs")
    assert now != former
    assert cluster.calls.index("DELETE jobs") > max(at for at, call in enumerate(cluster.calls) if call == "PATCH jobs")


def test_the_limits_of_another_deployment_are_not_taken_over():
    cluster = FakeCluster()
    accounts, properties = cloud(cluster).handler("serviceaccount"), enforcer(engine(), PLACE).properties
    accounts.create(properties, tags=TAGS, token="t")
    with pytest.raises(ConflictError) as caught:
        accounts.create(properties, tags={**TAGS, TAG_ID: "id2"}, token="t")
    assert caught.value.code == "name_taken"


def test_without_permission_to_list_accounts_everything_else_is_found_and_that_is_noted():
    cluster = FakeCluster(refusals={"GET serviceaccounts": failure(403, "serviceaccounts is forbidden")})
    made(cluster)
    there = cloud(cluster)
    assert [found.kind for found in there.find({})] == ["deployment"]
    assert list(there.unsearched) == [(str(PLACE), "serviceaccount")]


@pytest.fixture
def program(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "program.py"
    path.write_text(render_text("kubernetes/enforce-limits.py.j2", {}, templates_dir=None), encoding="utf-8")
    return runpy.run_path(str(path))


@pytest.mark.parametrize(
    ("annotations", "limit"),
    [
        ({}, None),
        ({"tgi-deploy/expires": "none"}, None),
        ({"tgi-deploy/expires": "2026-01-09T12:00:01+00:00"}, None),
        ({"tgi-deploy/expires": "2026-01-09T12:00:00+00:00 7200"}, "expires"),
        ({"tgi-deploy/expires": "none", "tgi-deploy/lease-until": "2026-01-09T11:00:00+00:00"}, "lease-until"),
        ({"tgi-deploy/ttl-s": "3600"}, "expires"),
        ({"tgi-deploy/ttl-s": "3601"}, None),
        ({"tgi-deploy/ttl-s": "3600", "tgi-deploy/expires": "none"}, None),
        ({"tgi-deploy/lease-s": "60", "tgi-deploy/lease-until": "2026-01-09T13:00:00+00:00"}, None),
    ],
)
def test_a_limit_is_reached_at_its_time_by_the_api_servers_clock(
    program: dict[str, Any], annotations: dict[str, str], limit: str | None
):
    assert program["reached"](annotations, NOW, "2026-01-09T11:00:00Z") == limit


def test_an_idle_timeout_is_refused_where_the_engine_counts_no_requests():
    cluster = FakeCluster()
    made(cluster)
    cluster.objects["deployments", NAME]["metadata"]["annotations"].pop("tgi-deploy/requests-on", None)
    with pytest.raises(InputError) as caught:
        cloud(cluster).handler("deployment").update({"id": f"deployment/{NAME}"}, {"tags": {TAG_IDLE_S: "600"}})
    assert caught.value.code == "idle_timeout_unsupported"
    assert kinds(cluster) == {"deployments"}


def page(count: int) -> dict[str, str]:
    return {"10.0.0.1": f'# TYPE requests counter\nrequests{{method="x"}} {count}\nother 7\n'}


@pytest.mark.parametrize(
    ("looks", "ends_at_s"),
    [
        ([page(0)] * 20, 120),
        ([page(1)] * 3 + [page(2)] * 17, 150),
        ([page(5)] * 3 + [page(0)] * 17, 120),
        ([{}] * 4 + [page(0)] * 16, 150),
        ([{}] * 20, 170),
        ([page(0), None, None, *[page(0)] * 17], 140),
        ([None] * 20, None),
    ],
    ids=[
        "no request",
        "a request",
        "a restart is not a request",
        "not ready yet",
        "never ready",
        "unreadable once",
        "unreadable",
    ],
)
def test_a_deployment_is_idle_only_while_requests_are_possible_and_counted(
    program: dict[str, Any], looks: list[dict[str, str] | None], ends_at_s: int | None
):
    """A look every 10 s; the limit is 120 s, and the engine may take 60 s to become ready."""
    idle = program["Idle"](["requests"])
    idle.ready = 0

    def read(found: dict[str, str] | None) -> dict[str, str]:
        if found is None:
            raise OSError("blocked")
        return found

    ended = (at * 10 for at, found in enumerate(looks) if idle.look(120, 60, lambda found=found: read(found), at * 10))
    assert next(ended, None) == ends_at_s


def test_a_changed_idle_timeout_counts_from_then(program: dict[str, Any]):
    idle = program["Idle"](["requests"])
    assert not idle.look(None, 60, dict, 0)
    assert not idle.look(120, 60, lambda: page(0), 1000)
    assert idle.look(120, 60, lambda: page(0), 1120)


@pytest.mark.parametrize(
    ("subsets", "deleted"),
    [
        (None, ["service", "account"]),
        ([{"notReadyAddresses": [{"ip": "10.0.0.1"}]}], ["service", "account"]),
        ([{"addresses": [{"ip": "10.0.0.1"}]}], ["account"]),
    ],
    ids=["no pod", "no pod that is ready", "a pod of another revision"],
)
def test_the_service_stays_while_another_revision_takes_its_requests(
    program: dict[str, Any], subsets: object, deleted: list[str]
):
    calls: list[str] = []

    def call(_account: str, method: str, path: str, _body: object = None) -> tuple[int, None, dict[str, object]]:
        if method == "DELETE":
            calls.append(path)
        return 200, None, {"subsets": subsets}

    program["end"].__globals__["call"] = call
    program["end"]("account-folder", "endpoints", ["service", "account"])
    assert calls == deleted
