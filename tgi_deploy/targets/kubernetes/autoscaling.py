"""What changes the number of replicas with the load: a HorizontalPodAutoscaler, or KEDA's ScaledObject. Pure.

It belongs to one revision and is named like its Deployment. Memory and CPU are of no use here: engines take all memory
of the GPU at the start, and loading weights uses the CPU (docs of GKE, "Best practices for autoscaling LLM inference").

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v2/
https://keda.sh/docs/latest/reference/scaledobject-spec/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from tgi_deploy.targets.kubernetes.manifests import REVISION, SHARED_NAME
from tgi_deploy.targets.kubernetes.resources import HPA, SCALED_OBJECT
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.resource import Resource, revision_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.kubernetes.place import Place
    from tgi_deploy.values.request import Replicas

# Where the gauges come from: the custom metrics API has those of each pod, the external one those of a Service.
Source = Literal["pods", "external", "prometheus"]

# Of the planned load of a replica, as for SageMaker: the rest is for requests that come while a replica starts.
_SHARE: Final = 0.7
# Kubernetes allows no longer period.
_LONGEST_PERIOD_S: Final = 1800
# A replica takes minutes to start, so that a short pause in the load must not end it.
_CALM_S: Final = 300
_POLL_S: Final = 15


class Autoscaler(Frozen, frozen=True, kw_only=True):
    """`gauges` count the requests that wait and that run; `each` is how many one replica is to have.

    `ready_s` is how long a replica takes to start. `prometheus` is the address of the source of that name.
    """

    source: Source
    replicas: Replicas
    gauges: tuple[str, ...]
    each: int
    ready_s: int
    prometheus: str = ""

    @property
    def kind(self) -> str:
        return SCALED_OBJECT if self.source == "prometheus" else HPA


def requests_each(concurrency: int, replicas: int) -> int:
    """Return how many requests one of the planned replicas is to have before another is started."""
    return max(1, int(concurrency / replicas * _SHARE))


def started_with(replicas: Replicas, planned: int, running: int) -> int:
    """Return how many replicas a new revision starts with: enough for the load that those which run now have."""
    return min(max(planned, running, replicas.least), replicas.most or planned)


def autoscaler_resource(wanted: Autoscaler, engine: Mapping[str, Any], place: Place) -> Resource:
    """Return the resource for a Deployment, as applied or as read from the cluster."""
    name = engine["metadata"]["name"]
    revision = engine["spec"]["selector"]["matchLabels"][REVISION]
    return Resource(
        key=revision_key(wanted.kind, int(revision)),
        kind=wanted.kind,
        place=str(place),
        properties={"name": name, "manifest": autoscaler_manifest(wanted, engine, place.namespace)},
        mutable=("manifest",),
    )


def autoscaler_manifest(wanted: Autoscaler, engine: Mapping[str, Any], namespace: str) -> Manifest:
    about = engine["metadata"]
    metadata = {"name": about["name"], "labels": dict(about["labels"])}
    if wanted.source == "prometheus":
        spec = _scaled_object(wanted, about["name"], namespace)
        return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": spec}
    spec = _hpa(wanted, about["name"], about["labels"][SHARED_NAME])
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def _target(name: str) -> Manifest:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}


def _hpa(wanted: Autoscaler, name: str, service: str) -> Manifest:
    """Return the specification. Of several metrics, the one that needs the most replicas counts."""
    return {
        "scaleTargetRef": _target(name),
        "minReplicas": wanted.replicas.least,
        "maxReplicas": wanted.replicas.most,
        "metrics": [_metric(wanted, gauge, service) for gauge in wanted.gauges],
        "behavior": _behavior(wanted),
    }


def _metric(wanted: Autoscaler, gauge: str, service: str) -> Manifest:
    target = {"type": "AverageValue", "averageValue": str(wanted.each)}
    if wanted.source == "pods":
        return {"type": "Pods", "pods": {"metric": {"name": gauge}, "target": target}}
    # The Prometheus Operator puts the name of the Service, which has one revision's pods, on each of its series.
    metric = {"name": gauge, "selector": {"matchLabels": {"service": service}}}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def _behavior(wanted: Autoscaler) -> Manifest:
    """Return how fast the number changes: by one, and up only once the one before can take requests."""
    period_s = min(max(wanted.ready_s, _POLL_S), _LONGEST_PERIOD_S)
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": period_s}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": _CALM_S,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": _CALM_S}],
        },
    }


def _scaled_object(wanted: Autoscaler, name: str, namespace: str) -> Manifest:
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": wanted.prometheus,
            "query": _query(wanted.gauges, name, namespace),
            "threshold": str(wanted.each),
        },
    }
    return {
        "scaleTargetRef": _target(name),
        "minReplicaCount": wanted.replicas.least,
        "maxReplicaCount": wanted.replicas.most,
        "pollingInterval": _POLL_S,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(wanted)}},
        "triggers": [trigger],
    }


def _query(gauges: tuple[str, ...], name: str, namespace: str) -> str:
    """Return the sum over the Deployment's pods, whose names are its own with a hash and five characters."""
    pods = f'namespace="{namespace}",pod=~"{name}-[a-z0-9]+-[a-z0-9]{{5}}"'
    return " + ".join(f"sum({gauge}{{{pods}}})" for gauge in gauges)
