"""Reads a cluster's address and credentials: from kubeconfig files as `kubectl` does, or from a pod's own account.

The official client would do this too, but is 126 MB with thirty packages, takes a second to import, and changed its
low-level calls in its latest release.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy import bounded_files
from tgi_deploy.errors import InputError
from tgi_deploy.secret import Secret
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.text import printable, quoted
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOST_BYTES: Final = 4 * bounded_files.MIB
# The extension of a cluster that is for programs that print credentials.
_EXTENSION: Final = "client.authentication.k8s.io/exec"


class Exec(Frozen, frozen=True, kw_only=True):
    """A program that prints credentials (client.authentication.k8s.io). `cluster` is empty unless it asks for it."""

    version: str
    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    hint: str = ""
    cluster: Mapping[str, Any] = {}

    @property
    def info(self) -> dict[str, Any]:
        """What the program reads from KUBERNETES_EXEC_INFO."""
        spec = {"interactive": False, **({"cluster": self.cluster} if self.cluster else {})}
        return {"apiVersion": self.version, "kind": "ExecCredential", "spec": spec}


class Cluster(Frozen, frozen=True, kw_only=True):
    """How to reach and authenticate to an API server. `ca` and the client's certificate and key are PEM.

    `token_file` is read again for each request, because a pod's token expires.
    """

    server: str
    ca: str = ""
    verify: bool = True
    server_name: str = ""
    token: Secret | None = None
    token_file: Path | None = None
    certificate: str = ""
    key: Secret | None = None
    plugin: Exec | None = None


def chosen_place(environ: Mapping[str, str], context: str = "", namespace: str = "") -> Place:
    """Return the place that `kubectl` would use, with the context and the namespace that are named.

    Raises InputError `no_kubeconfig`, `bad_kubeconfig`, `unknown_kube_context`.
    """
    if not context and not _paths(environ) and _in_cluster(environ):
        own = _ACCOUNT / "namespace"
        return Place(namespace=namespace or (_text(own).strip() if own.exists() else "default"))
    merged = _Merged.read(environ)
    context = context or merged.current
    found = merged.named("contexts", "context", context)
    return Place(namespace=namespace or _string(found, "namespace") or "default", context=context)


def cluster_of(place: Place, environ: Mapping[str, str]) -> Cluster:
    """Raises InputError `no_kubeconfig`, `bad_kubeconfig`, `unknown_kube_context`, `kube_auth_unsupported`."""
    if not place.context:
        return _own_cluster(environ)
    merged = _Merged.read(environ)
    context = merged.named("contexts", "context", place.context)
    cluster = merged.named("clusters", "cluster", _string(context, "cluster"))
    user = merged.named("users", "user", _string(context, "user")) if _string(context, "user") else {}
    _refuse(cluster, ("proxy-url",), place)
    _refuse(user, ("auth-provider", "username", "password", "as"), place)
    token = _string(user, "token")
    key = _pem(user, "client-key")
    return Cluster(
        server=_server(cluster),
        ca=_pem(cluster, "certificate-authority"),
        verify=cluster.get("insecure-skip-tls-verify") is not True,
        server_name=_string(cluster, "tls-server-name"),
        token=Secret(token) if token else None,
        token_file=Path(_string(user, "tokenFile")) if _string(user, "tokenFile") else None,
        certificate=_pem(user, "client-certificate"),
        key=Secret(key) if key else None,
        plugin=_plugin(user.get("exec"), cluster),
    )


def _own_cluster(environ: Mapping[str, str]) -> Cluster:
    if not _in_cluster(environ):
        raise _no_kubeconfig("no variable KUBERNETES_SERVICE_HOST: this is not a pod of a cluster")
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    return Cluster(server=f"https://{host}:{port}", ca=_text(_ACCOUNT / "ca.crt"), token_file=_ACCOUNT / "token")


def _in_cluster(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


def _paths(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the existing kubeconfig files, in order of precedence."""
    named = [Path(text) for text in environ.get("KUBECONFIG", "").split(os.pathsep) if text]
    usual = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    return tuple(path for path in named or [usual] if path.exists())


class _Merged(Frozen, frozen=True, kw_only=True):
    """The documents of all files; if several entries have the same name, the first one counts."""

    documents: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> _Merged:
        paths = _paths(environ)
        if not paths:
            where = environ.get("KUBECONFIG") or "~/.kube/config"
            raise _no_kubeconfig(f"{where} does not exist")
        return cls(documents=tuple(map(_document, paths)))

    @property
    def current(self) -> str:
        found = next(filter(None, (_string(item, "current-context") for item in self.documents)), "")
        if not found:
            raise InputError(
                "unknown_kube_context",
                "the kubeconfig has no current context",
                hint="'kubectl config use-context NAME' sets it; --kube-context names one for 'up'",
            )
        return found

    def named(self, listed: str, kind: str, name: str) -> dict[str, Any]:
        for item in self._entries(listed):
            if item.get("name") == name:
                found = item.get(kind)
                return found if isinstance(found, dict) else {}
        raise InputError(
            "unknown_kube_context",
            f"the kubeconfig has no {kind} {quoted(name)}",
            hint="'kubectl config get-contexts' lists the contexts",
        )

    def _entries(self, listed: str) -> Iterator[dict[str, Any]]:
        for document in self.documents:
            items = document.get(listed)
            yield from (item for item in items or () if isinstance(item, dict)) if isinstance(items, list) else ()


def _document(path: Path) -> dict[str, Any]:
    """Return a file with its relative paths resolved, as `kubectl` resolves them: from the file's folder."""
    import yaml  # noqa: PLC0415 -- only commands that call a cluster read a kubeconfig

    try:
        found = yaml.safe_load(_text(path))
    except (yaml.YAMLError, RecursionError) as error:
        said = next(iter(str(error).splitlines()), "")
        raise _bad(path, said) from None
    if not isinstance(found, dict):
        raise _bad(path, "it is not a mapping")
    for listed, kind in (("clusters", "cluster"), ("users", "user")):
        for item in found.get(listed) or ():
            inner = item.get(kind) if isinstance(item, dict) else None
            if isinstance(inner, dict):
                _resolve(inner, path.parent)
    return found


def _resolve(inner: dict[str, Any], folder: Path) -> None:
    for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
        if isinstance(inner.get(key), str) and inner[key]:
            inner[key] = str(folder / inner[key])
    inner["#folder"] = str(folder)


def _text(path: Path) -> str:
    try:
        return bounded_files.read_bytes(path, most=_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        raise _bad(path, str(error)) from None


def _string(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    return value if isinstance(value, str) else ""


def _pem(table: Mapping[str, Any], key: str) -> str:
    """Return a certificate or key that the kubeconfig contains, or else the one in the file that it names."""
    inline = _string(table, f"{key}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=False).decode()
        except (binascii.Error, ValueError):
            raise InputError(
                "bad_kubeconfig", f"{key}-data in the kubeconfig is not Base64", hint="create the kubeconfig again"
            ) from None
    return _text(Path(table[key])) if _string(table, key) else ""


def _server(cluster: Mapping[str, Any]) -> str:
    server = _string(cluster, "server").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise InputError(
            "bad_kubeconfig",
            f"the kubeconfig's server {quoted(server)} is not a URL",
            hint="create the kubeconfig again",
        )
    return server


def _refuse(table: Mapping[str, Any], keys: Sequence[str], place: Place) -> None:
    """Raise InputError for settings that would be ignored."""
    for key in keys:
        if table.get(key):
            raise InputError(
                "kube_auth_unsupported",
                f"the context {quoted(place.context)} uses {key!r}, which is not supported",
                hint="use a context with a token, a client certificate, or a program such as 'aws eks get-token'",
            )


def _plugin(found: object, cluster: Mapping[str, Any]) -> Exec | None:
    if not isinstance(found, dict):
        return None
    command = _string(found, "command")
    if os.sep in command:  # relative to the file, as `kubectl` takes it
        command = str(Path(str(cluster.get("#folder", ""))) / command)
    env = [item for item in found.get("env") or () if isinstance(item, dict)]
    return Exec(
        version=_string(found, "apiVersion"),
        words=(command, *map(str, found.get("args") or ())),
        env=tuple((_string(item, "name"), _string(item, "value")) for item in env),
        hint=_string(found, "installHint"),
        cluster=_described(cluster) if found.get("provideClusterInfo") is True else {},
    )


def _described(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a program that prints credentials may know of its cluster."""
    extensions = (item for item in cluster.get("extensions") or () if isinstance(item, dict))
    described = {
        "server": _server(cluster),
        "tls-server-name": _string(cluster, "tls-server-name"),
        "insecure-skip-tls-verify": cluster.get("insecure-skip-tls-verify") is True,
        "certificate-authority-data": base64.b64encode(_pem(cluster, "certificate-authority").encode()).decode(),
        "config": next((item.get("extension") for item in extensions if item.get("name") == _EXTENSION), None),
    }
    return {name: value for name, value in described.items() if value}


def _no_kubeconfig(why: str) -> InputError:
    return InputError(
        "no_kubeconfig",
        f"there is no cluster to deploy to: {why}",
        hint="create a kubeconfig, for example with 'aws eks update-kubeconfig --name CLUSTER', or set KUBECONFIG",
    )


def _bad(path: Path, why: str) -> InputError:
    return InputError(
        "bad_kubeconfig", f"reading {path} failed: {printable(why)}", hint="fix the file, or set KUBECONFIG"
    )
