"""Secrets in the Parameter Store: SecureStrings under the account's default key.

Properties: name, description, value (a reference such as `env:HF_TOKEN`, never the value itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import ResourceNotFoundError
from tgi_deploy.targets.aws.api import Api, acknowledged, carries, each, read_tags, tag_list
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.reply import Reply

KIND: Final = "parameter"
FOLDER: Final = "/tgi-deploy"


@dataclass(frozen=True, slots=True)
class Parameters:
    """`secret_of` returns the secret that a reference names."""

    api: Api
    secret_of: Callable[[str], Secret]
    rare: ClassVar = True
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        asked = [{"Key": "Path", "Option": "Recursive", "Values": [FOLDER]}]
        by = next((name for name in (TAG_ID, TAG_NAME) if tags.get(name)), None)
        if by is not None:
            asked.append({"Key": f"tag:{by}", "Option": "Equals", "Values": [tags[by]]})
        found = self._described("looking for parameters", asked)
        return tuple(sorted((item for item in found if carries(item.tags, tags)), key=lambda item: item.id))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token; names are unique in a region
        """Store it without overwriting an existing one. Raises LostReplyError if the name exists."""
        secret = self.secret_of(properties["value"])
        try:
            self.api.change(
                "put_parameter",
                "storing a secret",
                _stored,
                service="ssm",
                Name=properties["name"],
                Description=properties["description"],
                Value=secret.reveal(),
                Type="SecureString",
                Overwrite=False,
                Tags=tag_list(tags),
            )
        except DeployError as error:
            raise _without(secret, error) from None
        return self._found(properties["name"], dict(tags), "")

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Leave a stored secret unchanged, whatever the caller's environment holds now."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        asked = [{"Key": "Name", "Option": "Equals", "Values": [attributes["id"]]}]
        found = self._described("reading a parameter", asked)
        return found[0] if found else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.remove("delete_parameter", "deleting a parameter", service="ssm", Name=attributes["id"])

    def _described(self, doing: str, filters: list[dict[str, Any]]) -> list[Found]:
        listed = self.api.list(
            "describe_parameters", doing, each("Parameters", _named), service="ssm", ParameterFilters=filters
        )
        known = [(name, self._tags(name), changed) for name, changed in listed]
        return [self._found(name, tags, changed) for name, tags, changed in known if tags is not None]

    def _tags(self, name: str) -> dict[str, str] | None:
        """Return its tags; None if it was deleted in between."""
        try:
            return self.api.ask(
                "list_tags_for_resource",
                "reading a parameter's tags",
                lambda reply: read_tags(reply.parts("TagList")),
                service="ssm",
                ResourceType="Parameter",
                ResourceId=name,
            )
        except ResourceNotFoundError:
            return None

    def _found(self, name: str, tags: dict[str, str], created: str) -> Found:
        return Found(
            key=tags.get(TAG_KEY, KIND),
            kind=KIND,
            place=self.api.region,
            attributes={"id": name, "name": name, "created": created},
            tags=tags,
            state="available",
        )


def _stored(reply: Reply) -> None:
    acknowledged(reply)
    reply.number("Version")


def _named(item: Reply) -> tuple[str, str]:
    """Return its name and creation time, which is its last change: this tool writes a parameter only once."""
    return item.text("Name"), item.moment("LastModifiedDate")


def _without(secret: Secret, error: DeployError) -> DeployError:
    """Return the error without the value, in case the service quoted it."""
    return error.copy(message=secret.scrub(error.message))
