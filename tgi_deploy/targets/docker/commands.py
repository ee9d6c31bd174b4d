"""What to type into Docker's own command line to look and to remove, for the case that this tool could not."""

from __future__ import annotations

import shlex
from typing import Final
from urllib.parse import urlsplit

from tgi_deploy.reconcile.model import TAG_NAME
from tgi_deploy.targets.docker.resources import container_name

_COMMANDS: Final = {"container": "rm --force", "volume": "volume rm"}


def removal_command(kind: str, thing_id: str, place: str) -> str | None:
    """None for a kind that has no such command."""
    words = _COMMANDS.get(kind)
    return None if words is None else f"{_docker(place)} {words} {shlex.quote(thing_id)}"


def container_removal(name: str, place: str) -> str:
    """By the container's name: what it is called is known before it is there."""
    return f"{_docker(place)} {_COMMANDS['container']} {container_name(name)}"


def looks(name: str, place: str) -> tuple[str, ...]:
    """What one looks with at a deployment, and what starts its engine again."""
    container = container_name(name)
    docker, filtered = _docker(place), _labelled(name)
    words = (f"ps --all {filtered}", f"logs --tail 200 {container}", f"inspect {container}",
             f"exec {container} nvidia-smi", f"restart {container}")  # fmt: skip
    return tuple(f"{docker} {word}" for word in words)


def proof(name: str, place: str) -> str:
    """Prints nothing when nothing is left."""
    return f"{_docker(place)} ps --all --quiet {_labelled(name)}"


def _labelled(name: str) -> str:
    return f"--filter label={TAG_NAME}={name}"


def _docker(place: str) -> str:
    host = place.partition(":")[2]
    return f"docker --host {shlex.quote(host)}" if host else "docker"


def tunnel(place: str, port: int) -> str:
    """Through SSH to the host; empty for this computer's own."""
    host = urlsplit(place.partition(":")[2]).hostname
    return f"ssh -N -L {port}:127.0.0.1:{port} {shlex.quote(host)}" if host else ""
