"""Models: the container of a revision. Tags and names of all kinds of SageMaker's resources.

Properties of a model: name, role (ARN), container (`PrimaryContainer` of CreateModel), secrets (variables of the
container → references such as `env:HF_TOKEN`, never the values themselves). `attributes["id"]` begins with the kind,
since the configuration of the same revision has the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import GoneError
from tgi_deploy.targets.aws.api import Api, carries, each, tag_list, tags_of
from tgi_deploy.targets.sagemaker.names import PREFIX, endpoint_name, place_of
from tgi_deploy.values.resource import TAG_KEY, TAG_NAME, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.reply import Reply

MODEL: Final = "model"
SERVICE: Final = "sagemaker"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Models:
    """`secret_of` returns the secret that a reference names."""

    api: Api
    secret_of: Callable[[str], Secret]
    rare: ClassVar = False
    runs_engines: ClassVar = False
    unrepeatable: ClassVar = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        listed = listed_with_tags(self.api, tags, "list_models", "Models", "Model")
        return tuple(self._found(name, arn, created, own) for name, arn, created, own in listed)

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- this call takes no token; names are unique in a region
        secrets = {name: self.secret_of(reference) for name, reference in properties["secrets"].items()}
        container = dict(properties["container"])
        container["Environment"] = {
            **container["Environment"],
            **{name: secret.reveal() for name, secret in secrets.items()},
        }
        try:
            return self.api.change(
                "create_model",
                "creating a model",
                lambda reply: self._found(properties["name"], reply.text("ModelArn", prefix="arn:"), "", dict(tags)),
                service=SERVICE,
                ModelName=properties["name"],
                ExecutionRoleArn=properties["role"],
                PrimaryContainer=container,
                Tags=tag_list(tags),
            )
        except DeployError as error:  # in case the service quotes what it rejects
            text = error.message
            for secret in secrets.values():
                text = secret.scrub(text)
            raise (error if text == error.message else error.copy(message=text)) from None

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """A model can't be changed."""

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        name = name_of(attributes["id"])

        def read(reply: Reply) -> tuple[str, str]:
            return reply.text("ModelArn", prefix="arn:"), reply.moment("CreationTime")

        found = described(self.api, "describe_model", "reading a model", read, ModelName=name)
        tags = None if found is None else tags_of_arn(self.api, found[0])
        return None if found is None or tags is None else self._found(name, *found, tags)

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.api.remove("delete_model", "deleting a model", service=SERVICE, ModelName=name_of(attributes["id"]))

    def _found(self, name: str, arn: str, created: str, tags: dict[str, str]) -> Found:
        return Found(
            key=tags.get(TAG_KEY, MODEL),
            kind=MODEL,
            place=place_of(self.api.region),
            attributes={"id": f"{MODEL}/{name}", "name": name, "arn": arn, "created": created},
            tags=tags,
            state="available",
        )


def name_of(model_id: str) -> str:
    return model_id.rpartition("/")[2]


def described(api: Api, method: str, doing: str, read: Callable[[Reply], _T], **parameters: str) -> _T | None:
    """Return what `read` finds in a description; None if the resource does not exist."""
    try:
        return api.ask(method, doing, read, service=SERVICE, **parameters)
    except GoneError:
        return None


def listed_with_tags(
    api: Api, tags: Mapping[str, str], method: str, member: str, name: str
) -> list[tuple[str, str, str, dict[str, str]]]:
    """Return name, ARN, creation time and tags of the resources with these tags; `name` begins the members' names.

    Lists of SageMaker can be filtered by a part of the name, but not by tags.
    """

    def read(item: Reply) -> tuple[str, str, str]:
        arn = item.text(f"{name}Arn", prefix="arn:")
        return item.text(f"{name}Name"), arn, item.moment("CreationTime")

    deployment = tags.get(TAG_NAME)
    begin = endpoint_name(deployment) if deployment else PREFIX
    listed = api.list(method, f"looking for what SageMaker has ({member})", each(member, read), service=SERVICE,
                      NameContains=begin)  # fmt: skip
    found = []
    for known, arn, created in sorted(item for item in listed if item[0].startswith(begin)):
        own = tags_of_arn(api, arn)
        if own is not None and carries(own, tags):
            found.append((known, arn, created, own))
    return found


def tags_of_arn(api: Api, arn: str) -> dict[str, str] | None:
    """Return the tags of a resource; None if it was deleted in between."""
    try:
        pages = api.list("list_tags", "reading tags", lambda page: [tags_of(page)], service=SERVICE, ResourceArn=arn)
    except GoneError:
        return None
    return {name: value for page in pages for name, value in page.items()} if pages else None
