"""Roles with one policy each, and the instance profiles that attach them to machines.

IAM is global: the path `ROOT/REGION/DEPLOYMENT/` limits a search to the roles of one target in one region.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from tgi_deploy.catalog.actions import policy_document, read_actions
from tgi_deploy.reconcile.errors import BadRequestError, ResourceNotFoundError
from tgi_deploy.targets.aws.api import Api, acknowledged, before_visible, carries, each, tag_list, tags_of
from tgi_deploy.targets.reply import ReplyError
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tgi_deploy.targets.reply import Reply

_T = TypeVar("_T")
ROLE: Final = "role"
PROFILE: Final = "instance-profile"
POLICY: Final = "tgi-deploy"
ROOT: Final = "/tgi-deploy"
# In an ARN: arn:partition:service:region:account:resource.
_COLONS: Final = 5


@dataclass(frozen=True, slots=True)
class Roles:
    """Properties: name, deployment, trust (who may assume it), statements (what it may do).

    In trust and statements `{partition}` and `{account}` are replaced by the role's own. Every role carries the
    permissions boundary of `<service>/actions.json`, which an administrator of the account creates. `root` is where
    a target's paths begin, `place` its place in the region: by default the region itself.
    """

    api: Api
    root: str = ROOT
    place: str = ""
    service: str = "aws"
    rare: ClassVar = True
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        path = _path(self.api, tags, self.root)
        listed = self.api.list(
            "list_roles", "looking for roles", each("Roles", _located("RoleName")), service="iam", PathPrefix=path
        )
        names = _names(listed, path, tags)
        found = [item for name in names if (item := self.read({"id": name})) is not None]
        return tuple(item for item in found if carries(item.tags, tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token; names are unique in an account
        account, partition = self.api.ask("get_caller_identity", "reading the account id", _caller, service="sts")
        boundary = read_actions(self.service).boundary
        try:
            return self.api.change(
                "create_role",
                "creating a role",
                lambda reply: self._found(reply.part("Role"), dict(tags)),
                service="iam",
                Path=_path(self.api, {TAG_NAME: properties["deployment"]}, self.root),
                RoleName=properties["name"],
                Description="created by tgi-deploy",
                AssumeRolePolicyDocument=_document([properties["trust"]]).replace("{partition}", partition),
                PermissionsBoundary=boundary.arn(account, partition),
                Tags=tag_list(tags),
            )
        except ResourceNotFoundError as error:  # the boundary is the only resource that the call refers to
            raise BadRequestError(
                f"{error.message.rstrip('.')}: every created role carries the account's policy {boundary.name!r}",
                code="boundary_missing",
                hint=f"run once, as an administrator of the account: {boundary.creation}",
            ) from None

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Set its policy, with the account number from the role's ARN."""
        _, partition, _, _, account, _ = attributes["arn"].split(":", 5)
        policy = _document(properties["statements"]).replace("{partition}", partition).replace("{account}", account)
        before_visible(
            self.api,
            lambda: self.api.ask(
                "put_role_policy",
                "setting a role's policy",
                acknowledged,
                service="iam",
                RoleName=attributes["id"],
                PolicyName=POLICY,
                PolicyDocument=policy,
            ),
        )

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        def read(reply: Reply) -> Found:
            return self._found(reply.part("Role"), tags_of(reply.part("Role")))

        try:
            return self.api.ask("get_role", "reading a role", read, service="iam", RoleName=attributes["id"])
        except ResourceNotFoundError:
            return None

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Delete it with all its policies, including those that others added."""
        name = attributes["id"]
        for policy in self._policies("list_role_policies", lambda page: page.texts("PolicyNames"), name):
            self._remove("delete_role_policy", RoleName=name, PolicyName=policy)
        arns = each("AttachedPolicies", lambda item: item.text("PolicyArn"))
        for arn in self._policies("list_attached_role_policies", arns, name):
            self._remove("detach_role_policy", RoleName=name, PolicyArn=arn)
        self._remove("delete_role", RoleName=name)

    def _policies(self, method: str, read: Callable[[Reply], Iterable[str]], name: str) -> tuple[str, ...]:
        return self.api.list(method, "reading a role's policies", read, service="iam", RoleName=name)

    def _remove(self, method: str, **parameters: str) -> None:
        self.api.remove(method, "deleting a role", service="iam", **parameters)

    def _found(self, item: Reply, tags: dict[str, str]) -> Found:
        return _found(self.place or self.api.region, ROLE, item.text("RoleName"), item, tags)


@dataclass(frozen=True, slots=True)
class InstanceProfiles:
    """Properties: name, deployment, role."""

    api: Api
    rare: ClassVar = True
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        path, located = _path(self.api, tags), each("InstanceProfiles", _located("InstanceProfileName"))
        listed = self.api.list(
            "list_instance_profiles", "looking for instance profiles", located, service="iam", PathPrefix=path
        )
        names = _names(listed, path, tags)
        found = [item for name in names if (item := self.read({"id": name})) is not None]
        return tuple(item for item in found if carries(item.tags, tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token; names are unique in an account
        return self.api.change(
            "create_instance_profile",
            "creating an instance profile",
            lambda reply: self._found(reply.part("InstanceProfile"), dict(tags)),
            service="iam",
            Path=_path(self.api, {TAG_NAME: properties["deployment"]}),
            InstanceProfileName=properties["name"],
            Tags=tag_list(tags),
        )

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Add the role unless the profile already has it: AWS rejects a second call."""
        name, role = attributes["id"], properties["role"]
        if role in self._roles(name):
            return
        try:
            before_visible(
                self.api,
                lambda: self.api.ask(
                    "add_role_to_instance_profile",
                    "adding a role to an instance profile",
                    acknowledged,
                    service="iam",
                    InstanceProfileName=name,
                    RoleName=role,
                ),
            )
        except BadRequestError:
            if role not in self._roles(name):
                raise

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        return self._read(attributes["id"], lambda item: self._found(item, tags_of(item)))

    def delete(self, attributes: Mapping[str, str]) -> None:
        name = attributes["id"]
        for role in self._roles(name):
            self._remove("remove_role_from_instance_profile", InstanceProfileName=name, RoleName=role)
        self._remove("delete_instance_profile", InstanceProfileName=name)

    def _remove(self, method: str, **parameters: str) -> None:
        self.api.remove(method, "deleting an instance profile", service="iam", **parameters)

    def _roles(self, name: str) -> tuple[str, ...]:
        return self._read(name, each("Roles", lambda role: role.text("RoleName"))) or ()

    def _read(self, name: str, read: Callable[[Reply], _T]) -> _T | None:
        """Return it; None if unknown."""
        try:
            return self.api.ask(
                "get_instance_profile",
                "reading an instance profile",
                lambda reply: read(reply.part("InstanceProfile")),
                service="iam",
                InstanceProfileName=name,
            )
        except ResourceNotFoundError:
            return None

    def _found(self, item: Reply, tags: dict[str, str]) -> Found:
        return _found(self.api.region, PROFILE, item.text("InstanceProfileName"), item, tags)


def _path(api: Api, tags: Mapping[str, str], root: str = ROOT) -> str:
    """Return the path of this region's resources, or of one deployment's if the tags name it."""
    name = tags.get(TAG_NAME)
    return f"{root}/{api.region}/{name}/" if name else f"{root}/{api.region}/"


def _located(name: str) -> Callable[[Reply], tuple[str, str]]:
    """Return the path and name of a listed resource; `name` is the member that holds the name."""
    return lambda item: (item.text("Path"), item.text(name))


def _names(listed: Iterable[tuple[str, str]], path: str, tags: Mapping[str, str]) -> list[str]:
    """Return the names of those that may have the tags: lists omit tags, but names contain the deployment's id."""
    identity = tags.get(TAG_ID, "")
    return sorted(name for at, name in listed if at.startswith(path) and identity in name)


def _caller(reply: Reply) -> tuple[str, str]:
    """Return the account number and its partition."""
    return reply.text("Account"), reply.text("Arn", prefix="arn:").split(":")[1]


def _document(statements: list[dict[str, Any]]) -> str:
    return json.dumps(policy_document(statements))


def _found(place: str, kind: str, name: str, item: Reply, tags: dict[str, str]) -> Found:
    arn = item.text("Arn", prefix="arn:")
    if arn.count(":") < _COLONS:
        raise ReplyError("Arn has no account")
    return Found(
        key=tags.get(TAG_KEY, kind),
        kind=kind,
        place=place,
        attributes={
            "id": name,
            "name": name,
            "arn": arn,
            "created": item.moment("CreateDate"),
        },
        tags=tags,
        state="available",
    )
