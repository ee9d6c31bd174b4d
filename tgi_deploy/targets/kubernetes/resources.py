"""The desired objects of a deployment, as resources. Pure. The Deployment's name reserves the name in a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.targets.kubernetes.manifests import deployment, disruption_budget, service
from tgi_deploy.values.resource import Resource, machine_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.kubernetes.manifests import Manifest, Workload
    from tgi_deploy.targets.kubernetes.place import Place

DEPLOYMENT: Final = "deployment"
SERVICE: Final = "service"
BUDGET: Final = "poddisruptionbudget"
ENFORCER: Final = "serviceaccount"
HPA: Final = "horizontalpodautoscaler"
SCALED_OBJECT: Final = "scaledobject"
INGRESS: Final = "ingress"
HTTP_ROUTE: Final = "httproute"
# By the paths of the API, in order of creation: limits are enforced from before the Deployment exists until it is gone.
PATHS: Final = {
    ENFORCER: ("/api/v1", "serviceaccounts"),
    DEPLOYMENT: ("/apis/apps/v1", "deployments"),
    SERVICE: ("/api/v1", "services"),
    BUDGET: ("/apis/policy/v1", "poddisruptionbudgets"),
    INGRESS: ("/apis/networking.k8s.io/v1", "ingresses"),
    HTTP_ROUTE: ("/apis/gateway.networking.k8s.io/v1", "httproutes"),
    HPA: ("/apis/autoscaling/v2", "horizontalpodautoscalers"),
    SCALED_OBJECT: ("/apis/keda.sh/v1alpha1", "scaledobjects"),
}
KINDS: Final = tuple(PATHS)
# Properties of a Deployment with its number of replicas: whenever it is applied, or only when it is created.
REPLICAS: Final = "replicas"
START: Final = "start"
AUTOSCALERS: Final = (HPA, SCALED_OBJECT)
# Lead callers outside the cluster to the Service.
EXPOSING: Final = (INGRESS, HTTP_ROUTE)
# These belong to the Service or the Deployment: the cluster deletes them with it.
OWNED_KINDS: Final = (*EXPOSING, *AUTOSCALERS)
OWN_KINDS: Final = tuple(kind for kind in KINDS if kind not in OWNED_KINDS)


def object_path(kind: str, namespace: str, name: str) -> str:
    group, plural = PATHS[kind]
    return f"{group}/namespaces/{namespace}/{plural}/{name}"


def name_of(object_id: str) -> str:
    """Return the name in an id, which is what `kubectl` calls an object: `deployment/tgi-deploy-demo`."""
    return object_id.rpartition("/")[2]


def resources(
    wanted: Workload, place: Place, revision: int, notes: Mapping[str, str], *, grows: bool = False
) -> tuple[Resource, ...]:
    """Return the Deployment, which claims the name, its Service and its budget.

    `grows`: its number of replicas is set when it is created, and not again.
    """
    manifest = deployment(wanted)
    replicas = manifest["spec"].pop("replicas")
    number = START if grows else REPLICAS
    workload = Resource(
        key=machine_key(DEPLOYMENT, revision),
        kind=DEPLOYMENT,
        place=str(place),
        properties={**_properties(manifest), number: replicas},
        mutable=(number,),
        notes=notes,
        is_machine=True,
    )
    shared = ((SERVICE, service(wanted)), (BUDGET, disruption_budget(wanted)))
    return (workload, *(_shared(kind, item, place) for kind, item in shared))


def _shared(kind: str, manifest: Manifest, place: Place) -> Resource:
    """Return an object of all revisions, which is changed in place."""
    return Resource(key=kind, kind=kind, place=str(place), properties=_properties(manifest), mutable=("manifest",))


def _properties(manifest: Manifest) -> dict[str, Any]:
    return {"name": manifest["metadata"]["name"], "manifest": manifest}
