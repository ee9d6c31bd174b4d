"""Roles with one policy each, and the instance profiles that hand them to machines.

They belong to the whole account; the path `/tgi-deploy/REGION/DEPLOYMENT/` says which region's search finds them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.adapters.aws.api import Api, before_visible, carries, tag_list, tags_of
from tgi_deploy.catalog.actions import policy_document, read_actions
from tgi_deploy.reconcile.errors import BadRequestError, GoneError
from tgi_deploy.reconcile.model import TAG_ID, TAG_KEY, TAG_NAME, Found

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLE: Final = "role"
PROFILE: Final = "instance-profile"
POLICY: Final = "tgi-deploy"


@dataclass(frozen=True, slots=True)
class Roles:
    """Properties: name, deployment, trust (who may take it on), statements (what it may do).

    In trust and statements `{partition}` and `{account}` stand for the role's own. Every role carries the boundary of
    `profiles/aws/actions.json`, which an administrator of the account has made: no policy gives it more than that.
    """

    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        items = self.api.list(
            "list_roles", "Roles", "looking for roles", service="iam", PathPrefix=_path(self.api, tags)
        )
        names = _names(self.api, items, "RoleName", tags)
        found = [item for name in names if (item := self.read({"id": name})) is not None]
        return tuple(item for item in found if carries(item.tags, tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token; names are unique in an account
        caller = self.api.ask("get_caller_identity", "asking for the account", service="sts")
        partition, boundary = caller["Arn"].split(":")[1], read_actions().boundary
        try:
            answer = self.api.change(
                "create_role",
                "creating a role",
                service="iam",
                Path=_path(self.api, {TAG_NAME: properties["deployment"]}),
                RoleName=properties["name"],
                Description="made by tgi-deploy",
                AssumeRolePolicyDocument=_document([properties["trust"]]).replace("{partition}", partition),
                PermissionsBoundary=boundary.arn(caller["Account"], partition),
                Tags=tag_list(tags),
            )
        except GoneError as error:  # the one thing that it names
            raise BadRequestError(
                f"{error.message.rstrip('.')}: every role that is made carries the account's policy {boundary.name!r}",
                code="boundary_missing",
                hint=f"run once, as an administrator of the account: {boundary.creation}",
            ) from None
        return self._found(answer["Role"], dict(tags))

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Set the one policy, in the account that the role's own name tells."""
        _, partition, _, _, account, _ = attributes["arn"].split(":", 5)
        policy = _document(properties["statements"]).replace("{partition}", partition).replace("{account}", account)
        before_visible(
            self.api,
            lambda: self.api.ask(
                "put_role_policy",
                "setting a role's policy",
                service="iam",
                RoleName=attributes["id"],
                PolicyName=POLICY,
                PolicyDocument=policy,
            ),
        )

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        try:
            answer = self.api.ask("get_role", "reading a role", service="iam", RoleName=attributes["id"])
        except GoneError:
            return None
        return self._found(answer["Role"], tags_of(answer["Role"]))

    def delete(self, attributes: Mapping[str, str]) -> None:
        """With every policy on it, those that others have added among them."""
        name = attributes["id"]
        for policy in self._listed("list_role_policies", "PolicyNames", name):
            self._remove("delete_role_policy", RoleName=name, PolicyName=policy)
        for attached in self._listed("list_attached_role_policies", "AttachedPolicies", name):
            self._remove("detach_role_policy", RoleName=name, PolicyArn=attached["PolicyArn"])
        self._remove("delete_role", RoleName=name)

    def _listed(self, method: str, key: str, name: str) -> list[Any]:
        return self.api.list(method, key, "reading a role's policies", service="iam", RoleName=name)

    def _remove(self, method: str, **parameters: str) -> None:
        self.api.remove(method, "deleting a role", service="iam", **parameters)

    def _found(self, item: Mapping[str, Any], tags: dict[str, str]) -> Found:
        return _found(self.api, ROLE, item["RoleName"], item, tags)


@dataclass(frozen=True, slots=True)
class InstanceProfiles:
    """Properties: name, deployment, role."""

    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        doing = "looking for instance profiles"
        items = self.api.list(
            "list_instance_profiles", "InstanceProfiles", doing, service="iam", PathPrefix=_path(self.api, tags)
        )
        names = _names(self.api, items, "InstanceProfileName", tags)
        found = [item for name in names if (item := self.read({"id": name})) is not None]
        return tuple(item for item in found if carries(item.tags, tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token; names are unique in an account
        answer = self.api.change(
            "create_instance_profile",
            "creating an instance profile",
            service="iam",
            Path=_path(self.api, {TAG_NAME: properties["deployment"]}),
            InstanceProfileName=properties["name"],
            Tags=tag_list(tags),
        )
        return self._found(answer["InstanceProfile"], dict(tags))

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Put the role into it. A second time is refused: what counts is that it is there."""
        name, role = attributes["id"], properties["role"]
        if role in self._roles(name):
            return
        try:
            before_visible(
                self.api,
                lambda: self.api.ask(
                    "add_role_to_instance_profile",
                    "giving an instance profile its role",
                    service="iam",
                    InstanceProfileName=name,
                    RoleName=role,
                ),
            )
        except BadRequestError:
            if role not in self._roles(name):
                raise

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        item = self._read(attributes["id"])
        return None if item is None else self._found(item, tags_of(item))

    def delete(self, attributes: Mapping[str, str]) -> None:
        name = attributes["id"]
        for role in self._roles(name):
            self._remove("remove_role_from_instance_profile", InstanceProfileName=name, RoleName=role)
        self._remove("delete_instance_profile", InstanceProfileName=name)

    def _remove(self, method: str, **parameters: str) -> None:
        self.api.remove(method, "deleting an instance profile", service="iam", **parameters)

    def _roles(self, name: str) -> tuple[str, ...]:
        item = self._read(name)
        return tuple(role["RoleName"] for role in item["Roles"]) if item else ()

    def _read(self, name: str) -> dict[str, Any] | None:
        doing = "reading an instance profile"
        try:
            answer = self.api.ask("get_instance_profile", doing, service="iam", InstanceProfileName=name)
        except GoneError:
            return None
        item: dict[str, Any] = answer["InstanceProfile"]
        return item

    def _found(self, item: Mapping[str, Any], tags: dict[str, str]) -> Found:
        return _found(self.api, PROFILE, item["InstanceProfileName"], item, tags)


def _path(api: Api, tags: Mapping[str, str]) -> str:
    """Where things of this region lie, those of one deployment where the tags name one."""
    name = tags.get(TAG_NAME)
    return f"/tgi-deploy/{api.region}/{name}/" if name else f"/tgi-deploy/{api.region}/"


def _names(api: Api, items: list[dict[str, Any]], field: str, tags: Mapping[str, str]) -> list[str]:
    """Names that the tags can belong to: each holds its deployment's id, and lists show no tags."""
    path, identity = _path(api, tags), tags.get(TAG_ID, "")
    return sorted(item[field] for item in items if item["Path"].startswith(path) and identity in item[field])


def _document(statements: list[dict[str, Any]]) -> str:
    return json.dumps(policy_document(statements))


def _found(api: Api, kind: str, name: str, item: Mapping[str, Any], tags: dict[str, str]) -> Found:
    created = item["CreateDate"].isoformat() if "CreateDate" in item else ""
    return Found(
        key=tags.get(TAG_KEY, kind),
        kind=kind,
        place=api.region,
        attributes={"id": name, "name": name, "arn": item["Arn"], "created": created},
        tags=tags,
        state="available",
    )
