"""Whether a namespace's quotas leave room for pods, on an API server in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fakes.kubernetes_api import FakeCluster, failure

from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.quotas import needs, refused_root, short_of_quota
from tgi_deploy.targets.reply import Reply

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem

SPEC = {"containers": [{"resources": {"requests": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "2"}}}]}


def own_pod(name: str, deployment: str) -> dict[tuple[str, str], Any]:
    metadata = {"name": name, "labels": {"tgi-deploy/deployment": deployment}}
    return {("pods", name): {"metadata": metadata, "spec": SPEC}}


def quota(used: dict[str, str], hard: dict[str, str], **spec: Any) -> dict[tuple[str, str], Any]:
    return {("resourcequotas", "q"): {"metadata": {"name": "q"}, "spec": spec, "status": {"used": used, "hard": hard}}}


def found(cluster: FakeCluster, pods: int = 2, *, replaces: str = "demo") -> list[Problem]:
    api = Api(place=Place.of("kubernetes:team-a@dev"), sender=cluster)
    return list(short_of_quota(api, needs(Reply.of(SPEC)), pods, replaces=replaces))


@pytest.mark.parametrize(
    ("used", "hard", "expected"),
    [
        ("requests.nvidia.com/gpu", ("1", "4"), "requests.nvidia.com/gpu, 1 of 4 (q), and 4 needed"),
        ("pods", ("9", "10"), "pods, 9 of 10 (q), and 2 needed"),
        ("cpu", ("500m", "4"), "cpu, 500m of 4 (q), and 4 needed"),
        ("requests.memory", ("1", "16Gi"), "requests.memory, 1 of 16Gi (q), and 17179869184 needed"),
    ],
)
def test_a_quota_with_too_little_for_all_pods_is_an_error(used: str, hard: tuple[str, str], expected: str):
    (problem,) = found(FakeCluster(objects=quota({used: hard[0]}, {used: hard[1]})))
    assert (problem.code, problem.severity, problem.message.partition(": ")[2]) == ("cluster_quota", "error", expected)


@pytest.mark.parametrize(
    "there",
    [
        {},
        quota({"pods": "0", "requests.nvidia.com/gpu": "0"}, {"pods": "2", "requests.nvidia.com/gpu": "4"}),
        quota({"requests.memory": "1Gi"}, {"requests.memory": "17Gi"}),
        quota({"services": "5"}, {"services": "5"}),
        quota({"pods": "5"}, {"pods": "5"}, scopes=["Terminating"]),
        quota({"pods": "2"}, {"pods": "3"}) | own_pod("one", "demo"),
    ],
    ids=["none", "exactly enough", "units", "not of pods", "of other pods", "of the pods that it replaces"],
)
def test_a_quota_with_room_is_no_finding(there: dict[tuple[str, str], Any]):
    assert found(FakeCluster(objects=there)) == []


@pytest.mark.parametrize(
    ("number", "most", "codes"),
    [(1, 2, []), (1, 3, ["no_room_to_grow"]), (3, 5, ["cluster_quota"]), (0, 3, ["no_room_to_grow"]), (-1, 0, [])],
)
def test_a_quota_too_small_for_the_largest_number_of_a_range_is_a_warning(number: int, most: int, codes: list[str]):
    api = Api(
        place=Place.of("kubernetes:team-a@dev"),
        sender=FakeCluster(objects=quota({"pods": "3"}, {"pods": "5"})),
    )
    problems = list(short_of_quota(api, needs(Reply.of(SPEC)), number, most=most, running=3))
    assert [item.code for item in problems] == codes
    if codes == ["no_room_to_grow"]:
        assert problems[0].message.startswith(
            "not all of at most 6 replicas can start now: the ResourceQuota of team-a"
        )


def test_pods_of_other_deployments_stay_counted():
    there = quota({"pods": "2"}, {"pods": "3"}) | own_pod("one", "another")
    assert [item.code for item in found(FakeCluster(objects=there))] == ["cluster_quota"]


@pytest.mark.parametrize("scope", ["NotBestEffort", "NotTerminating"])
def test_a_scope_that_the_pods_are_in_counts(scope: str):
    term = {"scopeName": scope, "operator": "Exists"}
    there = quota({"pods": "3"}, {"pods": "3"}, scopeSelector={"matchExpressions": [term]})
    assert [item.code for item in found(FakeCluster(objects=there))] == ["cluster_quota"]


def test_a_quota_for_priority_classes_is_named_and_not_compared():
    term = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    there = quota({"pods": "3"}, {"pods": "3"}, scopeSelector={"matchExpressions": [term]})
    (problem,) = found(FakeCluster(objects=there))
    assert (problem.severity, problem.message) == ("warning", "quotas for priority classes are not compared: q")


def test_quotas_that_may_not_be_listed_are_a_warning():
    denied = failure(403, 'resourcequotas is forbidden: User "ann" cannot list')
    (problem,) = found(FakeCluster(refusals={"GET resourcequotas": denied}))
    assert (problem.code, problem.severity) == ("not_checked", "warning")


@pytest.mark.parametrize(
    ("user", "enforced", "refusals", "codes"),
    [
        (0, "restricted", {}, ["admission_refused"]),
        (1000, "restricted", {}, []),
        (0, "baseline", {}, []),
        (0, None, {}, []),
        (0, "restricted", {"GET namespaces": failure(403, "namespaces is forbidden")}, []),
    ],
)
def test_a_pod_of_root_is_refused_where_the_namespace_admits_none(
    user: int, enforced: str | None, refusals: dict[str, Any], codes: list[str]
):
    labels = {"pod-security.kubernetes.io/enforce": enforced} if enforced else {}
    there = {("namespaces", "team-a"): {"metadata": {"name": "team-a", "labels": labels}}}
    api = Api(place=Place.of("kubernetes:team-a@dev"), sender=FakeCluster(objects=there, refusals=refusals))
    problems = list(refused_root(api, {"securityContext": {"runAsUser": user}}))
    assert [problem.code for problem in problems] == codes
    assert all("--engine-version" in str(problem.hint) for problem in problems)


def test_a_quota_for_limits_that_pods_do_not_set_is_a_warning():
    """The API server refuses such pods, unless a LimitRange gives them a limit."""
    there = quota({"limits.memory": "0", "limits.cpu": "0"}, {"limits.memory": "64Gi", "limits.cpu": "16"})
    (problem,) = found(FakeCluster(objects=there))
    assert (problem.code, problem.severity) == ("not_checked", "warning")
    assert "limits.cpu, limits.memory" in problem.message
