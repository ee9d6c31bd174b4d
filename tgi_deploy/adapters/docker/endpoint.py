"""Which Docker host is meant: DOCKER_HOST, DOCKER_CONTEXT, the current context, or the local socket, in this order.

A place is `docker` for the local socket and `docker:URL` for any other host, so that a record finds its host again
whatever the variables say by then.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tgi_deploy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PLACE: Final = "docker"
LOCAL_URL: Final = "unix:///var/run/docker.sock"
_DEFAULT_CONTEXT: Final = "default"
_LOCAL_SCHEMES: Final = ("unix", "npipe")
_SCHEMES: Final = (*_LOCAL_SCHEMES, "tcp", "http", "https")


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """`certificates` is a folder with ca.pem, cert.pem and key.pem, where the host asks for TLS."""

    url: str
    certificates: Path | None = None
    verify: bool = True
    source: str = "default"

    @property
    def place(self) -> str:
        return PLACE if self.url == LOCAL_URL else f"{PLACE}:{self.url}"

    @property
    def local(self) -> bool:
        """Whether its devices are this computer's."""
        return urlsplit(self.url).scheme in _LOCAL_SCHEMES

    @property
    def host(self) -> str:
        """Where its published ports are reached."""
        return "127.0.0.1" if self.local else urlsplit(self.url).hostname or ""


def current_endpoint(environ: Mapping[str, str]) -> Endpoint:
    """The host that Docker's own command line would use.

    Raises:
        InputError: `unknown_docker_context`, `bad_docker_config` or `docker_host_not_supported`.
    """
    host = environ.get("DOCKER_HOST")
    if host:
        return _supported(Endpoint(url=_url(host), source="DOCKER_HOST", **_tls_of_environment(environ)))
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
    """The host of a place, with the certificates that variables or contexts have for it."""
    url = place.partition(":")[2] or LOCAL_URL
    host = environ.get("DOCKER_HOST")
    if host and _url(host) == url:
        return _supported(Endpoint(url=url, source="DOCKER_HOST", **_tls_of_environment(environ)))
    known = (found for _, found in _contexts(environ) if found.url == url)
    return _supported(next(known, Endpoint(url=url, source="the record")))


def _supported(endpoint: Endpoint) -> Endpoint:
    scheme = urlsplit(endpoint.url).scheme
    if scheme in _SCHEMES:
        return endpoint
    hint = "name it as unix:///path/docker.sock or tcp://host:2376"
    if scheme == "ssh":
        target = endpoint.url.removeprefix("ssh://")
        hint = (
            f"forward its socket with 'ssh -nNT -L /tmp/docker-remote.sock:/var/run/docker.sock {target}' "
            "and set DOCKER_HOST=unix:///tmp/docker-remote.sock"
        )
    raise InputError("docker_host_not_supported", f"the Docker host {endpoint.url[:80]!r} can't be asked", hint=hint)


def _url(host: str) -> str:
    """Docker's own command line takes a bare address for TCP."""
    return host if "://" in host else f"tcp://{host}"


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
        name, docker = str(meta.get("Name", "")), meta.get("Endpoints", {}).get("docker", {})
        certificates = folder / "tls" / hashlib.sha256(name.encode()).hexdigest() / "docker"
        yield (
            name,
            Endpoint(
                url=_url(str(docker.get("Host", "")) or LOCAL_URL),
                certificates=certificates if certificates.is_dir() else None,
                verify=not docker.get("SkipTLSVerify", False),
                source=f"context {name}",
            ),
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(
            "bad_docker_config", f"reading Docker's settings in {path} failed: {error}", hint="mend or remove the file"
        ) from None
    return content if isinstance(content, dict) else {}
