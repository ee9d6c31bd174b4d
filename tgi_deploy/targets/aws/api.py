"""One region's AWS API with translated errors and retries, used by all handlers."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import PaginationError, ParamValidationError

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.errors import LostReplyError, NotYetError, ResourceNotFoundError, ThrottledError
from tgi_deploy.targets.aws.errors import SDK_FAILURES, ErrorTable, translated
from tgi_deploy.targets.reply import Reply, ReplyError, understood

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tgi_deploy.targets.aws.retry import Retrier
    from tgi_deploy.targets.aws.session import SessionFactory
    from tgi_deploy.values.resource import Found

CALLS: Final = logging.getLogger("tgi_deploy.calls")
_T = TypeVar("_T")
PAGE_SIZE: Final = 200  # the maximum of DescribeLaunchTemplates; the others allow 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """Calls by the SDK's method name. `doing` describes the call in messages: "creating a security group".

    `read` parses the reply and raises ReplyError for an unreadable one, which counts as no reply.
    """

    region: str
    sessions: SessionFactory
    retrier: Retrier

    @property
    def table(self) -> ErrorTable:
        return self.sessions.table

    def ask(
        self,
        method: str,
        doing: str,
        read: Callable[[Reply], _T],
        *,
        service: str = "ec2",
        **parameters: Any,  # noqa: ANN401 -- the API's own
    ) -> _T:
        """Send an idempotent call. A missing resource raises ResourceNotFoundError at once."""
        return self.retrier.read(lambda: self._send(service, method, doing, read, parameters, creating=False))

    def remove(self, method: str, doing: str, **parameters: Any) -> None:  # noqa: ANN401 -- the API's own
        """Send a deleting call. A resource that doesn't exist counts as deleted."""
        with suppress(ResourceNotFoundError, NotYetError):
            self.ask(method, doing, acknowledged, **parameters)

    def list(
        self,
        method: str,
        doing: str,
        read: Callable[[Reply], Iterable[_T]],
        *,
        service: str = "ec2",
        **parameters: Any,  # noqa: ANN401 -- the API's own
    ) -> tuple[_T, ...]:
        """Return what `read` finds on all pages of a describing call; nothing if the resource doesn't exist."""
        client = self.sessions.client(service, self.region)

        def pages() -> tuple[_T, ...]:
            with translated(self.table, doing=self._operation(doing), service=service):
                return read_pages(client, method, parameters, read)

        try:
            return self.retrier.read(pages)
        except (ResourceNotFoundError, NotYetError):
            return ()

    def change(
        self,
        method: str,
        doing: str,
        read: Callable[[Reply], _T],
        *,
        service: str = "ec2",
        once: bool = False,
        **parameters: Any,  # noqa: ANN401 -- the API's own
    ) -> _T:
        """Send a creating call without the SDK's retries; repeat it if throttled or too early.

        `once`: never repeat a call that may have taken effect. Raises LostReplyError instead, or if a call is refused
        after an earlier one that may have taken effect.
        """
        unsure = list[ThrottledError]()

        def send() -> _T:
            try:
                return self._send(service, method, doing, read, parameters, creating=True)
            except ThrottledError as error:
                unsure.extend([error] if error.unsure else [])
                if once and unsure:
                    raise LostReplyError(error.message) from error
                raise

        try:
            return self.retrier.call(send)
        except DeployError as error:
            if unsure and error.refused:
                raise LostReplyError(f"{error.message}; before that, {unsure[0].message}") from error
            raise

    def _send(
        self,
        service: str,
        method: str,
        doing: str,
        read: Callable[[Reply], _T],
        parameters: Mapping[str, Any],
        *,
        creating: bool,
    ) -> _T:
        client = self.sessions.client(service, self.region, creating=creating)
        with translated(self.table, doing=self._operation(doing), service=service, creating=creating):
            return read_reply(client, method, parameters, read)

    def _operation(self, doing: str) -> str:
        return f"{doing} in {self.region}"


def _log(client: Any, method: str) -> None:  # noqa: ANN401 -- boto3 makes clients at run time
    """Log the call for --verbose, without its parameters, which may hold secrets."""
    if CALLS.isEnabledFor(logging.INFO):
        CALLS.info("%s %s in %s", client.meta.service_model.service_name, method, client.meta.region_name)


def read_reply(client: Any, method: str, parameters: Mapping[str, Any], read: Callable[[Reply], _T]) -> _T:  # noqa: ANN401 -- boto3 makes clients at run time
    """Send one request. Raises ClientError, BotoCoreError or ReplyError."""
    _log(client, method)
    send = getattr(client, method)
    with understood(SDK_FAILURES):
        answer = send(**parameters)
    return read(Reply.of(answer))


def read_pages(
    client: Any,  # noqa: ANN401 -- as above
    method: str,
    parameters: Mapping[str, Any],
    read: Callable[[Reply], Iterable[_T]],
) -> tuple[_T, ...]:
    """Like `read_reply`, for all pages."""
    _log(client, method)
    pages = client.get_paginator(method).paginate(**parameters)
    answers: list[object] = []
    with understood(SDK_FAILURES):
        try:
            answers.extend(pages)
        except (PaginationError, ParamValidationError) as error:
            if not answers:
                raise
            raise ReplyError("its pagination token is invalid") from error
    return tuple(item for answer in answers for item in read(Reply.of(answer)))


def acknowledged(reply: Reply) -> None:
    """Check a reply without content: all replies of the cloud have a request id."""
    reply.part("ResponseMetadata").text("RequestId")


def each(member: str, read: Callable[[Reply], _T]) -> Callable[[Reply], tuple[_T, ...]]:
    """Read all items of a page's list."""
    return lambda page: tuple(read(item) for item in page.parts(member))


def before_visible(api: Api, request: Callable[[], _T]) -> _T:
    """Send a request about a new resource: for a minute, "not found" means that it is not visible yet."""

    def retried() -> _T:
        try:
            return request()
        except ResourceNotFoundError as error:
            raise NotYetError(error.message) from error

    return api.retrier.call(retried)


def by_tags(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the filters of a describing call. An empty value only requires the tag to exist."""
    return [
        {"Name": f"tag:{name}", "Values": [value]} if value else {"Name": "tag-key", "Values": [name]}
        for name, value in tags.items()
    ]


def carries(known: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether the tags match, for services that can't filter by tags."""
    return all(name in known and known[name] == (value or known[name]) for name, value in wanted.items())


def paged(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a describing call for these tags, with a page size that all kinds accept."""
    return {"Filters": by_tags(tags), "PaginationConfig": {"PageSize": PAGE_SIZE}}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Key": name, "Value": tags[name]} for name in sorted(tags)]


def tag_specifications(tags: Mapping[str, str], *kinds: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]


def tags_of(item: Reply, member: str = "Tags") -> dict[str, str]:
    """Return a resource's tags; a reply omits the member if there are none."""
    return read_tags(item.optional_parts(member))


def read_tags(listed: Iterable[Reply]) -> dict[str, str]:
    return {tag.text("Key"): tag.optional_text("Value") for tag in listed}


def tagged(found: Found, tags: Mapping[str, str]) -> Found:
    """Return the resource. Raises ReplyError if it lacks the requested tags."""
    if not carries(found.tags, tags):
        raise ReplyError(f"{found.kind} {found.id} lacks the requested tags")
    return found
