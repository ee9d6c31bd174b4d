"""`kubectl` commands to inspect and remove objects by hand."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.kubernetes.manifests import CONTAINER, HTTP, label, object_name
from tgi_deploy.targets.kubernetes.place import Place
from tgi_deploy.targets.kubernetes.resources import DEPLOYMENT, KINDS, OWN_KINDS
from tgi_deploy.targets.protocol import Commands
from tgi_deploy.values.resource import TAG_NAME

if TYPE_CHECKING:
    from tgi_deploy.values.serving import TunnelEnd

_SHELL: Final = ("sh", "-c", "exec $(command -v bash || echo sh)")


def look_command(kind: str, thing_id: str, place: str) -> str | None:
    """Return the command, or None if the kind has none."""
    return None if kind not in KINDS else f"{_kubectl(place)} describe {_object(kind, thing_id)}"


def removal_command(kind: str, thing_id: str, place: str) -> str | None:
    """Return the command, or None if the kind has none."""
    return None if kind not in KINDS else f"{_kubectl(place)} delete {_object(kind, thing_id)}"


def _object(kind: str, thing_id: str) -> str:
    return shlex.quote(thing_id if "/" in thing_id else f"{kind}/{thing_id}")


def commands(name: str, place: str, machine_id: str, *, nvidia: bool = True) -> Commands:
    """Return commands by the Deployment's id or, before it exists, by the name of the first one."""
    known = machine_id if machine_id.startswith(f"{DEPLOYMENT}/") else f"{DEPLOYMENT}/{object_name(name)}"
    kubectl, own = _kubectl(place), shlex.quote(known)
    filtered = f"--selector {label(TAG_NAME)}={name}"
    every = f"{','.join(OWN_KINDS)} {filtered}"
    smi = (f"exec {own} -- nvidia-smi",) if nvidia else ()
    looks = (
        f"get {','.join(OWN_KINDS)},pod {filtered}",
        f"describe pod {filtered}",
        f"logs --tail 200 {own}",
        *smi,
        f"rollout restart {own}",
    )
    return Commands(
        inspections=tuple(f"{kubectl} {words}" for words in looks),
        removal=(f"{kubectl} delete {every}",),
        proof=f"{kubectl} get {every} --output name   # the proof: no line",
    )


def exec_words(place: str, machine_id: str, words: tuple[str, ...], *, terminal: bool) -> tuple[str, ...]:
    """Return the command line that runs a command in the engine's container; without any, its bash, or else its sh."""
    streams = ("--stdin", *(("--tty",) if terminal else ()))
    return (
        *("kubectl", *Place.of(place).words, "exec", *streams, "--container", CONTAINER, machine_id, "--"),
        *(words or _SHELL),
    )


def tunnel(end: TunnelEnd) -> str:
    """Return the command that forwards the port of this computer to a pod of the serving Deployment."""
    return f"{_kubectl(end.place)} port-forward {shlex.quote(end.machine_id)} {end.port}:{HTTP}"


def _kubectl(place: str) -> str:
    return shlex.join(("kubectl", *Place.of(place).words))
