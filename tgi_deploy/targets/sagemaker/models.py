"""Models: the container of a revision.

Properties of a model: name, role (ARN), container (`PrimaryContainer` of CreateModel), secrets (variables of the
container → references such as `env:HF_TOKEN`, never the values themselves). `attributes["id"]` begins with the kind,
since the configuration of the same revision has the same name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import BadRequestError, NotYetError
from tgi_deploy.targets.aws.api import Api, tag_list
from tgi_deploy.targets.sagemaker.listing import SERVICE, described, listed_with_tags, tags_of_arn
from tgi_deploy.targets.sagemaker.names import place_of
from tgi_deploy.values.resource import TAG_KEY, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.reply import Reply

MODEL: Final = "model"


@dataclass(frozen=True, slots=True)
class Models:
    """Creates, finds and deletes models. `secret_of` returns the secret that a reference names."""

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
        except DeployError as error:
            text = error.message
            for secret in secrets.values():  # in case the service quotes what it rejects
                text = secret.scrub(text)
            if isinstance(error, NotYetError):  # after a minute, it is not because the role is new
                hint = "allow sagemaker.amazonaws.com to assume the role, in its trust policy, or use --create-role"
                raise BadRequestError(text, code="role_unusable", hint=hint) from None
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
