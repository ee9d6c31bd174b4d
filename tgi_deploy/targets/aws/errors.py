"""What botocore raises → what the caller should do. EC2's codes and their classes are `profiles/aws/errors.json`."""

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
    GoneError,
    InUseError,
    LostReplyError,
    NoCapacityError,
    NotYetError,
    PermissionDeniedError,
    QuotaError,
    ThrottledError,
    TokenMismatchError,
)
from tgi_deploy.targets.reply import Reply, ReplyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SERVER_ERROR: Final = 500
_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
# Codes of IAM's own refusals; other codes of that class are about the account.
_DENIALS: Final = ("UnauthorizedOperation", "AccessDenied*", "403")
# SDK services that policies call otherwise.
_PREFIXES: Final = {"service-quotas": "servicequotas"}
_DENIED_ACTION: Final = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)")
_DENIED_TO: Final = re.compile(r"User: (arn:[^\s<]+)")
_DENIED_ON: Final = re.compile(r"on resource:? (arn:[^\s<]+)")
_DENIED_WHY: Final = re.compile(r"(with an explicit deny[^.<]*)")
_CREDENTIALS_HINT: Final = "run 'aws configure' or 'aws sso login', name a profile with AWS_PROFILE, or use --sandbox"
_PROTECTED_HINT: Final = "switch its termination protection off, then try again"
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
    """A reply that only something else can have sent, or that was cut on the way: ask again, harmlessly."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "cloud_unreachable",
            message,
            hint="a proxy or a login page may answer in the cloud's place: check the network and AWS_ENDPOINT_URL; "
            "nothing is forgotten: run the command again",
        )


@dataclass(frozen=True, slots=True)
class ErrorTable:
    """The classes of error codes, in order; the first pattern that fits decides."""

    classes: tuple[tuple[str, tuple[str, ...]], ...]
    not_yet_messages: tuple[tuple[str, str], ...]
    deaths: Mapping[str, str]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ErrorTable:
        """The table in `document` (the content of `profiles/aws/errors.json`)."""
        classes = tuple((name, tuple(entry["codes"])) for name, entry in document["classes"].items())
        early = tuple((entry["code"], entry["message_contains"].lower()) for entry in document["not_yet_messages"])
        return cls(classes, early, document["dead_after_accept"])

    def classify(self, code: str, message: str = "", *, status: int = 400) -> str:
        """One of the table's classes, or `unknown`."""
        if any(code == special and text in message.lower() for special, text in self.not_yet_messages):
            return "not_yet"
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
    """Raise what the SDK raises, and what can't be read, as errors that say what to do."""
    try:
        yield
    except (*SDK_FAILURES, ReplyError) as error:
        raise translate(error, table, doing=doing, service=service, creating=creating) from error


def translate(error: Exception, table: ErrorTable, *, doing: str, service: str, creating: bool) -> DeployError:
    """The error that says what to do about `error`, which came of `doing`."""
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
        return InputError("unknown_aws_profile", f"{doing} failed: {error}", hint="check AWS_PROFILE")
    if isinstance(error, boto.ParamValidationError):
        return BadRequestError(f"{doing} was not sent, its parameters are wrong: {error}")
    return DeployError("cloud_error", f"{doing} failed: {error}", hint="try again; check AWS_ENDPOINT_URL if it is set")


def _from_connection(error: Exception, doing: str, *, creating: bool) -> DeployError:
    if creating and not isinstance(error, _NOTHING_SENT):
        return LostReplyError(f"{doing}: the reply got lost ({error})")
    return DeployError(
        "cloud_unreachable",
        f"{doing} failed: the cloud does not answer ({error})",
        hint="check the network, the region and AWS_ENDPOINT_URL; nothing is forgotten: run the command again",
    )


def _unreadable(doing: str, why: str, *, creating: bool) -> DeployError:
    if creating:
        return LostReplyError(f"{doing}: the reply can't be understood ({why})")
    return UnreadableReplyError(f"{doing} failed: the reply can't be understood ({why})")


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
    """Why the cloud refuses a request; `status` is that of HTTP."""

    code: str
    message: str
    status: int


def refusal_of(error: boto.ClientError) -> Refusal:
    """What an error of the SDK says.

    Raises ReplyError where it can't be the cloud that refuses: its codes are names. For a page of something in between
    the SDK makes a code of the status; a service that fails sends such pages, too.
    """
    reply = Reply.of(error.response)
    status = reply.optional_part("ResponseMetadata").integer("HTTPStatusCode") or _BAD_REQUEST
    said = reply.optional_part("Error")
    code, message = said.optional_text("Code"), said.optional_text("Message")
    if not code[:1].isalpha() and status < _SERVER_ERROR and not _DENIED_ACTION.search(message):
        raise ReplyError(f"HTTP status {status} without a code of the cloud's")
    return Refusal(code, message, status)


def iam_action(service: str, operation: str) -> str:
    """The action as policies call it, of an operation of the SDK's service."""
    return f"{_PREFIXES.get(service, service)}:{operation}"


def _denied(doing: str, code: str, message: str, action: str) -> tuple[str, str]:
    """What is not allowed to whom, and the action. A call may need more actions than its own: the cloud names which."""
    named = _DENIED_ACTION.search(message)
    told = named[1] if named else action
    who = _DENIED_TO.search(message)
    what = f" on {on[1]}" if (on := _DENIED_ON.search(message)) else ""
    why = f", {because[1]}" if (because := _DENIED_WHY.search(message)) else ""
    whom = who[1] if who else "these credentials"
    return f"{doing} failed: {told} is not allowed for {whom}{what}{why} ({code})", told


def by_class(name: str, text: str, *, cause: str, action: str = "") -> DeployError:
    """An error of class `name` that says `text`; `cause` is the cloud's own code."""
    makers: dict[str, Callable[[], DeployError]] = {
        "throttled": lambda: ThrottledError(text),
        "failing": lambda: ThrottledError(text, unsure=True),
        "not_yet": lambda: NotYetError(text),
        "in_use": lambda: InUseError(text),
        "gone": lambda: GoneError(text),
        "stale_token": lambda: TokenMismatchError(text),
        "exists": lambda: ExistsError(text),
        "capacity": lambda: NoCapacityError(text, cause=cause),
        "quota": lambda: QuotaError(text, cause=cause),
        "permission": lambda: PermissionDeniedError(text, action=action),
        "credentials": lambda: DeployError("bad_credentials", text, hint=_CREDENTIALS_HINT),
        "protected": lambda: DeployError("protected", text, hint=_PROTECTED_HINT),
    }
    return makers.get(name, lambda: BadRequestError(text))()


def death_class(reason_code: str, table: ErrorTable) -> str:
    """The class of the reason that a machine died of."""
    known = table.deaths.get(reason_code)
    return known or table.classify(reason_code.partition(".")[2])
