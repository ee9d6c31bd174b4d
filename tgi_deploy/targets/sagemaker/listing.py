"""Lists and describes SageMaker's resources, whose lists can be filtered by a part of the name, but not by tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tgi_deploy.reconcile.errors import ResourceNotFoundError
from tgi_deploy.targets.aws.api import carries, each, tags_of
from tgi_deploy.targets.sagemaker.names import PREFIX, endpoint_name, place_of
from tgi_deploy.values.resource import TAG_KEY, TAG_NAME, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tgi_deploy.targets.aws.api import Api
    from tgi_deploy.targets.reply import Reply

SERVICE: Final = "sagemaker"
_T = TypeVar("_T")


def described(
    api: Api, method: str, doing: str, read: Callable[[Reply], _T], *, service: str = SERVICE, **parameters: str
) -> _T | None:
    """Return what `read` finds in a description; None if the resource does not exist."""
    try:
        return api.ask(method, doing, read, service=service, **parameters)
    except ResourceNotFoundError:
        return None


def found_with_tags(
    api: Api, kind: str, listed: Iterable[dict[str, str]], tags_of_one: Callable[[str], dict[str, str] | None]
) -> list[Found]:
    """Return the resources of a kind by their attributes, sorted by id, without those that were deleted in between.

    `tags_of_one` returns the tags for an ARN; None if the resource no longer exists.
    """
    known = [(item, tags_of_one(item["arn"])) for item in sorted(listed, key=lambda item: item["id"])]
    place = place_of(api.region)
    return [
        Found(key=tags.get(TAG_KEY, kind), kind=kind, place=place, attributes=item, tags=tags, state="available")
        for item, tags in known
        if tags is not None
    ]


def listed_with_tags(
    api: Api, tags: Mapping[str, str], method: str, member: str, name: str
) -> list[tuple[str, str, str, dict[str, str]]]:
    """Return name, ARN, creation time and tags of the resources with these tags; `name` begins the members' names."""

    def read(item: Reply) -> tuple[str, str, str]:
        arn = item.text(f"{name}Arn", prefix="arn:")
        return item.text(f"{name}Name"), arn, item.moment("CreationTime")

    deployment = tags.get(TAG_NAME)
    begin = endpoint_name(deployment) if deployment else PREFIX
    listed = api.list(method, f"listing SageMaker's {member}", each(member, read), service=SERVICE,
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
    except ResourceNotFoundError:
        return None
    return {name: value for page in pages for name, value in page.items()} if pages else None
