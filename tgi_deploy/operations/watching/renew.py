"""The use case `renew`: put off the end of a lease. The owner moves a tag, and the machine reads it.

A command that waits for a machine renews by itself, so that nothing ends under the eyes of its owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from tgi_deploy.errors import ConflictError, DeployError, InputError, warning
from tgi_deploy.operations.watching.broken_off import naming_what_exists
from tgi_deploy.operations.watching.known import machine_of
from tgi_deploy.operations.watching.status import unknown_deployment
from tgi_deploy.reconcile.clocks import is_past
from tgi_deploy.reconcile.ends import TAG_LEASE, End, ends_of, lease_end, stamp
from tgi_deploy.reconcile.observe import observe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tgi_deploy.operations.context import Context
    from tgi_deploy.reconcile.ports import Listener
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.resource import Found

# Renewed when this part of it is over: two renewals may fail before it ends.
_BEAT: Final = 1 / 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Renewal:
    """`until` is the new end of the lease; `ends` are all ends there are now, the earliest first."""

    name: str
    machine_id: str
    until: datetime
    ends: tuple[End, ...]

    @property
    def sooner(self) -> End | None:
        """An end that comes before the lease's and can't be put off."""
        return next((end for end in self.ends if end.reason == "ttl" and end.at and end.at < self.until), None)


def renew(context: Context, name: str, *, for_s: int | None = None) -> Renewal:
    """Let the lease of `name` last `for_s` from now, or as long as it was made for.

    Raises InputError `unknown_deployment` or `no_lease`, ConflictError `lease_over` or `locked`, DeployError
    `no_machine`, and what the cloud raises: then the lease ends when it did before.
    """
    with context.store.lock(name, command=context.command):
        recorded = context.store.load(name)
        seen = observe(name, recorded, cloud=context.cloud, places=context.where(recorded))
        if recorded is None and not seen:
            raise unknown_deployment(context, name)
        machine = _machine(name, recorded, seen)
        lease = _lease(context, name, ends_of(recorded, [machine.tags]))
        until = cast("datetime", lease_end(for_s or lease.seconds or 0, context.clock))
        with naming_what_exists(context, name, go_on=f"'tgi-deploy renew {name}' tries again", machine=machine):
            move_lease(context, machine.place, machine.kind, machine.id, until)
            if recorded is not None:
                recorded = _record(context, recorded, until)
    ends = ends_of(recorded, [{**machine.tags, TAG_LEASE: stamp(until)}])
    return Renewal(name=name, machine_id=machine.id, until=until, ends=ends)


def _machine(name: str, recorded: Deployment | None, seen: Sequence[Found]) -> Found:
    machine = machine_of(recorded, seen)
    if machine is None or not machine.alive:
        raise DeployError(
            "no_machine",
            f"'{name}' has no machine whose lease could be renewed",
            hint=f"'tgi-deploy status {name}' shows what there is, 'tgi-deploy up' makes a new one",
        )
    return machine


def _lease(context: Context, name: str, ends: Sequence[End]) -> End:
    """The lease. One that is over by this computer's clock alone is renewed: its machine still lives."""
    lease = next((end for end in ends if end.reason == "lease"), None)
    if lease is None or lease.at is None:
        raise InputError(
            "no_lease",
            f"'{name}' was launched without --lease: nothing on its machine looks for a renewal",
            hint=f"run 'tgi-deploy down {name}', then 'tgi-deploy up' with --lease",
        )
    if is_past(lease.at, context.clock.now()):
        raise ConflictError(
            "lease_over",
            f"the lease of '{name}' ended at {stamp(lease.at)}: its machine is ending",
            hint=f"run 'tgi-deploy down {name}', then 'tgi-deploy up' for a new machine",
        )
    return lease


def move_lease(context: Context, place: str, kind: str, machine_id: str, until: datetime) -> None:
    """Tell the machine its new end."""
    handler = context.cloud(place).handler(kind)
    handler.complete({"id": machine_id}, {"tags": {TAG_LEASE: stamp(until)}})


def _record(context: Context, recorded: Deployment, until: datetime) -> Deployment:
    executor = context.executor()
    recorded = executor.save(recorded.leased_until(until))
    executor.event(recorded, "renewed", f"the lease lasts until {stamp(until)}")
    return recorded


@dataclass(kw_only=True, slots=True)
class LeaseKeeper:
    """Renews a lease while somebody waits. `until` is its end as far as is known, None where there is no lease."""

    context: Context
    deployment: Deployment
    until: datetime | None
    _due_s: float = field(default=0.0, init=False)

    @classmethod
    def of(cls, context: Context, deployment: Deployment) -> LeaseKeeper:
        return cls(context=context, deployment=deployment, until=deployment.ends.lease_until)

    def beat(self) -> None:
        """Renew, unless that was done less than a third of the lease ago. A failure is told and tried again."""
        lease_s, machine = self.deployment.ends.lease_s, self.deployment.machine
        clock = self.context.clock
        if lease_s is None or machine is None or clock.monotonic() < self._due_s:
            return
        self._due_s = clock.monotonic() + lease_s * _BEAT
        until = cast("datetime", lease_end(lease_s, clock))
        try:
            move_lease(self.context, machine.place, machine.kind, machine.attributes["id"], until)
        except DeployError as error:
            told = f"the lease could not be renewed: {error.message}"
            self.context.reporter.warn(warning("lease_not_renewed", told))
            self._due_s = clock.monotonic() + lease_s * _BEAT**2
        else:
            self.until = until

    def kept_by(self, context: Context) -> Context:
        """The same surroundings; whoever waits in them renews the lease at every look."""
        return replace(context, listener=_Beating(inner=context.listener, keeper=self))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Beating:
    inner: Listener
    keeper: LeaseKeeper

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:
        self.keeper.beat()
        self.inner.phase(phase, detail, elapsed_s, expected_s)

    def line(self, text: str) -> None:
        self.inner.line(text)
