"""Changes a machine in place: its limits (`extend` and `up`), and the networks that may connect to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.errors import ConflictError, InputError, Problem, warning
from tgi_deploy.operations.deploying.acceptance import limit_options, other_limits
from tgi_deploy.operations.deploying.current_state import current_machine
from tgi_deploy.operations.watching.broken_off import naming_what_exists
from tgi_deploy.operations.watching.limits import Running, move_limits, share_limits
from tgi_deploy.operations.watching.lookup import machine_of
from tgi_deploy.reconcile.clocks import is_past
from tgi_deploy.reconcile.ends import ends_of, stamp
from tgi_deploy.targets.protocol import NetworkChange, NetworkUpdates
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.resource import Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ends import End
    from tgi_deploy.targets.protocol import Launch
    from tgi_deploy.values.deployment import Deployment, ResourceRecord
    from tgi_deploy.values.resource import Found

NETWORK: Final = "network"  # the kind of a step that does not concern a resource


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """The result of `extend`. `ends` are all current limits, earliest first."""

    name: str
    machine_id: str
    ends: tuple[End, ...]

    @property
    def lease(self) -> End | None:
        return next((end for end in self.ends if end.reason == "lease"), None)


def extend(context: Context, name: str, wanted: WantedEnds) -> Extension:
    """Give a running machine the `wanted` limits, or renew its lease if there are none.

    Raises:
        InputError: `no_lease`, and the errors of `current_machine` and `move_limits`.
        ConflictError: `locked`, `already_ending`.
        DeployError: an error of the cloud; the limits are then unchanged.
    """
    with context.store.lock(name, command=context.command):
        running = current_machine(context, name, in_steps=True)
        ends = _living(context, running)
        if wanted == WantedEnds():
            wanted = replaced(wanted, lease_s=_lease_s(name, ends))
        with naming_what_exists(context, name, next_step="the same 'extend' tries again", machine=running.machine):
            recorded, tags = move_limits(context, running, wanted)
            for other in _also_serving(recorded):
                share_limits(context, running.machine, other)
    ends = ends_of(recorded, [{**running.machine.tags, **tags}])
    return Extension(name=name, machine_id=running.machine.id, ends=ends)


def _also_serving(recorded: Deployment | None) -> Iterator[ResourceRecord]:
    """Yield the other machine of an update that replaces its replicas in steps."""
    if recorded is not None and recorded.rollout is not None:
        yield from (item for item in recorded.machines if item != recorded.machine and "id" in item.attributes)


def _living(context: Context, running: Running) -> tuple[End, ...]:
    """Return the machine's ends. Raises ConflictError `already_ending` if one has passed and the machine is running.

    An end that has passed only by this computer's clock may still be moved, because the machine is alive.
    """
    ends = ends_of(running.recorded, [running.machine.tags])
    if not running.machine.alive:
        return ends
    past = next((end.at for end in ends if end.at is not None and is_past(end.at, context.clock.now())), None)
    if past is not None:
        raise ConflictError(
            "already_ending",
            f"'{running.name}' ended at {stamp(past)}: its machine is terminating",
            hint=f"run 'tgi-deploy down {running.name}', then 'tgi-deploy up' for a new machine",
        )
    return ends


def _lease_s(name: str, ends: Sequence[End]) -> int:
    lease_s = next((end.seconds for end in ends if end.reason == "lease"), None)
    if lease_s is None:
        raise InputError(
            "no_lease",
            f"'{name}' has no lease to renew",
            hint=f"'tgi-deploy extend {name} --ttl TIME' sets a limit; so do --max-spend, --idle-timeout and --lease",
        )
    return lease_s


def networks_of(launch: Launch, seen: Sequence[Found]) -> NetworkChange:
    """Return the networks that the options add and remove."""
    return launch.networks(seen) if isinstance(launch, NetworkUpdates) else NetworkChange()


def network_steps(change: NetworkChange, place: str) -> tuple[Step, ...]:
    """Return the steps to show before confirmation."""

    def step(action: Literal["create", "delete"], cidr: str, reason: str) -> Step:
        return Step(action=action, key=NETWORK, kind=NETWORK, place=place, reason=reason, attributes={"id": cidr})

    added = (step("create", cidr, "is named by --allow-cidr") for cidr in change.added)
    removed = (step("delete", cidr, "is no longer named by --allow-cidr") for cidr in change.removed)
    return (*added, *removed)


def with_networks(
    launch: Launch, seen: Sequence[Found], change: NetworkChange, *, dry_run: bool
) -> tuple[Problem, ...]:
    """Allow networks that the options name, revoke those that they no longer name; return a warning for each kind."""
    added, removed = ", ".join(change.added), ", ".join(change.removed)
    opened, closed = (
        ("would be allowed", "would be revoked") if dry_run else ("may connect now", "may no longer connect")
    )
    if not dry_run and isinstance(launch, NetworkUpdates) and change != NetworkChange():
        launch.change_networks(seen, change)
    words = ((added, opened), (removed, closed))
    return tuple(warning("networks_changed", f"{networks} {what}") for networks, what in words if networks)


def with_limits(
    context: Context, ends: WantedEnds, deployment: Deployment, seen: Sequence[Found], *, dry_run: bool
) -> tuple[Deployment, tuple[Problem, ...]]:
    """Apply the requested limits to an existing machine; return the record, and a warning about the change."""
    machine, wanted = machine_of(deployment, seen), other_limits(deployment, ends)
    if machine is None or wanted is None:
        return deployment, ()
    name, options = deployment.name, " and ".join(limit_options(wanted))
    if dry_run:
        return deployment, (warning("limits_moved", f"{options} would be applied to the running machine"),)
    running = Running(name=name, recorded=deployment, machine=machine, seen=seen)
    try:
        recorded, _ = move_limits(context, running, wanted)
    except InputError as error:
        message = f"the machine keeps its limits, not {options}: {error.message}; {error.hint}"
        return deployment, (warning("limits_kept", message),)
    message = f"{options} applied to the running machine: 'tgi-deploy status {name}' shows its limits now"
    return recorded or deployment, (warning("limits_moved", message),)
