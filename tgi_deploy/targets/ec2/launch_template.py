"""Launch templates. Properties: name, data (CreateLaunchTemplate's LaunchTemplateData)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tgi_deploy.targets.aws.api import Api, each, paged, tag_specifications, tagged, tags_of
from tgi_deploy.targets.machine.user_data import sent
from tgi_deploy.values.resource import Found, key_of, revision_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply

KIND = "launch-template"


@dataclass(frozen=True, slots=True)
class LaunchTemplates:
    api: Api
    rare: ClassVar = False
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return self._described("looking for launch templates", tags, **paged(tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        return self.api.change(
            "create_launch_template",
            "creating a launch template",
            lambda reply: self._found(reply.part("LaunchTemplate"), tags),
            LaunchTemplateName=properties["name"],
            LaunchTemplateData=_sent(properties["data"]),
            ClientToken=token,
            TagSpecifications=tag_specifications(tags, "launch-template"),
        )

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Do nothing: changed content needs a new template."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self._described("reading a launch template", {}, LaunchTemplateIds=[attributes["id"]])
        return found[0] if found else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.remove("delete_launch_template", "deleting a launch template", LaunchTemplateId=attributes["id"])

    def _described(self, doing: str, tags: Mapping[str, str], **parameters: Any) -> tuple[Found, ...]:  # noqa: ANN401 -- the API's own
        read = each("LaunchTemplates", lambda item: tagged(self._found(item, tags_of(item)), tags))
        found = self.api.list("describe_launch_templates", doing, read, **parameters)
        return tuple(sorted(found, key=lambda item: item.id))

    def _found(self, item: Reply, tags: Mapping[str, str]) -> Found:
        return Found(
            key=key_of(tags, revision_key(KIND, 1)),
            kind=KIND,
            place=self.api.region,
            attributes={
                "id": item.text("LaunchTemplateId", prefix="lt-"),
                "name": item.text("LaunchTemplateName"),
                "version": str(item.integer("LatestVersionNumber") or 1),
                "created": item.moment("CreateTime"),
            },
            tags=dict(tags),
            state="available",
        )


def _sent(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data with the user data as EC2 stores it. The spec has the plain text, equal on all computers."""
    text = base64.b64decode(data.get("UserData", "")).decode()
    return {**data, "UserData": base64.b64encode(sent(text)).decode()} if text else dict(data)
