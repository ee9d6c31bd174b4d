"""A candidate as Kubernetes objects: a Deployment, its Service and its PodDisruptionBudget. Pure.

Nothing but `replicas` depends on their number, so that it can change while they run.

They run under the Pod Security Standard `restricted`: engines work as an ordinary user if the home folder is writable
(OPEA's Helm charts run one so: opea-project/GenAIInfra, helm-charts/common). An image that only root can start runs
under `baseline`, as root without capabilities.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import InputError
from tgi_deploy.targets.container import container_for
from tgi_deploy.values.base import Frozen
from tgi_deploy.values.resource import TAG_ID, TAG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.targets.container import HostedContainer
    from tgi_deploy.targets.kubernetes.node_labels import NodeSelector
    from tgi_deploy.targets.protocol import Deployable
    from tgi_deploy.values.container import Health, Mount
    from tgi_deploy.values.plan import Candidate

Manifest = dict[str, Any]

HUB_TOKEN_SECRET: Final = "hf-token"  # noqa: S105 -- the Secret's name, not a token
API_KEY_SECRET: Final = "engine-api-key"  # noqa: S105 -- the Secret's name
SECRET_ENTRY: Final = "api-key"  # noqa: S105 -- the name of the entry
CONTAINER: Final = "engine"
CONTAINER_SECURITY: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
HTTP: Final = "http"
REVISION: Final = "tgi-deploy/revision"
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
SHARED_NAME: Final = "app.kubernetes.io/name"
TOOL: Final = "tgi-deploy"
# The annotation of a Deployment with its `Workload.requests`.
REQUESTS: Final = f"{TOOL}/requests-on"
_WEIGHTS: Final = "weights"
_USER: Final = 1000
_HOME: Final = "/tmp"  # noqa: S108 -- an emptyDir of the pod
_LOWEST_FREE_PORT: Final = 1024
_GIB: Final = 1024**3
# Of the engine's processes, one per accelerator, while they load; safetensors are mapped, not copied.
_HOST_GIB_PER_SHARD: Final = 4
_DISK_MARGIN: Final = 1.1
_STARTUP_PERIOD_S: Final = 10
_READINESS_PERIOD_S: Final = 5
_PROBE_TIMEOUT_S: Final = 5
# Until every node's proxy has removed the pod from the Service: it still gets new connections in between.
_OUT_OF_SERVICE_S: Final = 10
_AFTER_STOP_S: Final = 15
# Removing a deployment waits for its pods' ends: well below the time after which that is a failure.
_LONGEST_DRAIN_S: Final = 600
# For a node that is added for the pod: docs of Karpenter and of EKS measure one to four minutes.
_NODE_S: Final = 300
_SPREAD_OVER: Final = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")


class Workload(Frozen, frozen=True, kw_only=True):
    """What to run. `identity` are the labels that its pods alone have; `weights_claim` is empty for an emptyDir.

    `api_key`: the container's variable for the API key and the Secret that has it, or neither.
    `answer_s`: how long the longest answer may take, which the engine finishes before it ends.
    `requests`: the page of metrics and the counters on it that grow only with requests.
    """

    name: str
    container: HostedContainer
    identity: Mapping[str, str]
    nodes: NodeSelector
    ready_deadline_s: int
    weights_bytes: int
    answer_s: int
    replicas: int = 1
    revision: int = 1
    hub_token_secret: str = HUB_TOKEN_SECRET
    api_key: tuple[str, str] | None = None
    weights_claim: str = ""
    requests: str = ""

    @property
    def drain_s(self) -> int:
        """How long open requests have to finish after the pod has left the Service."""
        least = max(self.container.stop_timeout_s, self.container.pinned_drain_s)
        return least if self.container.drain_variable is None else max(least, self.answer_s)

    @property
    def object_name(self) -> str:
        """The name of the objects of all revisions and, unique in a namespace, of the first Deployment."""
        return object_name(self.name)

    @property
    def revision_name(self) -> str:
        """The name of the revision's Deployment."""
        return self.object_name if self.revision == 1 else f"{self.object_name}-r{self.revision}"

    @property
    def selector(self) -> dict[str, str]:
        """The labels that only the revision's pods have."""
        return {**self.identity, REVISION: str(self.revision)}


def object_name(name: str) -> str:
    return f"{TOOL}-{name}"


def label(tag: str) -> str:
    """Return the label or annotation of a tag: colons are not allowed there."""
    return tag.replace(":", "/", 1)


def workload(
    deployable: Deployable,
    nodes: NodeSelector,
    *,
    deployment_id: str = "",
    revision: int = 1,
    **options: Any,  # noqa: ANN401 -- of `Workload`
) -> Workload:
    """Raises InputError `local_model`, `accelerator_not_in_cluster`."""
    container = container_for(deployable)
    if container.model_dir is not None:
        raise InputError(
            "local_model",
            f"the model {container.model_dir} is a folder of this computer, which a cluster's pods can't read",
            hint="deploy it from the Hugging Face hub, or run it here with --target docker",
        )
    if container.host is not None:
        chip = deployable.candidate.offer.instance_type.accelerator.name
        raise InputError(
            "accelerator_not_in_cluster",
            f"pods are given NVIDIA GPUs only so far, and the plan is for {chip}",
            hint="plan for an NVIDIA GPU with --hardware NxGPU",
        )
    metrics = deployable.candidate.engine.metrics
    identity = {TAG_NAME: deployable.name} | ({TAG_ID: deployment_id} if deployment_id else {})
    return Workload(
        name=deployable.name,
        container=container,
        identity={label(tag): value for tag, value in identity.items()},
        nodes=nodes,
        ready_deadline_s=deployable.ready_deadline_s,
        weights_bytes=deployable.candidate.storage.weights_bytes,
        answer_s=_longest_answer_s(deployable.candidate),
        revision=revision,
        requests=" ".join((metrics.path, *metrics.request_counters)) if metrics.path else "",
        **options,
    )


def _longest_answer_s(candidate: Candidate) -> int:
    """Return how long an answer of all tokens takes at the slow end of the prediction, within a limit."""
    speed = candidate.performance
    slowest_ms = max(speed.tpot_ms, speed.tpot_ms_p95 or 0.0, speed.tpot_ms_span.high if speed.tpot_ms_span else 0.0)
    longest_s = (speed.ttft_ms + slowest_ms * candidate.engine.settings.max_total_tokens) / 1000
    return math.ceil(min(longest_s, _LONGEST_DRAIN_S))


def manifests(wanted: Workload) -> tuple[Manifest, ...]:
    """Return the objects in the order of creation."""
    return (deployment(wanted), service(wanted), disruption_budget(wanted))


def deployment(wanted: Workload) -> Manifest:
    """Return a revision's Deployment. A restart first removes a pod, because a spare GPU may not exist."""
    made = _object(
        wanted,
        "apps/v1",
        "Deployment",
        name=wanted.revision_name,
        spec={
            "replicas": wanted.replicas,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": wanted.ready_deadline_s + _NODE_S,
            "selector": {"matchLabels": wanted.selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {**wanted.identity, **common_labels(wanted.name), **wanted.selector}},
                "spec": _pod(wanted),
            },
        },
    )
    if wanted.requests:
        made["metadata"]["annotations"] = {REQUESTS: wanted.requests}
    return made


def service(wanted: Workload) -> Manifest:
    """Return the Service, which sends requests to the pods of one revision."""
    return service_to(wanted.name, wanted.selector, wanted.container.port)


def service_to(name: str, selector: Mapping[str, str], port: int) -> Manifest:
    """Return the Service of a deployment, which sends requests to the pods with these labels."""
    identity = {key: value for key, value in selector.items() if key != REVISION}
    ports = [{"name": HTTP, "port": port, "targetPort": HTTP, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": object_name(name), "labels": {**identity, **common_labels(name)}},
        "spec": {"type": "ClusterIP", "selector": dict(selector), "ports": ports},
    }


def disruption_budget(wanted: Workload) -> Manifest:
    """Return the budget for evictions: one pod at a time, which for a single replica blocks no drain of its node.

    It allows what `minAvailable` of all but one would, whatever the number of replicas.
    """
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(wanted.identity)}}
    return _object(wanted, "policy/v1", "PodDisruptionBudget", name=wanted.object_name, spec=spec)


def _object(wanted: Workload, version: str, kind: str, *, name: str, spec: Mapping[str, Any]) -> Manifest:
    metadata = {"name": name, "labels": {**wanted.identity, **common_labels(wanted.name)}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def common_labels(name: str) -> dict[str, str]:
    return {SHARED_NAME: object_name(name), _MANAGED_BY: TOOL}


def _pod(wanted: Workload) -> Manifest:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _OUT_OF_SERVICE_S + wanted.drain_s + _AFTER_STOP_S,
        "securityContext": _pod_security(wanted.container),
        **wanted.nodes.terms,
        "tolerations": [{"key": wanted.nodes.resource, "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [_spread(wanted, key) for key in _SPREAD_OVER],
        "containers": [_container(wanted)],
        "volumes": list(_volumes(wanted)),
    }


def _pod_security(container: HostedContainer) -> Manifest:
    """Return the engine's security context; a port below 1024 is opened to ordinary users in this pod alone."""
    low = container.container_port < _LOWEST_FREE_PORT
    port = {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]} if low else {}
    return {**user_security(root=container.container.image.needs_root is True), **port}


def user_security(*, root: bool) -> Manifest:
    """Return the security context of a pod: of an ordinary user, or of root where only root can start the image."""
    user = 0 if root else _USER
    return {
        **({} if root else {"runAsNonRoot": True}),
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": _USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _spread(wanted: Workload, key: str) -> Manifest:
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": wanted.selector},
    }


def _container(wanted: Workload) -> Manifest:
    container = wanted.container
    return {
        "name": CONTAINER,
        "image": _image(container),
        "args": [unexpanded(arg) for arg in container.args],
        "env": list(_env(wanted)),
        "ports": [{"name": HTTP, "containerPort": container.container_port, "protocol": "TCP"}],
        "resources": _resources(wanted),
        **_probes(container.health, wanted.ready_deadline_s),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_OUT_OF_SERVICE_S)]}}},
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": list(_volume_mounts(container)),
    }


def _image(container: HostedContainer) -> str:
    digest = container.container.image.digest
    return container.image if digest is None or "@" in container.image else f"{container.image}@{digest}"


def unexpanded(text: str) -> str:
    """Return a text for `args` or `env` that Kubernetes passes on unchanged: it replaces $(NAME), and $$ by $."""
    return text.replace("$", "$$")


def _env(wanted: Workload) -> Iterator[Manifest]:
    """Yield the variables; libraries look for a home folder and a user's name, which an arbitrary user lacks."""
    own = {"HOME": _HOME, "NUMBA_CACHE_DIR": _HOME, "USER": TOOL}
    drain = {wanted.container.drain_variable: str(wanted.drain_s)} if wanted.container.drain_variable else {}
    for name, value in sorted({**own, **drain, **dict(wanted.container.env)}.items()):
        yield {"name": name, "value": unexpanded(value)}
    for name in wanted.container.secret_env:
        yield _from_secret(name, wanted.hub_token_secret, name)
    if wanted.api_key is not None:
        variable, secret = wanted.api_key
        yield _from_secret(variable, secret, SECRET_ENTRY)


def _from_secret(variable: str, secret: str, key: str) -> Manifest:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _resources(wanted: Workload) -> Manifest:
    """Return the requests, which leave room for the node's own programs, and the GPUs, which are never shared."""
    container = wanted.container
    gpus = {wanted.nodes.resource: str(container.gpus)}
    memory_gib = container.gpus * _HOST_GIB_PER_SHARD + math.ceil(container.container.shm_bytes / _GIB)
    requests = {"cpu": str(container.gpus), "memory": f"{memory_gib}Gi", **gpus}
    if not wanted.weights_claim:
        requests["ephemeral-storage"] = f"{math.ceil(wanted.weights_bytes * _DISK_MARGIN / _GIB)}Gi"
    return {"limits": gpus, "requests": requests}


def _probes(health: Health, ready_deadline_s: int) -> Manifest:
    check = {"httpGet": {"path": health.path, "port": HTTP}, "timeoutSeconds": _PROBE_TIMEOUT_S}
    tries = math.ceil(ready_deadline_s / _STARTUP_PERIOD_S)
    return {
        "startupProbe": {**check, "periodSeconds": _STARTUP_PERIOD_S, "failureThreshold": tries},
        "readinessProbe": {**check, "periodSeconds": _READINESS_PERIOD_S, "failureThreshold": 3},
        "livenessProbe": {**check, "periodSeconds": health.every_s, "failureThreshold": health.failures},
    }


def _volume_mounts(container: HostedContainer) -> Iterator[Manifest]:
    for mount in container.container.mounts:
        yield {"name": mount.purpose, "mountPath": mount.path}
    yield {"name": "home", "mountPath": _HOME}
    if container.container.shm_bytes:
        yield {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 -- the container's


def _volumes(wanted: Workload) -> Iterator[Manifest]:
    for mount in wanted.container.container.mounts:
        yield _volume(mount, wanted.weights_claim)
    yield {"name": "home", "emptyDir": {}}
    shm_bytes = wanted.container.container.shm_bytes
    if shm_bytes:
        yield {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shm_bytes)}}


def _volume(mount: Mount, claim: str) -> Manifest:
    if mount.purpose == _WEIGHTS and claim:
        return {"name": mount.purpose, "persistentVolumeClaim": {"claimName": claim}}
    return {"name": mount.purpose, "emptyDir": {}}
