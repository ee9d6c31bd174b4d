"""Docker commands to inspect and remove resources by hand."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tgi_deploy.targets.docker.resources import container_name
from tgi_deploy.targets.protocol import Commands
from tgi_deploy.values.resource import TAG_NAME

if TYPE_CHECKING:
    from tgi_deploy.targets.docker.endpoint import Endpoint
    from tgi_deploy.values.serving import TunnelEnd

_KINDS: Final = {"container": "container", "proxy": "container", "network": "network", "volume": "volume"}
_COMMANDS: Final = {"container": "rm --force", "proxy": "rm --force", "network": "network rm", "volume": "volume rm"}


_SHELL: Final = ("sh", "-c", "exec $(command -v bash || echo sh)")


def look_command(kind: str, thing_id: str, place: str) -> str | None:
    """Return the command, or None if the kind has none."""
    word = _KINDS.get(kind)
    return None if word is None else f"{_docker(place)} {word} inspect {shlex.quote(thing_id)}"


def removal_command(kind: str, thing_id: str, place: str) -> str | None:
    """Return the command, or None if the kind has none."""
    words = _COMMANDS.get(kind)
    return None if words is None else f"{_docker(place)} {words} {shlex.quote(thing_id)}"


def commands(name: str, place: str, machine_id: str, *, nvidia: bool = True) -> Commands:  # noqa: ARG001 -- the protocol's
    """Return commands by container name, which is known before the container exists."""
    container, docker = container_name(name), _docker(place)
    filtered = f"--filter label={TAG_NAME}={name}"
    smi = (f"exec {container} nvidia-smi",) if nvidia else ()
    words = (f"ps --all {filtered}", f"logs --tail 200 {container}", f"inspect {container}", *smi,
             f"restart {container}")  # fmt: skip
    return Commands(
        inspections=tuple(f"{docker} {word}" for word in words),
        removal=(f"{docker} {_COMMANDS['container']} {container}",),
        proof=f"{docker} ps --all --quiet {filtered}   # the proof: no line",
    )


def exec_words(endpoint: Endpoint, container: str, words: tuple[str, ...], *, terminal: bool) -> tuple[str, ...]:
    """Return the `docker` command line that runs a command in a container; without one, its bash, or else its sh."""
    return (
        *("docker", "--host", endpoint.url, *_tls(endpoint)),
        *("exec", "--interactive", *(("--tty",) if terminal else ()), container),
        *(words or _SHELL),
    )


def _tls(endpoint: Endpoint) -> tuple[str, ...]:
    if endpoint.certificates is None:
        return ()
    files = {"--tlscacert": "ca.pem", "--tlscert": "cert.pem", "--tlskey": "key.pem"}
    named = (word for option, name in files.items() for word in (option, str(endpoint.certificates / name)))
    return ("--tlsverify" if endpoint.verify else "--tls", *named)


def _docker(place: str) -> str:
    host = place.partition(":")[2]
    return f"docker --host {shlex.quote(host)}" if host else "docker"


def tunnel(end: TunnelEnd) -> str:
    """Return the SSH command to the host; empty for this computer."""
    host = urlsplit(end.place.partition(":")[2]).hostname
    return f"ssh -N -L {end.port}:127.0.0.1:{end.port} {shlex.quote(host)}" if host else ""
