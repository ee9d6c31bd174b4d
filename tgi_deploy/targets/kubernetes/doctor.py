"""What `doctor` examines in a cluster: access, GPUs, the namespace's quotas, the claim for weights, optional APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tgi_deploy.errors import DeployError, error, ok, warning
from tgi_deploy.reconcile.errors import ResourceNotFoundError
from tgi_deploy.targets.kubernetes.autoscalers import available
from tgi_deploy.targets.kubernetes.errors import ClusterRefusedError
from tgi_deploy.targets.kubernetes.gateway import all_listeners
from tgi_deploy.targets.kubernetes.ingress import chosen_class, ingress_classes
from tgi_deploy.targets.kubernetes.limits import RBAC
from tgi_deploy.targets.kubernetes.node_labels import NodeLabels
from tgi_deploy.targets.kubernetes.nodes import is_any_deployment, nodes_without_plugin, read_nodes, supplied
from tgi_deploy.targets.kubernetes.pools import growth
from tgi_deploy.targets.kubernetes.quotas import HINT, limits
from tgi_deploy.text import printable, rate
from tgi_deploy.values.base import replaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.options import KubernetesOptions
    from tgi_deploy.targets.reply import Reply

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
# What a deployment uses of a ResourceQuota.
_LIMITED: Final = frozenset({
    "pods", "count/pods", "count/deployments.apps", "count/replicasets.apps", "services", "count/services", "cpu",
    "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage",
    "requests.nvidia.com/gpu",
})  # fmt: skip
_GROUPS: Final = "/apis"
# By the group of its API, what a cluster may have in addition: metrics for autoscaling, and nodes on demand.
_ADDITIONS: Final = {
    "metrics.k8s.io": "the metrics server",
    "custom.metrics.k8s.io": "an adapter of custom metrics",
    "external.metrics.k8s.io": "an adapter of external metrics",
    "keda.sh": "KEDA",
    "karpenter.sh": "Karpenter",
    "gateway.networking.k8s.io": "the Gateway API",
    "cert-manager.io": "cert-manager",
}
_CHANGED: Final = ("get", "list", "create", "patch", "delete")


class Access(NamedTuple):
    """A permission that the target needs; `everywhere`: in all namespaces."""

    verb: str
    group: str
    resource: str
    everywhere: bool = False

    @property
    def words(self) -> str:
        return f"{self.verb} {self.resource}{' of the cluster' if self.everywhere else ''}"


# As in docs/kubernetes.md.
NEEDED: Final = (
    *(Access(verb, "apps", "deployments") for verb in _CHANGED),
    *(Access(verb, "", "services") for verb in _CHANGED),
    *(Access(verb, "policy", "poddisruptionbudgets") for verb in _CHANGED),
    Access("get", "", "pods"),
    Access("list", "", "pods"),
    Access("get", "", "pods/log"),
    Access("list", "", "events"),
    Access("list", "", "nodes", everywhere=True),
    Access("list", "", "pods", everywhere=True),
)
# Only for limits.
FOR_LIMITS: Final = (
    Access("get", "", "endpoints"),
    *(Access(verb, "", "serviceaccounts") for verb in _CHANGED),
    *(Access(verb, "batch", "jobs") for verb in ("list", "create", "patch", "delete")),
    *(Access(verb, RBAC, resource) for resource in ("roles", "rolebindings") for verb in ("create", "patch")),
)

# Only for a range of replicas: by a metrics API, or else by KEDA.
_BY_METRICS: Final = ("autoscaling", "horizontalpodautoscalers")
_BY_KEDA: Final = ("keda.sh", "scaledobjects")


def examined(api: Api, options: KubernetesOptions, catalog: Catalog) -> Iterator[Problem]:
    """Yield the findings. A check that fails is a finding, too."""
    try:
        yield _access(api, options)
    except DeployError as problem:  # then no other request has a chance
        yield replaced(problem.problem, severity="error")
        return
    checks = (
        *(_limits(api), _namespace(api), _gpus(api, catalog), _plugins(api, catalog), _quotas(api)),
        *(_claim(api, options.weights_claim), _additions(api), _autoscaling(api, catalog)),
        *(_ingress(api), _gateways(api)),
    )
    for check in checks:
        try:
            yield from check
        except DeployError as problem:
            yield replaced(problem.problem, severity="error")


def _access(api: Api, options: KubernetesOptions) -> Problem:
    secret = options.hub_token_secret or options.api_key_secret
    named = ((secret, "secrets"), (options.weights_claim, "persistentvolumeclaims"))
    needed = (*NEEDED, *(Access("get", "", resource) for name, resource in named if name))
    missing = [item.words for item in needed if not _allowed(api, item)]
    # Either suffices: WebSockets need the first, and since Kubernetes 1.35 the second.
    if not any(_allowed(api, Access(verb, "", "pods/portforward")) for verb in ("get", "create")):
        missing.append("get or create pods/portforward")
    if missing:
        return error(
            "cluster_forbidden",
            f"in {api.place.namespace}, these credentials may not {', '.join(missing)}",
            hint="ask the administrator for a Role and, for nodes and all pods, a ClusterRole with these verbs",
            missing=missing,
        )
    return ok("cluster_access", f"the credentials allow everything needed in {api.place.namespace}")


def _allowed(api: Api, item: Access) -> bool:
    resource, _, subresource = item.resource.partition("/")
    attributes = {
        "verb": item.verb,
        "group": item.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": "" if item.everywhere else api.place.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    doing = "asking what the credentials allow"
    return api.review(_REVIEWS, doing, body, lambda reply: reply.part("status").flag("allowed"))


def _limits(api: Api) -> Iterator[Problem]:
    missing = [item.words for item in FOR_LIMITS if not _allowed(api, item)]
    if missing:
        yield warning(
            "limits_forbidden",
            f"--ttl, --idle-timeout, --lease and 'smoke' will be refused in {api.place.namespace}: these credentials "
            f"may not {', '.join(missing)}",
            hint="ask the administrator for a Role with these verbs, or remove deployments with 'tgi-deploy down NAME'",
            missing=missing,
        )


def _namespace(api: Api) -> Iterator[Problem]:
    name = api.place.namespace
    try:
        found = api.get(f"/api/v1/namespaces/{name}", "looking for the namespace", lambda _found: True)
    except DeployError:  # few may read it, and nothing else needs that
        return
    if found is None:
        hint = f"'kubectl create namespace {name}' creates it, if you may"
        yield error("namespace_missing", f"there is no namespace {name}", hint=hint)


def _gpus(api: Api, catalog: Catalog) -> Iterator[Problem]:
    nodes = read_nodes(api, NodeLabels.packaged(), catalog, ours=is_any_deployment)
    found = supplied(nodes, str(api.place), catalog, growth(api, NodeLabels.packaged(), catalog))
    gpus = sum(node.gpus for node in nodes)
    added = {name: item for name, item in found.added.items() if item.needed}
    free = [name for name in found.hardware.split(",") if name not in added]
    most = f"the most that one has free: {','.join(free) or 'none'}"
    yield ok("cluster_gpus", f"the nodes offer {gpus} GPUs; {most}", gpus=gpus)
    if added:
        new = (f"{name} ({item.instance_type}, {rate(item.usd_per_hour)})" for name, item in added.items())
        yield ok("cluster_pools", f"Karpenter's NodePools may add nodes with {', '.join(new)}")
    yield from found.notices


def _plugins(api: Api, catalog: Catalog) -> Iterator[Problem]:
    lacking = nodes_without_plugin(api, NodeLabels.packaged(), catalog)
    if lacking:
        yield warning(
            "device_plugin_missing",
            f"by their labels these nodes have GPUs, which they don't offer to pods: {', '.join(lacking)}",
            hint="install NVIDIA's device plugin, or see why it does not run: 'kubectl get pods --all-namespaces'",
        )


def _quotas(api: Api) -> Iterator[Problem]:
    found = limits(api)
    full = [str(limit) for limit in found if limit.resource in _LIMITED and limit.left <= 0 and not limit.priority]
    if full:
        yield error(
            "cluster_quota",
            f"the ResourceQuota of {api.place.namespace} is used up: {'; '.join(full)}",
            hint=HINT,
        )
    else:
        yield ok("cluster_quota", f"{api.place.namespace} has {'room in its quotas' if found else 'no ResourceQuota'}")


def _additions(api: Api) -> Iterator[Problem]:
    """Yield which optional APIs the cluster has. They are not needed, so one that can't be listed is not an error."""
    try:
        served = api.get(_GROUPS, "asking which APIs the cluster has", _served) or frozenset()
    except DeployError:
        return
    here = [words for group, words in _ADDITIONS.items() if group in served]
    lacking = [words for group, words in _ADDITIONS.items() if group not in served]
    rest = f"; it does not have {', '.join(lacking)}" if lacking else ""
    yield ok("cluster_apis", f"besides Kubernetes' own APIs the cluster has {', '.join(here) or 'none known'}{rest}")


def _served(reply: Reply) -> frozenset[str]:
    return frozenset(item.optional_text("name") for item in reply.optional_parts("groups"))


def _claim(api: Api, name: str | None) -> Iterator[Problem]:
    if not name:
        return
    path = api.path("/api/v1", "persistentvolumeclaims", name)
    claim = api.get(path, "looking for the claim", _phase_and_class)
    if claim is None:
        yield error(
            "claim_missing",
            f"there is no PersistentVolumeClaim {name} in {api.place.namespace}",
            hint="create it, or leave --weights-claim out to keep the weights on the node's disk",
        )
    elif claim[0] == "Bound":
        yield ok("weights_claim", f"the claim {name} has a volume")
    else:
        yield _storage_class(api, name, claim[1])


def _phase_and_class(claim: Reply) -> tuple[str, str]:
    spec, status = claim.optional_part("spec"), claim.optional_part("status")
    return status.optional_text("phase"), spec.optional_text("storageClassName")


def _autoscaling(api: Api, catalog: Catalog) -> Iterator[Problem]:
    """Yield whether the number of replicas can follow the load."""
    gauges = catalog.engine.metrics(catalog.release(catalog.default_release)).load
    found = available(api, gauges)
    how = [f"the metrics API for {source}" for source in found.serving] + ["KEDA, with --prometheus"] * found.keda
    needed = (Access(verb, *(_BY_METRICS if found.source else _BY_KEDA)) for verb in _CHANGED)
    missing = [item.words for item in needed if not _allowed(api, item)] if how or found.source else []
    if missing:
        yield warning(
            "autoscaling_unavailable",
            f"--replicas MIN..MAX will be refused: these credentials may not {', '.join(missing)}",
            hint="ask the administrator for a Role with these verbs",
        )
    elif how:
        yield ok("cluster_autoscaling", f"the number of replicas can follow the load, by {' or '.join(how)}")
    else:
        yield _without_autoscaling(gauges, silent=found.source is not None)


def _without_autoscaling(gauges: Sequence[str], *, silent: bool) -> Problem:
    names = " and ".join(gauges)
    if silent:
        return warning(
            "metrics_missing",
            f"--replicas MIN..MAX needs {names}, which the cluster's metrics API does not have yet",
            hint="have Prometheus scrape the engines' pods, and the adapter serve these metrics",
        )
    return warning(
        "autoscaling_unavailable",
        f"--replicas MIN..MAX will be refused: no metrics API serves {names}, and KEDA is not installed",
        hint="install KEDA or an adapter such as prometheus-adapter",
    )


def _ingress(api: Api) -> Iterator[Problem]:
    """Yield which IngressClass --host would use."""
    known = ingress_classes(api)
    chosen = chosen_class(known, None)
    names = ", ".join(item.name for item in known or ())
    if chosen is not None:
        yield ok("cluster_ingress", f"--host uses the IngressClass {chosen.name} of {chosen.controller}")
    elif names:
        yield ok("cluster_ingress", f"--host needs --ingress-class, because none is the default: {names}")


def _gateways(api: Api) -> Iterator[Problem]:
    """Yield which listeners of Gateways --host could use, if the cluster has any that may be listed."""
    try:
        found = all_listeners(api)
    except (ResourceNotFoundError, ClusterRefusedError):
        return
    own = api.place.namespace
    usable = [item for item in found if item.reach != "Same" or item.gateway.partition("/")[0] == own]
    names = (
        f"{item} ({printable(item.hostname) or 'any host'}{'' if item.tls else ', plain HTTP'})" for item in usable
    )
    if usable:
        yield ok("cluster_gateways", f"--host can use a route instead of an Ingress, by --gateway {', '.join(names)}")
    elif found:
        text = f"the listeners of the cluster's Gateways take no HTTP routes from {own}"
        yield ok("cluster_gateways", text)


def _storage_class(api: Api, claim: str, wanted: str) -> Problem:
    """Return whether the StorageClass that should create the claim's volume exists."""
    named = dict(api.each(_CLASSES, "looking for StorageClasses", _name_and_default))
    default = [name for name, is_default in named.items() if is_default]
    chosen = wanted or next(iter(default), "")
    if chosen in named:
        return ok("weights_claim", f"the claim {claim} waits for a volume of the StorageClass {chosen}")
    lacking = f"StorageClass {chosen}" if chosen else "default StorageClass"
    return error(
        "storage_class_missing",
        f"the claim {claim} has no volume, and the cluster has no {lacking}",
        hint="'kubectl get storageclass' lists them: create the claim again with one of them",
    )


def _name_and_default(storage_class: Reply) -> tuple[str, bool]:
    metadata = storage_class.part("metadata")
    return metadata.text("name"), metadata.optional_part("annotations").optional_text(_DEFAULT_CLASS) == "true"
