"""Selects the Docker host: DOCKER_HOST, DOCKER_CONTEXT, the current context, or the local socket, in this order.

A place is `docker` for the local socket and `docker:URL` for any other host, so that a record identifies its host
even after the variables have changed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tgi_deploy import bounded_files, bounded_json
from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PLACE: Final = "docker"
LOCAL_URL: Final = "unix:///var/run/docker.sock"
_DEFAULT_CONTEXT: Final = "default"
_LOCAL_SCHEMES: Final = ("unix", "npipe")
_SCHEMES: Final = (*_LOCAL_SCHEMES, "tcp", "http", "https")
# Docker's ports without and with TLS.
_PORTS: Final = (2375, 2376)


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """`certificates` is a folder with ca.pem, cert.pem and key.pem, for hosts with TLS."""

    url: str
    certificates: Path | None = None
    verify: bool = True
    source: str = "default"

    @property
    def place(self) -> str:
        return PLACE if self.url == LOCAL_URL else f"{PLACE}:{self.url}"

    @property
    def local(self) -> bool:
        """Whether it is this computer."""
        return urlsplit(self.url).scheme in _LOCAL_SCHEMES

    @property
    def host(self) -> str:
        """The host name or address of its published ports."""
        return "127.0.0.1" if self.local else urlsplit(self.url).hostname or ""


def current_endpoint(environ: Mapping[str, str]) -> Endpoint:
    """Return the host that Docker's command line would use.

    Raises:
        InputError: `unknown_docker_context`, `bad_docker_config` or `docker_host_not_supported`.
    """
    of_variables = _of_variables(environ)
    if of_variables is not None:
        return _supported(of_variables)
    named = environ.get("DOCKER_CONTEXT")
    name = named or _current_context(environ)
    if name is None or name == _DEFAULT_CONTEXT:
        return Endpoint(url=LOCAL_URL)
    found = next((item for at, item in _contexts(environ) if at == name), None)
    if found is None:
        raise InputError(
            "unknown_docker_context",
            f"there is no Docker context {name!r}",
            hint="'docker context ls' lists them; choose one with DOCKER_CONTEXT",
        )
    return _supported(found)


def endpoint_of(place: str, environ: Mapping[str, str]) -> Endpoint:
    """Return the host of a place, with its certificates from variables or contexts."""
    url = place.partition(":")[2] or LOCAL_URL
    of_variables = _of_variables(environ)
    if of_variables is not None and of_variables.url == url:
        return _supported(of_variables)
    known = (found for _, found in _contexts(environ) if found.url == url)
    return _supported(next(known, Endpoint(url=url, source="the record")))


def _of_variables(environ: Mapping[str, str]) -> Endpoint | None:
    host = environ.get("DOCKER_HOST")
    if not host:
        return None
    tls = _tls_of_environment(environ)
    return Endpoint(url=_url(host, tls=bool(tls)), source="DOCKER_HOST", **tls)


def _supported(endpoint: Endpoint) -> Endpoint:
    scheme = endpoint.url.partition(":")[0]
    if scheme in _SCHEMES and _is_whole(endpoint.url):
        return endpoint
    hint = "use the form unix:///path/docker.sock or tcp://host:2376"
    if scheme == "ssh":
        target = endpoint.url.removeprefix("ssh://")
        hint = (
            f"forward its socket with 'ssh -nNT -L /tmp/docker-remote.sock:/var/run/docker.sock {target}' "
            "and set DOCKER_HOST=unix:///tmp/docker-remote.sock"
        )
    raise InputError("docker_host_not_supported", f"the Docker host {endpoint.url[:80]!r} is not supported", hint=hint)


def _is_whole(url: str) -> bool:
    """Return whether the URL is complete: a path for a socket, else a host and a valid port."""
    try:
        parts = urlsplit(url)
        return bool(parts.path if parts.scheme in _LOCAL_SCHEMES else parts.hostname and parts.port != 0)
    except ValueError:
        return False


def _url(host: str, *, tls: bool) -> str:
    """Complete a URL like Docker's command line: a bare address means TCP; host and port have defaults."""
    url = host if "://" in host else f"tcp://{host}"
    scheme, _, rest = url.partition("://")
    if scheme != "tcp":
        return url
    address, slash, path = rest.partition("/")
    if not address.rpartition("]")[2].partition(":")[1]:
        address = f"{address or 'localhost'}:{_PORTS[tls]}"
    return f"tcp://{address}{slash}{path}"


def _tls_of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    verify = environ.get("DOCKER_TLS_VERIFY", "")
    if not (verify or environ.get("DOCKER_TLS")):
        return {}
    path = environ.get("DOCKER_CERT_PATH")
    return {"certificates": Path(path) if path else _config_dir(environ), "verify": bool(verify)}


def _config_dir(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "~")).expanduser() / ".docker")


def _current_context(environ: Mapping[str, str]) -> str | None:
    name = _read(_config_dir(environ) / "config.json").get("currentContext")
    return name if isinstance(name, str) and name else None


def _contexts(environ: Mapping[str, str]) -> Iterator[tuple[str, Endpoint]]:
    folder = _config_dir(environ) / "contexts"
    for path in sorted(folder.glob("meta/*/meta.json")):
        meta = _read(path)
        name, docker = str(meta.get("Name", "")), _object(_object(meta.get("Endpoints")).get("docker"))
        certificates = folder / "tls" / hashlib.sha256(name.encode()).hexdigest() / "docker"
        secured = certificates.is_dir()
        yield (
            name,
            Endpoint(
                url=_url(str(docker.get("Host") or LOCAL_URL), tls=secured),
                certificates=certificates if secured else None,
                verify=not docker.get("SkipTLSVerify", False),
                source=f"context {name}",
            ),
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        return _object(bounded_json.parse(bounded_files.read_bytes(path, most=bounded_files.MIB)))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(
            "bad_docker_config", f"reading Docker's settings in {path} failed: {error}", hint="fix or remove the file"
        ) from None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
