"""HTTPS to an API server, with the credentials of a kubeconfig."""

from __future__ import annotations

import json
import logging
import os
import re
import ssl
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import urllib3

from tgi_deploy import bounded_files, bounded_json
from tgi_deploy.errors import InputError
from tgi_deploy.secret import Secret
from tgi_deploy.targets.kubernetes.errors import unreachable
from tgi_deploy.targets.reply import Reply, ReplyError
from tgi_deploy.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.kubernetes.kubeconfig import Cluster, Exec

CALLS: Final = logging.getLogger("tgi_deploy.calls")
_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 60.0
_PLUGIN_S: Final = 60.0
# Kept open for the next request: a proof looks up the pod for each of its users at once.
_CONNECTIONS: Final = 32
_MOST_BYTES: Final = 64 * bounded_files.MIB
_VERSIONS: Final = frozenset({"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"})
# A character beyond U+FFFF as JSON escapes it, or any other escape.
_ESCAPED: Final = re.compile(r"\\(?:(ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|.)")
# Credentials are asked for again this long before they expire.
_EARLY: Final = timedelta(minutes=1)


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON that is also valid YAML, which is how the API server parses an applied body.

    In YAML, an escaped surrogate pair is not a character.
    """
    text = json.dumps(body).replace("\x7f", "\\u007f")
    return _ESCAPED.sub(lambda found: _character(found[1]) if found[1] else found[0], text).encode()


def _character(pair: str) -> str:
    """Return the character of two escaped surrogates, which a backslash separates."""
    high, low = (int(half[1:], 16) for half in pair.split("\\"))
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    status: int
    body: bytes = field(repr=False)

    @property
    def succeeded(self) -> bool:
        return self.status < 300  # noqa: PLR2004 -- success


@dataclass(frozen=True, kw_only=True, slots=True)
class _Credentials:
    token: Secret | None = None
    certificate: str = ""
    key: Secret | None = None
    until: datetime | None = None


class Transport:
    """Sends requests to one cluster; thread-safe."""

    def __init__(self, cluster: Cluster, environ: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._environ = environ
        self._lock = threading.Lock()
        self._known: _Credentials | None = None

    @property
    def server(self) -> str:
        return self._cluster.server

    def send(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Raises DeployError `cluster_unreachable`, and LostReplyError if a change may have arrived."""
        url = f"{self.server}{path}{'?' + urlencode(query) if query else ''}"
        headers = {"Accept": "application/json", "Content-Type": content_type, **self.headers()}
        changing = method != "GET"
        try:
            reply = self._pool.request(
                method,
                url,
                headers=headers,
                body=None if body is None else encoded(body),
                preload_content=False,
                redirect=False,
            )
            content = reply.read(_MOST_BYTES, decode_content=True)
            reply.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            sent = isinstance(error, urllib3.exceptions.ReadTimeoutError | urllib3.exceptions.ProtocolError)
            raise unreachable(error, doing=doing, server=self.server, changing=changing, sent=sent) from error
        CALLS.info("kubernetes %s %s: %s", method, path, reply.status)
        return Answer(status=reply.status, body=content)

    def headers(self) -> dict[str, str]:
        """Return the headers with the credentials, asking for new ones before they expire."""
        file = self._cluster.token_file
        token = self._credentials.token
        if file is not None:
            token = Secret(bounded_files.read_text(file, most=bounded_files.MIB).strip())
        return {"Authorization": f"Bearer {token.reveal()}"} if token is not None else {}

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        timeout = urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S)
        tls: dict[str, Any] = {} if self.server.startswith("http://") else {"ssl_context": self.tls}
        if tls and self._cluster.server_name:
            tls["server_hostname"] = self._cluster.server_name
        return urllib3.PoolManager(retries=False, timeout=timeout, maxsize=_CONNECTIONS, **tls)

    @property
    def server_name(self) -> str:
        """The host name that the server's certificate must have; empty for the one in its URL."""
        return self._cluster.server_name

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """Raises InputError `bad_kubeconfig` for unusable certificates."""
        cluster, known = self._cluster, self._credentials
        try:
            context = ssl.create_default_context(cadata=cluster.ca or None)
            # The default since Python 3.13, but not in kubectl: it requires extensions that the authorities of old EKS
            # clusters lack. https://github.com/kubernetes-client/python/issues/2394
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if not cluster.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            certificate, key = known.certificate or cluster.certificate, known.key or cluster.key
            if certificate and key is not None:
                _load(context, certificate, key)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise InputError(
                "bad_kubeconfig",
                f"the kubeconfig's certificates can't be used: {one_line(str(error))}",
                hint="create the kubeconfig again",
            ) from None
        return context

    @property
    def _credentials(self) -> _Credentials:
        with self._lock:
            known = self._known
            if known is None or (known.until is not None and known.until - _EARLY < datetime.now(UTC)):
                plugin = self._cluster.plugin
                known = self._known = _run(plugin, self._environ) if plugin else _Credentials(token=self._cluster.token)
            return known


def _load(context: ssl.SSLContext, certificate: str, key: Secret) -> None:
    """Load a client certificate and key. Python reads them only from files, so write private ones and remove them."""
    descriptor, name = tempfile.mkstemp(prefix="tgi-deploy-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{certificate}\n{key.reveal()}\n")
        context.load_cert_chain(name)
    finally:
        with suppress(OSError):
            Path(name).unlink()


def _run(plugin: Exec, environ: Mapping[str, str]) -> _Credentials:
    """Return the credentials that a kubeconfig's program prints. Raises InputError `cluster_login`."""
    if plugin.version not in _VERSIONS:
        raise _login(plugin, f"its version {plugin.version or '(none)'} is not supported")
    env = {**environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": json.dumps(plugin.info, default=str)}
    try:
        done = subprocess.run(  # noqa: S603 -- the program that the user's kubeconfig names
            plugin.words, env=env, capture_output=True, timeout=_PLUGIN_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _login(plugin, str(error)) from None
    if done.returncode:
        raise _login(plugin, done.stderr.decode("utf-8", "replace") or f"it ended with code {done.returncode}")
    try:
        return _credentials(Reply.of(bounded_json.parse(done.stdout)).part("status"))
    except (ValueError, ReplyError) as error:
        raise _login(plugin, f"its output is not a credential: {error}") from None


def _credentials(status: Reply) -> _Credentials:
    token, key = status.optional_text("token"), status.optional_text("clientKeyData")
    return _Credentials(
        token=Secret(token) if token else None,
        certificate=status.optional_text("clientCertificateData"),
        key=Secret(key) if key else None,
        until=status.time("expirationTimestamp") if status.has("expirationTimestamp") else None,
    )


def _login(plugin: Exec, why: str) -> InputError:
    return InputError(
        "cluster_login",
        f"asking {plugin.words[0]!r} for the cluster's credentials: {one_line(why)}",
        hint=one_line(plugin.hint) or "run that program by hand; 'kubectl get pods' uses it, too",
    )
