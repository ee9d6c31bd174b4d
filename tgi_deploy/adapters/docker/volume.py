"""The cache of weights. Properties: name. Whoever asks for it first makes it; nobody owns it, so tags never find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgi_deploy.reconcile.model import TAG_KEY, TAG_PREFIX, TAG_VERSION, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.adapters.docker.api import Api

KIND = "volume"
_LABEL = f"{TAG_PREFIX}cache"


@dataclass(frozen=True, slots=True)
class Volumes:
    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:  # noqa: ARG002 -- a Handler's signature
        """Nothing: it belongs to the host, not to a deployment."""
        return ()

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- the name is the token
        """Make it, or take the one of that name: Docker answers both alike."""
        labels = {_LABEL: properties["name"], TAG_VERSION: tags[TAG_VERSION]}
        made = self.api.ask(
            "making the volume for weights",
            lambda client: client.create_volume(name=properties["name"], driver="local", labels=labels),
            creating=True,
        )
        return self._found(made, tags.get(TAG_KEY, KIND), tags)

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Nothing of it changes in place."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        """With the containers that use it, in `users`."""
        name = attributes["id"]
        volume = self.api.look("reading a volume", lambda client: client.inspect_volume(name))
        return None if volume is None else self._found(volume, KIND, {})

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.look("removing a volume", lambda client: client.remove_volume(attributes["id"]))

    def size_bytes(self, name: str) -> int | None:
        """What it holds; None where the host doesn't count."""
        usage = self.api.ask("measuring volumes", lambda client: client.df())
        sizes = {item["Name"]: (item.get("UsageData") or {}).get("Size", -1) for item in usage.get("Volumes") or ()}
        size = int(sizes.get(name, -1))
        return size if size >= 0 else None

    def _found(self, volume: Mapping[str, Any], key: str, tags: Mapping[str, str]) -> Found:
        name = str(volume["Name"])
        return Found(
            key=key,
            kind=KIND,
            place=self.api.place,
            attributes={
                "id": name,
                "created": str(volume.get("CreatedAt") or ""),
                "users": ",".join(self._users(name)),
            },
            tags=dict(tags),
            state="available",
        )

    def _users(self, name: str) -> list[str]:
        found = self.api.ask(
            "looking for containers that use a volume",
            lambda client: client.containers(all=True, filters={"volume": name}),
        )
        return sorted(str(item["Id"])[:12] for item in found)
