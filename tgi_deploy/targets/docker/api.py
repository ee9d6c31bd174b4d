"""One Docker host: connects on first use and translates errors."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import docker
from docker import errors as docker_errors
from docker.tls import TLSConfig

from tgi_deploy.targets.docker.errors import FAILURES, is_from_daemon, translate
from tgi_deploy.targets.reply import Reply, ReplyError, understood

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.targets.docker.endpoint import Endpoint
    from tgi_deploy.targets.docker.errors import ErrorTable

CALLS: Final = logging.getLogger("tgi_deploy.calls")
_T = TypeVar("_T")
_TIMEOUT_S: Final = 60
# A healthy daemon answers at once; a frozen one accepts the connection and stays silent.
_FIRST_ANSWER_S: Final = 15
_UNIX: Final = "unix://"
_MISSING: Final = object()
_CONFLICT: Final = 409


@dataclass(frozen=True, kw_only=True)
class Api:
    """`environ` holds the values of secrets, read when they are needed."""

    endpoint: Endpoint
    table: ErrorTable
    environ: Mapping[str, str] = field(repr=False)
    connect: Callable[[Endpoint], Any] | None = None

    @property
    def place(self) -> str:
        return self.endpoint.place

    @cached_property
    def client(self) -> Any:  # noqa: ANN401 -- docker's own client, which has no types
        """Raises `docker_unreachable`, `docker_permission` or `docker_tls`; a failed host is not contacted again."""
        if self._failed:
            raise self._failure_of(self._failed[0])
        try:
            with understood(FAILURES):
                return (self.connect or _connect)(self.endpoint)
        except (*FAILURES, ReplyError) as error:
            self._failed.append(error)
            raise self._failure_of(error) from error

    @cached_property
    def _failed(self) -> list[Exception]:
        """The error of a failed connection."""
        return []

    def _failure_of(self, error: Exception) -> Exception:
        return self.failure(error, "reading Docker's version")

    def ask(
        self, doing: str, call: Callable[[Any], object], read: Callable[[Any], _T], *, creating: bool = False
    ) -> _T:
        """Return `read(reply)` for the reply to `call(client)`.

        Translates exceptions of the client, and ReplyError from `read`.
        """
        client = self.client
        try:
            with understood(FAILURES):
                reply = call(client)
            return read(reply)
        except (*FAILURES, ReplyError) as error:
            raise self.failure(error, doing, creating=creating) from error

    def look(self, doing: str, call: Callable[[Any], object], read: Callable[[Any], _T]) -> _T | None:
        """Like `ask`, but None if the object does not exist."""

        def reply_or_missing(client: Any) -> object:  # noqa: ANN401 -- see client()
            try:
                return call(client)
            except docker_errors.NotFound as error:
                if is_from_daemon(error):
                    return _MISSING
                raise

        return self.ask(doing, reply_or_missing, lambda reply: None if reply is _MISSING else read(reply))

    def create(self, doing: str, call: Callable[[Any], object]) -> str | None:
        """Return the id of what `call` creates; None if the name is taken."""

        def reply_or_taken(client: Any) -> object:  # noqa: ANN401 -- see client()
            try:
                return call(client)
            except docker_errors.APIError as error:
                if error.status_code == _CONFLICT and is_from_daemon(error):
                    return None
                raise

        return self.ask(doing, reply_or_taken, _id_of, creating=True)

    def failure(self, error: Exception, doing: str, *, creating: bool = False) -> Exception:
        return translate(error, self.table, doing=doing, url=self.endpoint.url, creating=creating)


def _id_of(made: object) -> str | None:
    return None if made is None else Reply.of(made).text("Id")


def _connect(endpoint: Endpoint) -> Any:  # noqa: ANN401 -- see Api.client
    if endpoint.url.startswith(_UNIX):
        _check_listening(endpoint.url.removeprefix(_UNIX))
    client = docker.APIClient(base_url=endpoint.url, version="auto", timeout=_FIRST_ANSWER_S, tls=_tls(endpoint))
    client.timeout = _TIMEOUT_S
    client.hooks["response"].append(_log)
    return client


def _log(reply: Any, **_how: object) -> None:  # noqa: ANN401 -- of requests, which has no types
    """Log the call for --verbose, without its parameters, which may hold secrets."""
    CALLS.info("docker %s %s: %s", reply.request.method, urlsplit(reply.request.url).path, reply.status_code)


def _check_listening(path: str) -> None:
    """Connect once first: if nothing listens, Docker's package leaks a socket and wraps the reason several times."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_FIRST_ANSWER_S)
        probe.connect(path)


def _tls(endpoint: Endpoint) -> TLSConfig | bool:
    folder = endpoint.certificates
    if folder is None:
        return False
    return TLSConfig(
        client_cert=(str(folder / "cert.pem"), str(folder / "key.pem")),
        ca_cert=str(folder / "ca.pem"),
        verify=endpoint.verify,
    )
