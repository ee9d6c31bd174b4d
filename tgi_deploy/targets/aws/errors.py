"""Translates botocore's exceptions. The classes of AWS's error codes are in `profiles/aws/errors.json`."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from botocore import exceptions as boto

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.reconcile.errors import (
    BadRequestError,
    ExistsError,
    InUseError,
    LostReplyError,
    NoCapacityError,
    NotYetError,
    PermissionDeniedError,
    QuotaError,
    ResourceNotFoundError,
    ThrottledError,
    TokenMismatchError,
)
from tgi_deploy.targets.reply import Reply, ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SERVER_ERROR: Final = 500
_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
# Codes of IAM denials; other codes of that class concern the account.
_DENIALS: Final = ("UnauthorizedOperation", "AccessDenied*", "403")
# SDK services that have another name in policies.
_PREFIXES: Final = {"service-quotas": "servicequotas"}
_DENIED_ACTION: Final = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)")
_DENIED_TO: Final = re.compile(r"User: (arn:[^\s<]+)")
_DENIED_ON: Final = re.compile(r"on resource:? (arn:[^\s<]+)")
_DENIED_WHY: Final = re.compile(r"(with an explicit deny[^.<]*)")
_CREDENTIALS_HINT: Final = "run 'aws configure' or 'aws sso login', name a profile with AWS_PROFILE, or use --sandbox"
_PROTECTED_HINT: Final = "disable its termination protection, then try again"
_NOT_MANAGED_HINT: Final = (
    "wait a minute if it has just booted; 'tgi-deploy up MODEL --tunnel' starts machines that answer sessions"
)
_NO_CREDENTIALS: Final = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
)
SDK_FAILURES: Final = (boto.ClientError, boto.BotoCoreError)
_NOTHING_SENT: Final = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)


class UnreadableReplyError(DeployError):
    """A reply that the cloud can't have sent, or that was cut off. The request can be repeated safely."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "cloud_unreachable",
            message,
            hint="a proxy or a login page may have answered for the cloud: check the network and AWS_ENDPOINT_URL, "
            "then run the command again; nothing is lost",
        )


@dataclass(frozen=True, slots=True)
class ErrorTable:
    """Patterns of error codes and their classes; the first match decides.

    `messages`: (code, part of the message, class), for codes with several meanings; they are checked first.
    """

    classes: tuple[tuple[str, tuple[str, ...]], ...]
    messages: tuple[tuple[str, str, str], ...]
    deaths: Mapping[str, str]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ErrorTable:
        """Return the table in `document` (the content of `profiles/aws/errors.json`)."""
        classes = tuple((name, tuple(entry["codes"])) for name, entry in document["classes"].items())
        messages = tuple(
            (entry["code"], entry["message_contains"].lower(), entry["class"]) for entry in document["messages"]
        )
        return cls(classes, messages, document["dead_after_accept"])

    def classify(self, code: str, message: str = "", *, status: int = 400) -> str:
        """Return one of the table's classes, or `unknown`."""
        for special, text, name in self.messages:
            if code == special and text in message.lower():
                return name
        for name, patterns in self.classes:
            if _matches(code, patterns):
                return name
        if status == _FORBIDDEN:
            return "permission"
        return "failing" if status >= _SERVER_ERROR else "unknown"


def _matches(code: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(code, pattern) for pattern in patterns)


@contextmanager
def translated(table: ErrorTable, *, doing: str, service: str, creating: bool = False) -> Iterator[None]:
    """Translate the SDK's exceptions and unreadable replies."""
    try:
        yield
    except (*SDK_FAILURES, ReplyError) as error:
        raise translate(error, table, doing=doing, service=service, creating=creating) from error


def translate(error: Exception, table: ErrorTable, *, doing: str, service: str, creating: bool) -> DeployError:
    """Return the error for an exception raised while `doing`."""
    if isinstance(error, boto.ClientError):
        return _from_code(error, table, doing, service, creating=creating)
    if isinstance(error, ReplyError):
        return _unreadable(doing, str(error), creating=creating)
    if isinstance(error, (*_NOTHING_SENT, boto.HTTPClientError)):
        return _from_connection(error, doing, creating=creating)
    return _not_sent(error, doing)


def _not_sent(error: Exception, doing: str) -> DeployError:
    if isinstance(error, _NO_CREDENTIALS):
        return DeployError("no_credentials", f"{doing} needs AWS credentials: {error}", hint=_CREDENTIALS_HINT)
    if isinstance(error, boto.ProfileNotFound):
        return InputError(
            "unknown_aws_profile",
            f"{doing} failed: {error}",
            hint="'aws configure list-profiles' lists them; AWS_PROFILE names one",
        )
    if isinstance(error, boto.ParamValidationError):
        return BadRequestError(f"{doing}: the request was not sent, because its parameters are invalid: {error}")
    return DeployError(
        "request_refused", f"{doing} failed: {error}", hint="try again; check AWS_ENDPOINT_URL if it is set"
    )


def _from_connection(error: Exception, doing: str, *, creating: bool) -> DeployError:
    if creating and not isinstance(error, _NOTHING_SENT):
        return LostReplyError(f"{doing}: the reply was lost ({error})")
    return DeployError(
        "cloud_unreachable",
        f"{doing} failed: the cloud does not answer ({error})",
        hint="check the network, the region and AWS_ENDPOINT_URL, then run the command again; nothing is lost",
    )


def _unreadable(doing: str, why: str, *, creating: bool) -> DeployError:
    if creating:
        return LostReplyError(f"{doing}: the reply is unreadable ({why})")
    return UnreadableReplyError(f"{doing} failed: the reply is unreadable ({why})")


def _from_code(error: boto.ClientError, table: ErrorTable, doing: str, service: str, *, creating: bool) -> DeployError:
    try:
        code, message, status = refusal_of(error)
    except ReplyError as unread:
        return _unreadable(doing, str(unread), creating=creating)
    text = f"{doing} failed: {code}: {message}"
    name, action = table.classify(code, message, status=status), iam_action(service, error.operation_name)
    if name == "permission" and _matches(code, _DENIALS):
        text, action = _denied(doing, code, message, action)
    return by_class(name, text, cause=code, action=action)


class Refusal(NamedTuple):
    """The cloud's reason for refusing a request; `status` is the HTTP status."""

    code: str
    message: str
    status: int


def refusal_of(error: boto.ClientError) -> Refusal:
    """Parse an error of the SDK.

    Raises ReplyError if the cloud can't have sent it: its codes are names, while for a proxy's page the SDK uses the
    HTTP status as the code. Failing services send such pages, too.
    """
    reply = Reply.of(error.response)
    status = reply.optional_part("ResponseMetadata").integer("HTTPStatusCode") or _BAD_REQUEST
    part = reply.optional_part("Error")
    code, message = part.optional_text("Code"), part.optional_text("Message")
    if not code[:1].isalpha() and status < _SERVER_ERROR and not _DENIED_ACTION.search(message):
        raise ReplyError(f"HTTP status {status} without an error code")
    return Refusal(code, message, status)


def iam_action(service: str, operation: str) -> str:
    """Return the IAM action of an SDK operation."""
    return f"{_PREFIXES.get(service, service)}:{operation}"


def _denied(doing: str, code: str, message: str, action: str) -> tuple[str, str]:
    """Return the message and the denied action. A call may need more than its own action: the cloud names it."""
    named = _DENIED_ACTION.search(message)
    denied = named[1] if named else action
    who = _DENIED_TO.search(message)
    what = f" on {on[1]}" if (on := _DENIED_ON.search(message)) else ""
    why = f", {because[1]}" if (because := _DENIED_WHY.search(message)) else ""
    whom = who[1] if who else "these credentials"
    return f"{doing} failed: {denied} is not allowed for {whom}{what}{why} ({code})", denied


def by_class(name: str, text: str, *, cause: str, action: str = "") -> DeployError:
    """Return an error of class `name` with the message `text`; `cause` is the cloud's code."""
    makers: dict[str, Callable[[], DeployError]] = {
        "throttled": lambda: ThrottledError(text),
        "failing": lambda: ThrottledError(text, unsure=True),
        "not_yet": lambda: NotYetError(text),
        "in_use": lambda: InUseError(text),
        "gone": lambda: ResourceNotFoundError(text),
        "stale_token": lambda: TokenMismatchError(text),
        "exists": lambda: ExistsError(text),
        "capacity": lambda: NoCapacityError(text, cause=cause),
        "quota": lambda: QuotaError(text, cause=cause),
        "permission": lambda: PermissionDeniedError(text, action=action),
        "credentials": lambda: DeployError("bad_credentials", text, hint=_CREDENTIALS_HINT),
        "not_managed": lambda: DeployError("not_managed", text, hint=_NOT_MANAGED_HINT),
        "protected": lambda: DeployError("protected", text, hint=_PROTECTED_HINT),
    }
    return makers.get(name, lambda: BadRequestError(text))()


def death_class(reason_code: str, table: ErrorTable) -> str:
    """Return the error class of the reason for a machine's termination."""
    known = table.deaths.get(reason_code)
    return known or table.classify(reason_code.partition(".")[2])
