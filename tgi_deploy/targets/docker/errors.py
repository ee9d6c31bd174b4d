"""Translates errors of Docker hosts, by the messages in `profiles/docker/errors.json`."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from docker import errors as docker_errors

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.reconcile.errors import BadRequestError, InUseError, LostReplyError, ResourceNotFoundError
from tgi_deploy.targets.reply import ReplyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The exceptions of Docker's HTTP library, whichever it is, are OSErrors.
FAILURES: Final = (docker_errors.DockerException, OSError)
_REPLY_LOST: Final = frozenset({"ReadTimeout", "ChunkedEncodingError", "ConnectionError"})
_UNREADABLE: Final = frozenset({"JSONDecodeError", "ContentDecodingError"})
# The operating system's errors for a failed connection.
_NOTHING_SENT: Final = (ConnectionRefusedError, FileNotFoundError, PermissionError, socket.gaierror)
_BODY_CHARS: Final = 160
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_FORBIDDEN: Final = 403
_IN_USE: Final = re.compile(
    r"in use|is being used|removal of container .* is already in progress|has active endpoints", re.IGNORECASE
)


class HostRefusedError(BadRequestError):
    """The host rejects the request itself, for a reason with a code and a remedy."""

    def __init__(self, code: str, message: str, *, hint: str | None) -> None:
        DeployError.__init__(self, code, message, hint=hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A message of the host or of a registry, with its code and remedy."""

    code: str
    pattern: re.Pattern[str]
    hint: str


@dataclass(frozen=True, slots=True)
class ErrorTable:
    refusals: tuple[Refusal, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ErrorTable:
        """Return the table in `document` (the content of `profiles/docker/errors.json`); the first match decides."""
        return cls(
            tuple(
                Refusal(code=row["code"], pattern=re.compile(row["match"], re.IGNORECASE), hint=row["hint"])
                for row in document["refusals"]
            )
        )

    def refusal(self, message: str) -> Refusal | None:
        return next((row for row in self.refusals if row.pattern.search(message)), None)


def translate(error: Exception, table: ErrorTable, *, doing: str, url: str, creating: bool = False) -> DeployError:
    """Return the error for an exception raised while `doing` on the host at `url`."""
    if isinstance(error, docker_errors.APIError) and is_from_daemon(error):
        return _refused(error, table, doing)
    if isinstance(error, (ReplyError, docker_errors.APIError)) or type(error).__name__ in _UNREADABLE:
        return _unreadable(error, doing, url, creating=creating)
    cause = next(_os_errors(error), None)
    if isinstance(cause, PermissionError):
        return InputError(
            "docker_permission",
            f"{doing}: this user has no permission to use the Docker host at {url}",
            hint="join the group 'docker' ('sudo usermod -aG docker $USER'), log in again, or use one of your contexts",
        )
    if creating and type(error).__name__ in _REPLY_LOST and not isinstance(cause, _NOTHING_SENT):
        return LostReplyError(f"{doing}: the reply was lost ({error})")
    if isinstance(error, docker_errors.TLSParameterError):
        return InputError(
            "docker_tls", f"{doing}: {error}", hint="check DOCKER_CERT_PATH, or the context's certificates"
        )
    return DeployError(
        "docker_unreachable",
        f"{doing}: no Docker daemon answers at {url} ({cause or error})",
        hint="start it ('sudo systemctl start docker'), or name another with DOCKER_HOST or DOCKER_CONTEXT",
    )


def is_from_daemon(error: docker_errors.APIError) -> bool:
    """Return whether the error comes from the Docker daemon, whose errors are JSON, rather than a proxy."""
    return str(error.response.headers.get("Content-Type", "")).startswith("application/json")


def _unreadable(error: Exception, doing: str, url: str, *, creating: bool) -> DeployError:
    text = f"HTTP status {error.status_code}" if isinstance(error, docker_errors.APIError) else str(error)
    why = f"the server at {url} is not a Docker daemon, or its reply was cut off ({text[:_BODY_CHARS]})"
    if creating:
        return LostReplyError(f"{doing}: {why}")
    hint = "check DOCKER_HOST, DOCKER_CONTEXT and any proxy, then run the command again"
    return DeployError("docker_unreachable", f"{doing}: {why}", hint=hint)


def _refused(error: docker_errors.APIError, table: ErrorTable, doing: str) -> DeployError:
    text = str(error.explanation or error)
    return refused(text, table, doing=doing, status=error.status_code)


def refused(text: str, table: ErrorTable, *, doing: str, status: int | None = None) -> DeployError:
    """Return the error for a message of the host, or of a registry through it."""
    message = f"{doing}: {' '.join(text.split())}"
    row = table.refusal(text)
    if row is not None:
        return HostRefusedError(row.code, message, hint=row.hint)
    if status in {_CONFLICT, _FORBIDDEN} and _IN_USE.search(text):
        return InUseError(message)
    if status == _NOT_FOUND:
        return ResourceNotFoundError(message)
    return BadRequestError(message, hint="the Docker host's log ('journalctl -u docker') may have details")


def _os_errors(error: BaseException | None) -> Iterator[OSError]:
    """Yield the operating system's errors, however deeply wrapped."""
    seen: list[BaseException] = []
    pending = [error]
    while pending:
        item = pending.pop(0)
        if item is None or item in seen:
            continue
        seen.append(item)
        if isinstance(item, OSError) and item.errno is not None:
            yield item
        pending += [*(arg for arg in item.args if isinstance(arg, BaseException)), item.__cause__, item.__context__]
