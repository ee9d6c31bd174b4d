"""What enforces a deployment's limits inside its cluster: a Job that deletes its objects. Pure.

The Job reads the limits from the Deployment's annotations, which `extend` changes. Its pod is started again wherever it
is lost, on another node if necessary, until the deployment is gone. A CronJob would do that, too, but with a new pod
for each look, and none of them would know what the one before has seen.

The Job, the Role and the RoleBinding belong to the service account, so that the cluster deletes them with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.targets.kubernetes.manifests import (
    CONTAINER_SECURITY,
    REQUESTS,
    REVISION,
    SHARED_NAME,
    label,
    unexpanded,
    user_security,
)
from tgi_deploy.targets.kubernetes.resources import DEPLOYMENT, ENFORCER, OWN_KINDS, PATHS, SERVICE, object_path
from tgi_deploy.templating import render_text
from tgi_deploy.values.resource import TAG_PREFIX, Resource, digest, revision_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.kubernetes.place import Place

_RBAC_VERSION: Final = "rbac.authorization.k8s.io/v1"
RBAC: Final = _RBAC_VERSION.partition("/")[0]
DEPENDENT_PATHS: Final = {
    "Role": (f"/apis/{_RBAC_VERSION}", "roles"),
    "RoleBinding": (f"/apis/{_RBAC_VERSION}", "rolebindings"),
    "Job": ("/apis/batch/v1", "jobs"),
}
_ENDPOINTS: Final = "/api/v1/namespaces/{}/endpoints/{}"
_PROGRAM: Final = "kubernetes/enforce-limits.py.j2"
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
CONTAINER: Final = "limits"
# Its pod must not have the labels by which the Service finds the engine's.
POD_LABEL: Final = label(f"{TAG_PREFIX}limits-of")
_ANY_NUMBER_OF_TIMES: Final = 2**31 - 1
_MOST_NAME: Final = 54
_MOVE_AFTER_S: Final = 30
_LOST_NODE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def enforcer(engine: Mapping[str, Any], place: Place) -> Resource:
    """Return the resource for a Deployment, as applied or as read from the cluster."""
    name = engine["metadata"]["name"]
    properties = {"name": name, "manifests": limit_manifests(engine, place.namespace)}
    revision = engine["spec"]["selector"]["matchLabels"][REVISION]
    return Resource(
        key=revision_key(ENFORCER, int(revision)),
        kind=ENFORCER,
        place=str(place),
        properties=properties,
        mutable=("manifests",),
    )


def limit_manifests(engine: Mapping[str, Any], namespace: str) -> list[Manifest]:
    """Return the service account, and what belongs to it."""
    name, labels = engine["metadata"]["name"], engine["metadata"]["labels"]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": RBAC, "kind": "Role", "name": name}

    def made(version: str, kind: str, **content: object) -> Manifest:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": dict(labels)}, **content}

    job = _job(engine, namespace)
    return [
        made("v1", "ServiceAccount", automountServiceAccountToken=False),
        made(_RBAC_VERSION, "Role", rules=_rules(engine)),
        made(_RBAC_VERSION, "RoleBinding", subjects=[subject], roleRef=role),
        made("batch/v1", "Job", spec=job) | {"metadata": {"name": _job_name(name, job), "labels": dict(labels)}},
    ]


def _name_of(kind: str, engine: Mapping[str, Any]) -> str:
    """Return the name of an object of the deployment: the revision's, or that of all revisions."""
    about = engine["metadata"]
    name: str = about["name"] if kind in {DEPLOYMENT, ENFORCER} else about["labels"][SHARED_NAME]
    return name


def _rules(engine: Mapping[str, Any]) -> list[Manifest]:
    """Return what the Job may do: read the Deployment and where its pods are, and delete what belongs to it."""
    read = {DEPLOYMENT: ("get",)}
    return [
        _rule("/api/v1", "endpoints", _name_of(SERVICE, engine), "get"),
        *(_rule(*PATHS[kind], _name_of(kind, engine), *read.get(kind, ()), "delete") for kind in OWN_KINDS),
    ]


def _rule(path: str, plural: str, name: str, *verbs: str) -> Manifest:
    """Return a rule for one object; `path` is `/api/v1` or `/apis/GROUP/v1`."""
    group = path.removeprefix("/apis/").rpartition("/")[0] if path.startswith("/apis/") else ""
    return {"apiGroups": [group], "resources": [plural], "resourceNames": [name], "verbs": list(verbs)}


def _job_name(name: str, job: Manifest) -> str:
    """Return a name for this content, because a Job's pod can't be changed."""
    return f"{name[:_MOST_NAME]}-{digest(job)[:8]}"


def _job(engine: Mapping[str, Any], namespace: str) -> Manifest:
    name = engine["metadata"]["name"]
    rest = (kind for kind in reversed(OWN_KINDS) if kind not in {DEPLOYMENT, ENFORCER})
    paths = [object_path(kind, namespace, _name_of(kind, engine)) for kind in (DEPLOYMENT, *rest, ENFORCER)]
    pod, requests = engine["spec"]["template"]["spec"], engine["metadata"].get("annotations", {}).get(REQUESTS, "")
    container = {
        "name": CONTAINER,
        "image": pod["containers"][0]["image"],
        "command": ["python3", "-c", unexpanded(render_text(_PROGRAM, {}, templates_dir=None))],
        "args": [_ACCOUNT, _ENDPOINTS.format(namespace, _name_of(SERVICE, engine)), requests, *paths],
        # Engines' images ask for all GPUs, which some runtimes grant without a limit in the pod.
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {**CONTAINER_SECURITY, "readOnlyRootFilesystem": True},
    }
    lost = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _MOVE_AFTER_S}
        for key in _LOST_NODE
    ]
    spec = {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 1,
        "securityContext": user_security(root=pod.get("securityContext", {}).get("runAsUser") == 0),
        "affinity": {"podAffinity": _beside(engine)},
        "tolerations": [*pod.get("tolerations", ()), *lost],
        "containers": [container],
    }
    template = {"metadata": {"labels": {POD_LABEL: name}}, "spec": spec}
    # A Job that has ended would keep its name, so that applying rendered manifests again would start nothing.
    return {"backoffLimit": _ANY_NUMBER_OF_TIMES, "ttlSecondsAfterFinished": 0, "template": template}


def _beside(engine: Mapping[str, Any]) -> Manifest:
    """Return the affinity for a node that runs the engine, which has the image, too. Without one, nothing is used.

    A preference would not do: the Job's pod exists first, and would be the only one on some other node.
    """
    term = {"labelSelector": engine["spec"]["selector"], "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
