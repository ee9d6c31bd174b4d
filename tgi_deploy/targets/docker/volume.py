"""The weights cache. Properties: name. It belongs to the host, not to a deployment, so tag searches never find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tgi_deploy.targets.reply import Reply, replies
from tgi_deploy.values.resource import TAG_KEY, TAG_PREFIX, TAG_VERSION, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.docker.api import Api

KIND = "volume"
_LABEL = f"{TAG_PREFIX}cache"


@dataclass(frozen=True, slots=True)
class Volumes:
    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:  # noqa: ARG002 -- a Handler's signature
        """Find nothing: it belongs to the host."""
        return ()

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- the name is the token
        """Create it, or use the existing one: Docker does not distinguish the two."""
        labels = {_LABEL: properties["name"], TAG_VERSION: tags[TAG_VERSION]}
        name, created = self.api.ask(
            "creating the weights volume",
            lambda client: client.create_volume(name=properties["name"], driver="local", labels=labels),
            _read,
            creating=True,
        )
        return self._found(name, created, tags.get(TAG_KEY, KIND), tags)

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Do nothing: no property changes in place."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        """Return it with the containers that use it in `users`."""
        name = attributes["id"]
        volume = self.api.look("reading a volume", lambda client: client.inspect_volume(name), _read)
        return None if volume is None else self._found(*volume, KIND, {})

    def delete(self, attributes: Mapping[str, str]) -> None:
        name = attributes["id"]
        self.api.look("removing a volume", lambda client: client.remove_volume(name), lambda _nothing: None)

    def size_bytes(self, name: str) -> int | None:
        """Return its size; None if the host doesn't report it."""

        def read(usage: object) -> dict[str, int]:
            volumes = Reply.of(usage).optional_parts("Volumes")
            counted = {item.text("Name"): item.optional_part("UsageData") for item in volumes}
            return {volume: data.integer("Size") for volume, data in counted.items() if data.has("Size")}

        size = self.api.ask("measuring volumes", lambda client: client.df(), read).get(name, -1)
        return size if size >= 0 else None

    def _found(self, name: str, created: str, key: str, tags: Mapping[str, str]) -> Found:
        return Found(
            key=key,
            kind=KIND,
            place=self.api.place,
            attributes={
                "id": name,
                "created": created,
                "users": ",".join(self._users(name)),
            },
            tags=dict(tags),
            state="available",
        )

    def _users(self, name: str) -> list[str]:
        ids = self.api.ask(
            "looking for containers that use a volume",
            lambda client: client.containers(all=True, filters={"volume": name}),
            lambda listed: [item.text("Id") for item in replies(listed)],
        )
        return sorted(found[:12] for found in ids)


def _read(volume: object) -> tuple[str, str]:
    """Return its name and creation time."""
    item = Reply.of(volume)
    return item.text("Name"), item.optional_text("CreatedAt")
