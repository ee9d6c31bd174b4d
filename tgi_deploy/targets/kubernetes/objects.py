"""Handler of one kind of object. Its name, unique in the namespace, is the request token.

`attributes["id"]` is what `kubectl` calls it: `deployment/tgi-deploy-demo`. Tags are annotations; the deployment's name
and id are labels, too, by which everything is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.errors import ConflictError, DeployError
from tgi_deploy.reconcile.errors import ResourceNotFoundError
from tgi_deploy.targets.kubernetes.errors import FORBIDDEN_CODE
from tgi_deploy.targets.kubernetes.manifests import label, object_name
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.resources import AUTOSCALERS, DEPLOYMENT, EXPOSING, PATHS, SERVICE, name_of
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, TAG_PREFIX, TAG_SPEC, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.kubernetes.manifests import Manifest
    from tgi_deploy.targets.reply import Reply

_LABELS: Final = (TAG_NAME, TAG_ID)
_OURS: Final = label(TAG_PREFIX)
# What owns them, which has the same name.
_OWNERS: Final = {
    **dict.fromkeys(EXPOSING, (SERVICE, "v1", "Service")),
    **dict.fromkeys(AUTOSCALERS, (DEPLOYMENT, "apps/v1", "Deployment")),
}


@dataclass(frozen=True, slots=True)
class Objects:
    api: Api
    kind: str
    rare: ClassVar[bool] = False
    unrepeatable: ClassVar[bool] = False

    @property
    def runs_engines(self) -> bool:
        return self.kind == DEPLOYMENT

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        selector = [f"{label(tag)}={value}" if value else label(tag) for tag, value in tags.items() if tag in _LABELS]
        query = {"labelSelector": ",".join(selector or [label(TAG_ID)])}
        found = self.api.each(self.path(), f"looking for the {self.kind}", self.found, query=query)
        return tuple(item for item in found if all(item.tags.get(tag) == value for tag, value in tags.items() if value))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- the name is the token
        """Create it, or return the one that an earlier request of ours has created.

        Raises ConflictError `name_taken` if another object has the name. A Deployment's selector contains the
        deployment's id and is immutable, so if two processes create it at once, the cluster refuses the second.
        """
        name = properties["name"]
        present = self.api.get(self.path(name), f"looking for the {self.kind}", self.found)
        if present is not None:
            return same(present, tags)
        return self.make(name, properties["manifest"], tags)

    def make(self, name: str, manifest: Mapping[str, Any], tags: Mapping[str, str]) -> Found:
        """Create what does not exist yet."""
        return self.apply(name, manifest, tags, f"creating the {self.kind}")

    def rehearse(self, properties: Mapping[str, Any]) -> None:
        """Have the cluster check the creation without creating anything. Raises what it would refuse."""
        self.api.rehearse(self.path(properties["name"]), f"checking the {self.kind}", properties["manifest"])

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Change what differs; fields that another manager owns now are a conflict."""
        name, manifest = name_of(attributes["id"]), properties["manifest"]

        def read(live: Reply) -> tuple[Manifest, Mapping[str, str]]:
            return self.wanted(manifest, live), self.found(live).tags

        found = self.api.get(self.path(name), f"reading the {self.kind}", read)
        if found is not None:
            self.apply(name, *found, f"updating the {self.kind}")

    def wanted(self, manifest: Manifest, live: Reply) -> Manifest:  # noqa: ARG002 -- a Service's depends on it
        """Return what is applied in place of what is live."""
        return manifest

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self.api.get(self.path(attributes["id"]), f"reading the {self.kind}", self.found)
        if found is None or found.attributes["uid"] != attributes.get("uid", found.attributes["uid"]):
            return None
        return found

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Delete it; a Deployment's pods finish open requests within their grace period first."""
        if self.read(attributes) is not None:
            self.api.delete(self.path(attributes["id"]), f"deleting the {self.kind}", uid=attributes.get("uid", ""))

    def apply(self, name: str, manifest: Mapping[str, Any], tags: Mapping[str, str], doing: str) -> Found:
        return self.api.apply(self.path(name), doing, tagged(manifest, tags), self.found)

    def path(self, name: str = "") -> str:
        """Return the path of all, or of one by its name or id."""
        return self.api.path(*PATHS[self.kind], name_of(name))

    def found(self, item: Reply) -> Found:
        metadata = item.part("metadata")
        noted = metadata.optional_part("annotations")
        tags = {
            name.replace("/", ":", 1): noted.optional_text(name) for name in noted.content if name.startswith(_OURS)
        }
        ending = metadata.has("deletionTimestamp")
        host = f"{object_name(tags.get(TAG_NAME, ''))}.{self.api.place.namespace}.svc"
        return Found(
            key=tags.get(TAG_KEY, self.kind),
            kind=self.kind,
            place=str(self.api.place),
            attributes={
                "id": f"{self.kind}/{metadata.text('name')}",
                "uid": metadata.text("uid"),
                "created": metadata.optional_text("creationTimestamp"),
                **({"address": host} if self.runs_engines else {}),
            },
            tags=tags,
            state="shutting-down" if ending else "running",
            alive=not ending,
            is_machine=self.runs_engines,
        )


@dataclass(frozen=True, slots=True)
class Dependents(Objects):
    """Objects that few deployments have, and that the cluster deletes together with another object of ours."""

    rare: ClassVar[bool] = True

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        """Return what exists: nothing if the credentials may not list the kind, because then they have created none."""
        try:
            return Objects.find(self, tags)
        except ResourceNotFoundError:  # the cluster has no such kind
            return ()
        except DeployError as error:
            if error.code != FORBIDDEN_CODE:
                raise
            return ()

    def apply(self, name: str, manifest: Mapping[str, Any], tags: Mapping[str, str], doing: str) -> Found:
        return Objects.apply(self, name, self._owned(manifest, name), tags, doing)

    def _owned(self, manifest: Mapping[str, Any], name: str) -> Manifest:
        kind, version, api_kind = _OWNERS[self.kind]
        path = self.api.path(*PATHS[kind], name)
        uid = self.api.get(path, f"reading the {kind}", lambda item: item.part("metadata").text("uid"))
        owner = {"apiVersion": version, "kind": api_kind, "name": name, "uid": uid}
        metadata = {**manifest["metadata"], **({"ownerReferences": [owner]} if uid else {})}
        return {**manifest, "metadata": metadata}


def selector_of(deployment: Reply) -> dict[str, str]:
    return deployment.part("spec").part("selector").table("matchLabels")


def tagged(manifest: Mapping[str, Any], tags: Mapping[str, str]) -> dict[str, Any]:
    """Return a manifest with tags: annotations, and labels to find it by."""
    metadata = dict(manifest["metadata"])
    metadata["labels"] = {**metadata["labels"], **{label(tag): tags[tag] for tag in _LABELS if tag in tags}}
    own = {label(tag): value for tag, value in tags.items() if tag.startswith(TAG_PREFIX)}
    metadata["annotations"] = {**metadata.get("annotations", {}), **own}
    return {**manifest, "metadata": metadata}


def same(found: Found, tags: Mapping[str, str]) -> Found:
    """Return an object that has the name already, if its tags match."""
    if found.alive and all(found.tags.get(tag) == tags.get(tag) for tag in (TAG_ID, TAG_KEY, TAG_SPEC)):
        return found
    owner = found.tags.get(TAG_NAME)
    what = "one that this tool did not create" if owner is None else f"the deployment '{owner}'"
    state = "" if found.alive else ", and is still being deleted"
    raise ConflictError(
        "name_taken",
        f"the name {found.id} belongs to {what}{state}",
        hint="choose another --name, or wait until it is gone"
        if owner
        else Place.of(found.place).commands(
            f"choose another --name, or remove it with 'kubectl delete {found.id}' if it is not needed"
        ),
    )
