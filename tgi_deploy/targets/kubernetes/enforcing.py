"""Handlers for limits: the Deployment, whose annotations hold them, and the service account that enforces them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.errors import ConflictError, InputError
from tgi_deploy.reconcile.ends import NO_LIMIT, READS_TAGS, TAG_IDLE_S, TAG_LEASE
from tgi_deploy.reconcile.errors import ExistsError, ResourceNotFoundError
from tgi_deploy.targets.kubernetes.limits import CONTAINER, DEPENDENT_PATHS, POD_LABEL, enforcer
from tgi_deploy.targets.kubernetes.manifests import REQUESTS, label
from tgi_deploy.targets.kubernetes.objects import Objects, same, tagged
from tgi_deploy.targets.kubernetes.pods import Pod, replicas_of
from tgi_deploy.targets.kubernetes.resources import DEPLOYMENT, ENFORCER, REPLICAS, START, name_of
from tgi_deploy.targets.reply import understood
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_EXPIRES, TAG_KEY, TAG_NAME, TAG_SPEC, UNENFORCED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.resource import Found, Resource

_RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
_LIMITS: Final = frozenset({TAG_EXPIRES, TAG_IDLE_S, TAG_LEASE})
_NOT_SHARED: Final = _LIMITS | {READS_TAGS[0]}


@dataclass(frozen=True, slots=True)
class Enforcers(Objects):
    """A service account with the Job, the Role and the RoleBinding that belong to it."""

    kind: str = ENFORCER
    rare: ClassVar[bool] = True

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        """Return the accounts, with the attribute UNENFORCED if the Job's pod does not run."""
        found = Objects.find(self, tags)
        if not found:
            return found
        doing, query = "looking for the pods of limits", {"labelSelector": POD_LABEL}
        pods: dict[str, list[Pod]] = defaultdict(list)
        for account, pod in self.api.each(self.api.path("/api/v1", "pods"), doing, _pod_of_limits, query=query):
            pods[account].append(pod)
        return tuple(_with_trouble(item, pods[name_of(item.id)]) for item in found)

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- the name is the token
        """Create it, or return the one that an earlier request of ours has created. Raises ConflictError `name_taken`.

        If two processes create it at once, the cluster refuses the second, so that no limits are overwritten.
        """
        account, *rest = properties["manifests"]
        found = self.api.get(self.path(properties["name"]), "looking for the service account", self.found)
        if found is None:
            found = self.api.create(self.path(), "creating the service account", tagged(account, tags), self.found)
        else:
            same(found, tags)
        self._complete(found, rest)
        return found

    def rehearse(self, properties: Mapping[str, Any]) -> None:
        account, *rest = properties["manifests"]
        self.api.rehearse(self.path(properties["name"]), "checking the service account", account)
        for item in rest:
            self.api.rehearse(self._path_of(item), f"checking the {item['kind']}", item)

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        found = self.read(attributes)
        if found is not None:
            self._complete(found, properties["manifests"][1:])

    def _complete(self, account: Found, rest: Sequence[Manifest]) -> None:
        """Apply its Role, RoleBinding and Job. A new Job exists before the former one is deleted."""
        own = account.attributes["uid"]
        owner = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "name": name_of(account.id),
            "uid": own,
            "blockOwnerDeletion": True,
        }
        *access, job = rest
        for item in access:
            self._apply_owned(item, owner, account)
        group, plural = DEPENDENT_PATHS["Job"]
        query = {"labelSelector": f"{label(TAG_NAME)}={job['metadata']['labels'][label(TAG_NAME)]}"}
        found = self.api.each(self.api.path(group, plural), "looking for the Job", _job_with_owners, query=query)
        jobs = [(name, uid) for name, uid, owners in found if own in owners]
        if job["metadata"]["name"] not in dict(jobs):
            self._apply_owned(job, owner, account)
        for name, uid in jobs:
            if name != job["metadata"]["name"]:
                self.api.delete(self.api.path(group, plural, name), "deleting the former Job", uid=uid)

    def _apply_owned(self, manifest: Manifest, owner: Mapping[str, Any], account: Found) -> None:
        item = tagged(manifest, account.tags)
        item["metadata"]["ownerReferences"] = [owner]
        self.api.apply(self._path_of(item), f"applying the {item['kind']}", item, lambda _reply: True)

    def _path_of(self, manifest: Manifest) -> str:
        return self.api.path(*DEPENDENT_PATHS[manifest["kind"]], manifest["metadata"]["name"])


def _pod_of_limits(item: Reply) -> tuple[str, Pod]:
    """Return a pod with the name of the account whose limits it enforces."""
    return item.part("metadata").part("labels").text(POD_LABEL), Pod.of(item, CONTAINER)


def _job_with_owners(item: Reply) -> tuple[str, str, frozenset[str]]:
    """Return the name and uid of a Job, and the uids of its owners."""
    metadata = item.part("metadata")
    owners = frozenset(owner.text("uid") for owner in metadata.optional_parts("ownerReferences"))
    return metadata.text("name"), metadata.text("uid"), owners


def _with_trouble(account: Found, pods: Sequence[Pod]) -> Found:
    """Return the account; if its Job's pod does not run, with the reason."""
    here = [pod for pod in pods if pod.counts]
    if any(pod.phase == "Running" and not (pod.waiting or pod.ended) for pod in here):
        return account
    reason, message = next((pod.trouble for pod in here if pod.trouble), ("", ""))
    why = f"{reason}: {message}" if message else reason or ("it has not started" if here else "it does not exist")
    return replaced(account, attributes={**account.attributes, UNENFORCED: why})


@dataclass(frozen=True, slots=True)
class Workloads(Objects):
    """Deployments, whose limits are annotations."""

    kind: str = DEPLOYMENT

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        name, value = READS_TAGS
        found = Objects.create(self, properties, tags={**tags, name: value}, token=token)
        if START in properties:
            self._resize(self.path(found.id), properties[START])
        return found

    def make(self, name: str, manifest: Mapping[str, Any], tags: Mapping[str, str]) -> Found:  # noqa: ARG002 -- the manifest has it
        """Create it. To apply it would change the pods of the same revision that another run has just created.

        Raises ExistsError.
        """
        try:
            return self.api.create(self.path(), "creating the deployment", tagged(manifest, tags), self.found)
        except ConflictError as taken:
            raise ExistsError(taken.message) from taken

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Change the number of replicas, or the limits in `tags`; the first limit also creates what enforces it."""
        path, tags = self.path(attributes["id"]), properties.get("tags")
        if tags is None:
            if REPLICAS in properties:
                self._resize(path, properties[REPLICAS])
            return
        live = self.api.get(path, "reading the deployment", self._with_enforcer)
        if live is None:
            raise _missing(attributes["id"], self.api.place.namespace)
        found, wanted, counted = live
        if tags.get(TAG_IDLE_S, NO_LIMIT) != NO_LIMIT and not counted:
            raise InputError(
                "idle_timeout_unsupported",
                f"it is unknown how the engine of {found.id} counts its requests",
                hint="set its end with --ttl or --lease",
            )
        if any(tags.get(name, NO_LIMIT) != NO_LIMIT for name in _LIMITS):
            own = {name: value for name, value in found.tags.items() if name not in _NOT_SHARED}
            own |= {TAG_KEY: wanted.key, TAG_SPEC: wanted.spec}
            Enforcers(self.api).create(wanted.properties, tags=own, token="")
        annotations = {label(name): value for name, value in tags.items()}
        self.api.merge(path, "changing the limits", {"metadata": {"annotations": annotations}})

    def _resize(self, path: str, replicas: int) -> None:
        """Change the number of replicas, which is not part of what is applied."""
        there = self.api.get(path, "reading the deployment", replicas_of)
        if there is None:
            raise _missing(f"deployment/{name_of(path)}", self.api.place.namespace)
        if there != replicas:
            self.api.merge(path, "scaling the deployment", {"spec": {"replicas": replicas}})

    def restart(self, attributes: Mapping[str, str]) -> bool:
        """Have the cluster replace the pods one by one, as `kubectl rollout restart` does."""
        about = {"annotations": {_RESTARTED: datetime.now(UTC).isoformat(timespec="seconds")}}
        changes = {"spec": {"template": {"metadata": about}}}
        self.api.merge(self.path(attributes["id"]), "restarting the pods", changes)
        return True

    def _with_enforcer(self, item: Reply) -> tuple[Found, Resource, bool]:
        """Return the Deployment, what would enforce its limits, and whether its engine's requests can be counted."""
        with understood(()):
            wanted = enforcer(item.content, self.api.place)
        return self.found(item), wanted, bool(item.part("metadata").table("annotations").get(REQUESTS))


def _missing(object_id: str, namespace: str) -> ResourceNotFoundError:
    return ResourceNotFoundError(f"there is no {object_id} in {namespace}")
