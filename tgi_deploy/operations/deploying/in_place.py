"""What `up` changes of a machine that stays: its limits, and who may connect to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tgi_deploy.errors import InputError, Problem, warning
from tgi_deploy.operations.deploying.acceptance import limit_options, other_limits
from tgi_deploy.operations.watching.extend import Running, move_limits
from tgi_deploy.operations.watching.known import machine_of
from tgi_deploy.targets.protocol import Opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.targets.protocol import Launch
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import WantedEnds
    from tgi_deploy.values.resource import Found


def with_networks(way: Launch, seen: Sequence[Found], *, dry_run: bool) -> tuple[Problem, ...]:
    """Let networks connect that options name anew; return a word about it."""
    networks = way.not_let_in(seen) if isinstance(way, Opening) else ()
    if not networks or not isinstance(way, Opening):
        return ()
    if dry_run:
        return (warning("networks_added", f"{', '.join(networks)} would be let in"),)
    way.let_in(seen, networks)
    return (warning("networks_added", f"{', '.join(networks)} may connect now; what was let in before still may"),)


def with_limits(
    context: Context, ends: WantedEnds, deployment: Deployment, seen: Sequence[Found], *, dry_run: bool
) -> tuple[Deployment, tuple[Problem, ...]]:
    """Give a machine that stays the limits that are asked for now; return the record, and a word about it."""
    machine, wanted = machine_of(deployment, seen), other_limits(deployment, ends)
    if machine is None or wanted is None:
        return deployment, ()
    name, options = deployment.name, " and ".join(limit_options(wanted))
    if dry_run:
        return deployment, (warning("limits_moved", f"{options} would be applied to the machine that runs"),)
    running = Running(name=name, recorded=deployment, machine=machine, seen=seen)
    try:
        recorded, _ = move_limits(context, running, wanted)
    except InputError as error:
        told = f"the machine keeps its limits, not {options}: {error.message}; {error.hint}"
        return deployment, (warning("limits_kept", told),)
    told = f"{options} applied to the machine that runs: 'tgi-deploy status {name}' shows how it ends now"
    return recorded or deployment, (warning("limits_moved", told),)
