"""One region's API with errors translated and the right patience: what every kind of resource is made with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from tgi_deploy.adapters.aws.errors import ErrorTable, translate
from tgi_deploy.reconcile.errors import GoneError, NotYetError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.adapters.aws.session import SessionFactory
    from tgi_deploy.adapters.retry import Retrier

Answer = dict[str, Any]
PAGE_SIZE: Final = 200  # the most that DescribeLaunchTemplates gives; the others give up to 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """Calls by the SDK's method name. `doing` is how a message calls it: "creating a security group"."""

    region: str
    sessions: SessionFactory
    retrier: Retrier

    @property
    def table(self) -> ErrorTable:
        return self.sessions.table

    def ask(self, method: str, doing: str, *, service: str = "ec2", **parameters: Any) -> Answer:  # noqa: ANN401 -- the API's own
        """A call that is harmless to repeat. A missing thing raises GoneError at once."""
        return self._send(service, method, doing, parameters, creating=False)

    def remove(self, method: str, doing: str, **parameters: Any) -> None:  # noqa: ANN401 -- the API's own
        """A deleting call. What doesn't exist is as good as deleted."""
        with suppress(GoneError, NotYetError):
            self.ask(method, doing, **parameters)

    def list(self, method: str, key: str, doing: str, *, service: str = "ec2", **parameters: Any) -> list[Answer]:  # noqa: ANN401 -- the API's own
        """All pages of a describing call: the items under `key`. What doesn't exist gives an empty list."""
        pages = self.sessions.client(service, self.region).get_paginator(method).paginate(**parameters)
        try:
            return [item for page in pages for item in page[key]]
        except (ClientError, BotoCoreError) as error:
            failure = self._translated(error, doing, service, creating=False)
            if isinstance(failure, GoneError | NotYetError):
                return []
            raise failure from error

    def change(self, method: str, doing: str, *, service: str = "ec2", **parameters: Any) -> Answer:  # noqa: ANN401 -- the API's own
        """A call that makes something: one attempt of the SDK's; throttled or too early, the same request again."""
        return self.retrier.call(lambda: self._send(service, method, doing, parameters, creating=True))

    def _send(self, service: str, method: str, doing: str, parameters: Mapping[str, Any], *, creating: bool) -> Answer:
        client = self.sessions.client(service, self.region, creating=creating)
        try:
            answer: Answer = getattr(client, method)(**parameters)
        except (ClientError, BotoCoreError) as error:
            raise self._translated(error, doing, service, creating=creating) from error
        return answer

    def _translated(self, error: Exception, doing: str, service: str, *, creating: bool) -> Exception:
        return translate(error, self.table, doing=f"{doing} in {self.region}", service=service, creating=creating)


def before_visible(api: Api, request: Callable[[], Answer]) -> Answer:
    """A call about something just made: what is not there counts as not visible yet, for a minute."""

    def patiently() -> Answer:
        try:
            return request()
        except GoneError as error:
            raise NotYetError(error.message) from error

    return api.retrier.call(patiently)


def by_tags(tags: Mapping[str, str]) -> list[Answer]:
    """Filters of a describing call. An empty value asks only that the tag be there."""
    return [
        {"Name": f"tag:{name}", "Values": [value]} if value else {"Name": "tag-key", "Values": [name]}
        for name, value in tags.items()
    ]


def carries(known: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """The same question as `by_tags` asks, for services that can't be asked it."""
    return all(name in known and known[name] == (value or known[name]) for name, value in wanted.items())


def paged(tags: Mapping[str, str]) -> Answer:
    """The parameters of a describing call for everything with these tags, in pages of a size that every kind takes."""
    return {"Filters": by_tags(tags), "PaginationConfig": {"PageSize": PAGE_SIZE}}


def tag_list(tags: Mapping[str, str]) -> list[Answer]:
    return [{"Key": name, "Value": tags[name]} for name in sorted(tags)]


def tag_specifications(tags: Mapping[str, str], *kinds: str) -> list[Answer]:
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]


def tags_of(item: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a described thing; EC2 says TagSet for network interfaces."""
    listed = item.get("Tags") or item.get("TagSet") or []
    return {tag["Key"]: tag["Value"] for tag in listed}
