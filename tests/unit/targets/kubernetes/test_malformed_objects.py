"""Objects that no API server sends, in every list and document that the product reads: an error, never a traceback."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from fakes.kubernetes_api import FakeCluster, node

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.ends import NO_LIMIT, TAG_LEASE
from tgi_deploy.targets.kubernetes.api import Api
from tgi_deploy.targets.kubernetes.autoscalers import autoscaler_state, available
from tgi_deploy.targets.kubernetes.cloud import KubernetesCloud
from tgi_deploy.targets.kubernetes.doctor import examined
from tgi_deploy.targets.kubernetes.enforcing import Enforcers, Workloads
from tgi_deploy.targets.kubernetes.front import Services
from tgi_deploy.targets.kubernetes.gateway import all_listeners
from tgi_deploy.targets.kubernetes.ingress import ingress_findings
from tgi_deploy.targets.kubernetes.limits import enforcer
from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
from tgi_deploy.targets.kubernetes.nodes import is_any_deployment, nodes_without_plugin, read_nodes
from tgi_deploy.targets.kubernetes.options import KubernetesOptions
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.pools import growth
from tgi_deploy.targets.kubernetes.quotas import short_of_quota
from tgi_deploy.targets.kubernetes.transport import Answer
from tgi_deploy.values.resource import TAG_NAME
from tgi_deploy.wiring import open_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ID, NAME = "deployment/tgi-deploy-demo", "tgi-deploy-demo"
LABELS = {"tgi-deploy/deployment": "demo", "tgi-deploy/id": "id1", "tgi-deploy/revision": "1"}
NAMED = {**LABELS, "app.kubernetes.io/name": NAME}
METADATA = {
    "name": NAME, "uid": "u1", "labels": NAMED, "creationTimestamp": "2026-01-09T00:00:00Z",
    "annotations": {"tgi-deploy/requests-on": "/metrics tgi_request_count", "tgi-deploy/deployment": "demo"},
}  # fmt: skip
CONTAINER = {
    "name": "engine", "image": "engine:1",
    "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "1", "nvidia.com/gpu": "1"}},
}  # fmt: skip
POD = {"nodeName": "node-1", "containers": [CONTAINER], "initContainers": [CONTAINER]}
ENDED = {
    "name": "engine", "restartCount": 1, "lastState": {"terminated": {"exitCode": 1}}, "state": {"waiting": {}},
}  # fmt: skip
CONDITION = {"type": "Ready", "status": "False", "reason": "Waiting", "message": "not yet"}
OBJECTS: Mapping[str, dict[str, Any]] = {
    "nodes": node(labels={"topology.kubernetes.io/region": "us-east-1"}, taints=[{"key": "a", "effect": "NoExecute"}]),
    "nodepools": {
        "metadata": {"name": "gpu"},
        "spec": {
            "weight": 1,
            "limits": {"nvidia.com/gpu": "4"},
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws"},
                    "requirements": [{"key": "a", "operator": "In", "values": ["b"], "minValues": 1}],
                    "taints": [{"key": "a", "effect": "NoExecute"}],
                }
            },
        },
        "status": {"resources": {"nvidia.com/gpu": "1"}, "conditions": [CONDITION]},
    },
    "resourcequotas": {
        "metadata": {"name": "q"},
        "spec": {"scopes": ["NotTerminating"], "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}},
        "status": {"hard": {"pods": "4", "cpu": "8"}, "used": {"pods": "1", "cpu": "1"}},
    },
    "ingressclasses": {
        "metadata": {"name": "nginx", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        "spec": {"controller": "k8s.io/ingress-nginx"},
    },
    "gateways": {
        "metadata": {"name": "web", "namespace": "infra"},
        "spec": {
            "listeners": [
                {
                    "name": "https", "protocol": "HTTPS", "hostname": "*.example.com", "tls": {"mode": "Terminate"},
                    "allowedRoutes": {"kinds": [{"kind": "HTTPRoute"}], "namespaces": {"from": "All"}},
                }
            ]
        },
    },
    "storageclasses": {
        "metadata": {"name": "gp3", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    },
    "persistentvolumeclaims": {
        "metadata": {"name": "w"}, "spec": {"storageClassName": "gp3"}, "status": {"phase": "Pending"},
    },
    "pods": {
        "metadata": METADATA | {"name": "p", "labels": {**LABELS, "tgi-deploy/limits-of": NAME}},
        "spec": POD,
        "status": {
            "phase": "Running",
            "conditions": [{**CONDITION, "type": "PodScheduled"}],
            "containerStatuses": [ENDED],
        },
    },
    "events": {
        "metadata": {"name": "e"}, "involvedObject": {"name": "p"},
        "type": "Warning", "reason": "Failed", "message": "m", "lastTimestamp": "2026-01-09T00:00:00Z",
    },
    "deployments": {
        "metadata": METADATA | {"generation": 2},
        "spec": {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": {"spec": POD}},
        "status": {
            "observedGeneration": 2, "updatedReplicas": 1, "conditions": [{**CONDITION, "type": "ReplicaFailure"}],
        },
    },
    "services": {
        "metadata": METADATA,
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "selector": LABELS, "ports": [{"port": 80}]},
    },
    "serviceaccounts": {"metadata": METADATA},
    "jobs": {"metadata": METADATA | {"ownerReferences": [{"uid": "u1"}]}},
    "httproutes": {"metadata": METADATA, "status": {"parents": [{"conditions": [CONDITION | {"type": "Accepted"}]}]}},
    "horizontalpodautoscalers": {
        "metadata": METADATA, "spec": {"minReplicas": 1, "maxReplicas": 2}, "status": {"conditions": [CONDITION]},
    },
}  # fmt: skip
MISFITS = (7, [7], {"a": 7}, "9e999999999999999999")


@dataclass
class Server(FakeCluster):
    """Sends `damaged` in place of the object of a kind, in a list and by its name."""

    damaged: tuple[str, Any] = ("", None)

    def send(self, method: str, path: str, **how: Any) -> Answer:
        plural, name = next(((word, path.partition(f"/{word}")[2]) for word in OBJECTS if f"/{word}" in path), ("", ""))
        if method in {"PATCH", "DELETE"}:
            return Answer(status=200, body=b"{}")
        if method != "GET" or plural not in OBJECTS or name.endswith("/log"):
            return super().send(method, path, **how)
        found = self.damaged[1] if self.damaged[0] == plural else OBJECTS[plural]
        body = found if name else {"items": [found], "metadata": {}}
        return Answer(status=200, body=json.dumps(body).encode())


@cache
def cards() -> NodeLabels:
    return NodeLabels.packaged()


def nodes(api: Api) -> None:
    read_nodes(api, cards(), open_catalog(), ours=is_any_deployment)


def quotas(api: Api) -> None:
    list(short_of_quota(api, {"pods": Decimal(1), "cpu": Decimal(1)}, 2, replaces="demo"))


def limits(api: Api) -> None:
    Workloads(api).update({"id": ID}, {"tags": {TAG_LEASE: NO_LIMIT}})


def account(api: Api) -> None:
    engine = OBJECTS["deployments"]
    Enforcers(api).update({"id": f"serviceaccount/{NAME}"}, enforcer(engine, api.place).properties)


def doctor(api: Api) -> None:
    list(examined(api, KubernetesOptions(weights_claim="w"), open_catalog()))


def cloud(api: Api) -> KubernetesCloud:
    return KubernetesCloud(api=api)


# By the kind of object, what reads it.
READERS: Mapping[str, tuple[Callable[[Api], object], ...]] = {
    "nodes": (
        nodes,
        lambda api: nodes_without_plugin(api, cards(), open_catalog()),
        lambda api: growth(api, cards(), open_catalog()),
    ),
    "nodepools": (lambda api: growth(api, cards(), open_catalog()),),
    "resourcequotas": (quotas,),
    "ingressclasses": (lambda api: list(ingress_findings(api, None)),),
    "gateways": (all_listeners,),
    "storageclasses": (doctor,),
    "persistentvolumeclaims": (doctor,),
    "pods": (nodes, quotas, lambda api: cloud(api).machine(ID), lambda api: cloud(api).consoles(ID),
             lambda api: Enforcers(api).find({TAG_NAME: "demo"})),
    "events": (lambda api: cloud(api).console(ID),),
    "deployments": (lambda api: cloud(api).machine(ID), lambda api: cloud(api).console(ID), limits,
                    lambda api: cloud(api).replicas(ID), lambda api: cloud(api).find({TAG_NAME: "demo"})),
    "services": (lambda api: cloud(api).machine(ID), lambda api: Services(api).select(NAME, 2),
                 lambda api: cloud(api).find({TAG_NAME: "demo"})),
    "serviceaccounts": (account, lambda api: cloud(api).find({TAG_NAME: "demo"})),
    "jobs": (account,),
    "httproutes": (lambda api: cloud(api).find({TAG_NAME: "demo"}),),
    "horizontalpodautoscalers": (lambda api: autoscaler_state(api, ID),),
}  # fmt: skip


def damages(item: Any) -> Iterator[Any]:
    """Yield an object once for each of its members and each misfit in its place."""
    yield from MISFITS
    for path in _paths(item):
        for misfit in MISFITS:
            made = deepcopy(item)
            part = made
            for word in path[:-1]:
                part = part[word]
            part[path[-1]] = misfit
            yield made


def _paths(item: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for name, value in members:
        yield (*above, name)
        yield from _paths(value, (*above, name))


def api_with(plural: str, damaged: Any) -> Api:
    return Api(place=Place.of("kubernetes:team-a@dev"), sender=Server(damaged=(plural, damaged)))


@pytest.mark.parametrize("plural", READERS)
def test_a_malformed_object_is_an_error_and_not_a_traceback(plural: str):
    for damaged in damages(OBJECTS[plural]):
        for read in READERS[plural]:
            with suppress(DeployError):
                read(api_with(plural, damaged))


@pytest.mark.parametrize("plural", READERS)
def test_an_object_that_is_a_number_is_noticed(plural: str):
    noticed = []
    for read in READERS[plural]:
        if read in {doctor, *READERS["nodepools"]}:  # they turn errors into findings
            continue
        with pytest.raises(DeployError) as caught:
            read(api_with(plural, 7))
        noticed.append(caught.value.code)
    assert set(noticed) <= {"cluster_unreachable"}


def test_the_doctor_and_the_planner_name_what_can_not_be_read():
    codes = {
        plural: {
            item.code for item in examined(api_with(plural, 7), KubernetesOptions(weights_claim="w"), open_catalog())
        }
        for plural in ("nodes", "resourcequotas", "ingressclasses", "storageclasses", "persistentvolumeclaims")
    }
    assert all("cluster_unreachable" in found for found in codes.values()), codes
    (notice,) = growth(api_with("nodepools", 7), cards(), open_catalog()).notices
    assert notice.code == "not_checked"


@pytest.mark.parametrize("listed", [7, {"name": 7}, {}])
def test_metrics_apis_whose_list_can_not_be_read_count_as_absent(listed: Any):
    version = {"preferredVersion": {"groupVersion": "custom.metrics.k8s.io/v1beta2"}}
    groups = {"/apis/custom.metrics.k8s.io": version, "/apis/custom.metrics.k8s.io/v1beta2": {"resources": [listed]}}
    api = Api(place=Place.of("kubernetes:team-a@dev"), sender=FakeCluster(groups=groups))
    assert available(api, ("tgi_queue_size",)).source is None
