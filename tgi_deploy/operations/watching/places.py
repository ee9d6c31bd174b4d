"""Where to look for a deployment, and what differs by where it is."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.container import is_folder
from tgi_deploy.targets.docker import commands as docker_commands
from tgi_deploy.targets.docker import resources as docker
from tgi_deploy.targets.ec2 import commands as ec2_commands
from tgi_deploy.targets.ec2 import resources as ec2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.model import Deployment
    from tgi_deploy.values.plan_document import PlanDocument


DOCKER: Final = docker.NAME
# Options of machines that are rented: a Docker host is what it is.
_RENTING: Final = frozenset({"--ami", "--disk", "--hub-token-parameter", "--instance", "--market", "--region"})


def target_of(place: str) -> str:
    return docker.NAME if docker.is_place(place) else ec2.NAME


def shows_at_once(place: str) -> bool:
    """Return whether all that was made there shows from then on. EC2 is eventually consistent and takes longer."""
    return docker.is_place(place)


def typed_model(plan: PlanDocument | None) -> str:
    """The MODEL of a command line, from a plan: a folder goes by its path."""
    if plan is None:
        return "MODEL"
    return shlex.quote(plan.model.served_id if is_folder(plan.model.served_id) else plan.model.id)


def target_words(place: str) -> str:
    """What an `up` command line needs to stay at this place: without a word it would rent a machine."""
    return f" --target {DOCKER}" if docker.is_place(place) else ""


def up_there(command: str, place: str) -> str | None:
    """The `up` command line for this place; None where it changes what only rented machines have."""
    if docker.is_place(place) and _RENTING.intersection(command.split()):
        return None
    return f"{command}{target_words(place)}"


def removal_command(kind: str, thing_id: str, place: str) -> str | None:
    """What to type to remove one thing by hand; None for a kind that has no such command."""
    command = docker_commands.removal_command if docker.is_place(place) else ec2_commands.removal_command
    return command(kind, thing_id, place)


def tunnel(place: str, port: int) -> str:
    """The command that reaches the port on another Docker host without opening it; empty where there is none."""
    return docker_commands.tunnel(place, port) if docker.is_place(place) else ""


def where(context: Context, recorded: Deployment | None) -> tuple[str, ...]:
    """Where to look beside the record. A deployment on Docker is on its host: no region is asked for it."""
    if recorded is not None and recorded.target == docker.NAME:
        return recorded.places
    return context.regions


def all_places(context: Context, records: Iterable[Deployment]) -> tuple[str, ...]:
    """The regions at hand, and every region and Docker host that the records name."""
    return tuple(dict.fromkeys((*context.regions, *(place for record in records for place in record.places))))
