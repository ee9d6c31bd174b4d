"""What an autoscaler is given, and what a cluster must have for one."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.kubernetes_api import FakeCluster

from tgi_deploy.errors import DeployError
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.autoscalers import autoscaler_state, chosen_source
from tgi_deploy.targets.kubernetes.autoscaling import Autoscaler, autoscaler_manifest, requests_each, started_with
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.values.request import Replicas

GAUGES = ("queued", "running")
ENGINE = {"metadata": {"name": "tgi-deploy-demo-r2", "labels": {"app.kubernetes.io/name": "tgi-deploy-demo"}}}
CUSTOM, EXTERNAL, KEDA = "custom.metrics.k8s.io", "external.metrics.k8s.io", "/apis/keda.sh/v1alpha1"
URL = "http://prometheus.monitoring.svc:9090"


def spec(source: Any, **changes: Any) -> dict[str, Any]:
    wanted = {"replicas": Replicas(least=1, most=4), "gauges": GAUGES, "each": 5, "ready_s": 240, "prometheus": URL}
    manifest = autoscaler_manifest(Autoscaler(source=source, **{**wanted, **changes}), ENGINE, "team-a")
    assert manifest["metadata"]["name"] == "tgi-deploy-demo-r2"
    found: dict[str, Any] = manifest["spec"]
    assert found["scaleTargetRef"]["name"] == "tgi-deploy-demo-r2"
    return found


def test_an_autoscaler_adds_one_replica_per_start_and_removes_them_slowly():
    found = spec("pods")
    assert (found["minReplicas"], found["maxReplicas"]) == (1, 4)
    assert found["behavior"]["scaleUp"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 240}]
    down = found["behavior"]["scaleDown"]
    assert (down["stabilizationWindowSeconds"], down["policies"][0]["value"]) == (300, 1)


@pytest.mark.parametrize(("ready_s", "period_s"), [(2, 15), (7200, 1800)])
def test_periods_are_those_that_kubernetes_allows(ready_s: int, period_s: int):
    assert spec("pods", ready_s=ready_s)["behavior"]["scaleUp"]["policies"][0]["periodSeconds"] == period_s


def test_it_reads_each_pod_or_the_series_of_the_service():
    assert [item["pods"]["metric"] for item in spec("pods")["metrics"]] == [{"name": name} for name in GAUGES]
    external = spec("external")["metrics"][0]["external"]
    assert external["metric"]["selector"] == {"matchLabels": {"service": "tgi-deploy-demo"}}
    assert external["target"] == {"type": "AverageValue", "averageValue": "5"}


def test_keda_is_given_the_sum_over_the_pods_of_the_revision():
    found = spec("prometheus")
    assert (found["minReplicaCount"], found["maxReplicaCount"]) == (1, 4)
    about = found["triggers"][0]["metadata"]
    pods = 'namespace="team-a",pod=~"tgi-deploy-demo-r2-[a-z0-9]+-[a-z0-9]{5}"'
    assert about == {
        "serverAddress": URL, "query": f"sum(queued{{{pods}}}) + sum(running{{{pods}}})", "threshold": "5",
    }  # fmt: skip


@pytest.mark.parametrize(("concurrency", "replicas", "each"), [(16, 2, 5), (1, 1, 1), (3, 4, 1), (100, 1, 70)])
def test_a_replica_is_to_have_less_than_its_share_of_the_promised_load(concurrency: int, replicas: int, each: int):
    assert requests_each(concurrency, replicas) == each


@pytest.mark.parametrize(("planned", "running", "start"), [(1, 0, 1), (2, 3, 3), (1, 9, 4), (1, 1, 1)])
def test_a_new_revision_starts_with_enough_for_the_present_load(planned: int, running: int, start: int):
    assert started_with(Replicas(least=1, most=4), planned, running) == start


def group(name: str, *names: str) -> dict[str, Any]:
    version = f"{name}/v1beta1"
    listed = [{"name": item} for item in names]
    return {f"/apis/{name}": {"preferredVersion": {"groupVersion": version}}, f"/apis/{version}": {"resources": listed}}


def source(groups: dict[str, Any], prometheus: str = "") -> tuple[str, bool]:
    api = Api(place=Place.of("kubernetes:team-a@dev"), sender=FakeCluster(groups=groups))
    return chosen_source(api, GAUGES, prometheus)


OF_PODS = group(CUSTOM, "pods/queued", "pods/running", "services/queued")


@pytest.mark.parametrize(
    ("groups", "prometheus", "found"),
    [
        (OF_PODS, "", ("pods", True)),
        (OF_PODS | group(EXTERNAL, *GAUGES), "", ("pods", True)),
        (group(CUSTOM, "pods/queued") | group(EXTERNAL, *GAUGES), "", ("external", True)),
        (group(CUSTOM), "", ("pods", False)),
        ({KEDA: {}} | OF_PODS, URL, ("prometheus", True)),
        ({KEDA: {}} | OF_PODS, "", ("pods", True)),
    ],
)
def test_the_first_source_that_serves_the_metrics_is_used(groups: Any, prometheus: str, found: tuple[str, bool]):
    assert source(groups, prometheus) == found


@pytest.mark.parametrize(
    ("groups", "prometheus", "words"),
    [
        ({}, "", "KEDA is not installed"),
        ({KEDA: {}}, "", "--prometheus is missing"),
        ({KEDA: {}} | group(EXTERNAL), "", "--prometheus is missing"),
        (OF_PODS, URL, "--prometheus is for KEDA"),
    ],
)
def test_without_a_source_the_reason_and_the_next_step_are_named(groups: Any, prometheus: str, words: str):
    with pytest.raises(DeployError, match=words) as raised:
        source(groups, prometheus)
    assert (raised.value.code, bool(raised.value.hint)) == ("autoscaling_unavailable", True)


def autoscaler(kind: str, bounds: tuple[str, str], *conditions: tuple[str, str]) -> dict[tuple[str, str], Any]:
    """Return one with conditions that are not met, as (type, reason)."""
    listed = [{"type": name, "status": "False", "reason": reason, "message": "why"} for name, reason in conditions]
    spec = dict(zip(bounds, (1, 4), strict=True))
    found = {"metadata": {"name": "d", "uid": "u"}, "spec": spec, "status": {"conditions": listed}}
    return {(f"{kind}s", "d"): found}


HPA, SCALED = ("minReplicas", "maxReplicas"), ("minReplicaCount", "maxReplicaCount")


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        (autoscaler("horizontalpodautoscaler", HPA, ("ScalingActive", "FailedGetPodsMetric")), "FailedGetPodsMetric"),
        (autoscaler("horizontalpodautoscaler", HPA, ("ScalingLimited", "DesiredWithinRange")), ""),
        (autoscaler("scaledobject", SCALED, ("Active", "ScalerNotActive")), ""),
        (autoscaler("scaledobject", SCALED, ("Ready", "ScaledObjectCheckFailed")), "ScaledObjectCheckFailed"),
    ],
)
def test_the_reason_of_one_that_does_not_work_is_the_clusters(objects: Any, problem: str):
    api = Api(place=Place.of("kubernetes:team-a@dev"), sender=FakeCluster(objects=objects))
    found = autoscaler_state(api, "deployment/d")
    assert found is not None
    assert (found.least, found.most, found.problem) == (1, 4, f"{problem}: why" if problem else "")


def test_a_deployment_without_one_has_no_state():
    api = Api(place=Place.of("kubernetes:team-a@dev"), sender=FakeCluster())
    assert autoscaler_state(api, "deployment/d") is None
