"""The private network of a deployment with a proxy. Its engines can be reached only through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tgi_deploy.errors import ConflictError
from tgi_deploy.reconcile.errors import LostReplyError
from tgi_deploy.targets.docker.resources import NETWORK
from tgi_deploy.targets.reply import Reply, replies
from tgi_deploy.values.resource import TAG_ID, TAG_SPEC, Found, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.docker.api import Api


@dataclass(frozen=True, slots=True)
class Networks:
    """Properties: name, which is the request token."""

    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        labels = [f"{name}={value}" if value else name for name, value in tags.items()]
        found = self._listed({"label": labels})
        return tuple(sorted(found, key=lambda item: (item.attributes["created"], item.id)))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- the name is the token
        """Create it. Raises ConflictError `name_taken` if something else has the name."""
        name = properties["name"]
        made_id = self.api.create(
            "creating the network",
            lambda client: client.create_network(name, driver="bridge", check_duplicate=True, labels=dict(tags)),
        )
        if made_id is not None:
            return self.read({"id": made_id}) or self._found(Reply({"Id": made_id, "Labels": dict(tags)}))
        there = next((item for item in self._listed({"name": name}) if item.attributes["name"] == name), None)
        if there is None:
            raise LostReplyError(f"creating the network: the name {name} was used by something that no longer exists")
        if any(there.tags.get(tag) != tags.get(tag) for tag in (TAG_ID, TAG_SPEC)):
            raise ConflictError(
                "name_taken",
                f"the network name {name} is taken ({there.id})",
                hint=f"choose another --name, or remove it with 'docker network rm {there.id}' if it is not needed",
            )
        return there

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Do nothing: no property changes in place."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        network_id = attributes["id"]
        return self.api.look(
            "reading a network",
            lambda client: client.inspect_network(network_id),
            lambda item: self._found(Reply.of(item)),
        )

    def delete(self, attributes: Mapping[str, str]) -> None:
        network_id = attributes["id"]
        self.api.look("removing a network", lambda client: client.remove_network(network_id), lambda _nothing: None)

    def _listed(self, filters: Mapping[str, Any]) -> list[Found]:
        return self.api.ask(
            "looking for networks",
            lambda client: client.networks(filters=dict(filters)),
            lambda listed: [self._found(item) for item in replies(listed)],
        )

    def _found(self, item: Reply) -> Found:
        labels = item.table("Labels")
        return Found(
            key=key_of(labels, NETWORK),
            kind=NETWORK,
            place=self.api.place,
            attributes={
                "id": item.text("Id"),
                "name": item.optional_text("Name"),
                "created": item.optional_text("Created"),
            },
            tags=labels,
            state="available",
        )
