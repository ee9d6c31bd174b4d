"""What the machine is launched from. Properties: name, data (CreateLaunchTemplate's LaunchTemplateData)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgi_deploy.adapters.aws.api import Api, paged, tag_specifications, tags_of
from tgi_deploy.reconcile.model import TAG_KEY, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "launch-template"


@dataclass(frozen=True, slots=True)
class LaunchTemplates:
    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return self._described("looking for launch templates", **paged(tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        answer = self.api.change(
            "create_launch_template",
            "creating a launch template",
            LaunchTemplateName=properties["name"],
            LaunchTemplateData=properties["data"],
            ClientToken=token,
            TagSpecifications=tag_specifications(tags, "launch-template"),
        )
        return self._found({"Tags": [], **answer["LaunchTemplate"]}, tags)

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Nothing of a template changes in place: another content is another template."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        found = self._described("reading a launch template", LaunchTemplateIds=[attributes["id"]])
        return found[0] if found else None

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.remove("delete_launch_template", "deleting a launch template", LaunchTemplateId=attributes["id"])

    def _described(self, doing: str, **parameters: Any) -> tuple[Found, ...]:  # noqa: ANN401 -- the API's own
        items = self.api.list("describe_launch_templates", "LaunchTemplates", doing, **parameters)
        return tuple(sorted((self._found(item) for item in items), key=lambda found: found.id))

    def _found(self, item: Mapping[str, Any], tags: Mapping[str, str] | None = None) -> Found:
        known = dict(tags) if tags is not None else tags_of(item)
        return Found(
            key=known.get(TAG_KEY, KIND),
            kind=KIND,
            place=self.api.region,
            attributes={
                "id": item["LaunchTemplateId"],
                "name": item["LaunchTemplateName"],
                "version": str(item.get("LatestVersionNumber", 1)),
                "created": item["CreateTime"].isoformat() if "CreateTime" in item else "",
            },
            tags=known,
            state="available",
        )
