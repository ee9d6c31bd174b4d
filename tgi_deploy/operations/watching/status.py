"""The use case `status`: compares the record with the existing resources, and checks the endpoint. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError, NotHealthyError, Problem, warning
from tgi_deploy.operations.launching.traffic import unencrypted
from tgi_deploy.operations.watching.broken_off import price_words
from tgi_deploy.operations.watching.fleet import each, is_late, look_at_all
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.operations.watching.lookup import (
    created_at,
    is_stopped,
    look_at,
    machine_of,
    other_machines,
    price_of,
    price_of_all,
    second_machines,
    standing_price,
    stopped_error,
    tagged_deployment,
)
from tgi_deploy.operations.watching.starting import console_of, starting
from tgi_deploy.readiness.spot import notice_of
from tgi_deploy.reconcile.ends import ends_of, moment_of
from tgi_deploy.reconcile.observe import owners_of
from tgi_deploy.rollout.stages import is_promoted, next_commands
from tgi_deploy.targets.protocol import Scaling
from tgi_deploy.values.names import is_name
from tgi_deploy.values.resource import (
    DESCRIPTION_ONLY,
    FOREIGN_RULES,
    RECLAIMED,
    TAG_ID,
    TAG_NAME,
    UNENFORCED,
    UNSERVED,
    MachineState,
    revision_of,
)
from tgi_deploy.values.results import Replica, Starting
from tgi_deploy.values.serving import TUNNEL_NOTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.watching.fleet import Seen
    from tgi_deploy.readiness.waiting import Probe
    from tgi_deploy.reconcile.ends import End
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.resource import AutoscalerState, Found, ReplicaState


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The status of a deployment. `deployment` is the record or, if `recorded` is None, built from tags.

    It is None if neither can be read. `drift` lists differences between record and reality, with the `key` of the
    resource. `machine` and `probe` are None without a machine or an endpoint. `not_searched` is why the machine's
    location could not be queried. `ends` are all limits of its machine, the earliest first. `spot_notice` is a sentence
    if the cloud is reclaiming a spot machine. `late` is whether its machine was requested a moment ago and may not be
    visible yet. Only the status of a single deployment has `starting` (the progress of an engine that does not answer),
    `spent` (the cost of its name so far), `verified_at` (when it was last verified) and `autoscaler`.
    """

    name: str
    recorded: Deployment | None
    deployment: Deployment | None
    seen: tuple[Found, ...]
    drift: tuple[Problem, ...]
    machine: MachineState | None
    probe: Probe | None
    replicas: tuple[Replica, ...] = ()
    ends: tuple[End, ...] = ()
    spot_notice: str | None = None
    starting: Starting | None = None
    spent: Spent | None = None
    verified_at: datetime | None = None
    late: bool = False
    not_searched: DeployError | None = None
    autoscaler: AutoscalerState | None = None

    @property
    def url(self) -> str | None:
        return self.deployment.endpoint if self.deployment else None

    @property
    def tunneled(self) -> bool:
        """Whether its URL works only through a tunnel."""
        machine = self.deployment.machine if self.deployment else None
        return machine is not None and TUNNEL_NOTE in machine.notes

    @property
    def healthy(self) -> bool:
        return self.probe is not None and self.probe.ok

    @property
    def missing(self) -> bool:
        """Whether its recorded machine no longer exists, or only its description does."""
        record, seen = self.recorded.machine if self.recorded else None, self.machine_seen
        known = record is not None and "id" in record.attributes
        gone = self.machine is None or (seen is not None and DESCRIPTION_ONLY in seen.attributes)
        return known and gone and not self.late and self.not_searched is None

    @property
    def not_responding(self) -> bool:
        """Whether its engine was ready before, but does not answer now."""
        ready = self.recorded is not None and self.recorded.status == "ready"
        return ready and self.probe is not None and not self.probe.ok

    @property
    def two_revisions(self) -> str:
        """Return what finishes an update of which the replicas of both revisions run; empty if there is none."""
        both = self.recorded is not None and self.machine is not None and bool(self.machine.replicas)
        return next_commands(self.recorded) if both and self.recorded and is_promoted(self.recorded) else ""

    @property
    def machine_seen(self) -> Found | None:
        return machine_of(self.recorded, self.seen)

    @property
    def stopped(self) -> bool:
        """Whether its machine is stopped and can be started again."""
        return is_stopped(self.recorded, self.machine_seen)

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Return the current hourly cost; None if unknown. Without a machine, that is what is billed beside it.

        Of nodes that a cluster added, it is the plan's price.
        """
        if self.missing:
            return standing_price(self.recorded, self.seen)
        price, recorded = price_of(self.recorded, self.seen), self.recorded
        if price is None and recorded is not None and recorded.usd_per_hour is None:
            return recorded.billed_usd_per_hour
        return price

    @property
    def owners(self) -> tuple[str, ...]:
        return owners_of(self.recorded, self.seen)

    @property
    def unencrypted(self) -> str | None:
        """Return a sentence about unencrypted traffic; None if there is none."""
        return unencrypted(self.deployment)

    @property
    def failure(self) -> NotHealthyError | None:
        """Return why it does not serve now, and what to do; None if it serves, or if that is unknown."""
        return not_serving(self)


def status(context: Context, name: str) -> Status:
    """Return the status. Raises InputError `unknown_deployment` if neither a record nor tags have the name."""
    sight = look_at(context, name)
    machine = sight.machine
    state = context.cloud(machine.place).machine(machine.id) if machine else None
    found = _status(context, name, sight.recorded, sight.seen, state, alone=True)
    if sight.recorded is None:
        return found
    verified = [event.at for event in context.store.events(name) if event.code == "ready"]
    return replace(
        found,
        spent=spent_by(context, sight.recorded),
        verified_at=max(verified, default=None),
        autoscaler=_autoscaler(context, sight.recorded),
    )


def _autoscaler(context: Context, recorded: Deployment) -> AutoscalerState | None:
    """Return the state of the autoscaler; None if the record has no range of replicas."""
    target = context.target(recorded.target)
    if not isinstance(target, Scaling) or recorded.plan is None or not recorded.plan.requirements.replicas.varies:
        return None
    return target.autoscaler(recorded)


def statuses(context: Context, *, not_searched: dict[str, DeployError] | None = None) -> list[Status]:
    """Return the status of all deployments, with one search per resource type and location.

    Endpoints are probed in batches. An unreadable record is reported as drift. With `not_searched`, errors of locations
    are stored there, and do not end the search.
    """
    everything = look_at_all(context, whole=not_searched is not None, not_searched=not_searched)
    return each(context, everything, lambda item: _status_of(context, item, not_searched or {}))


def _status_of(context: Context, item: Seen, not_searched: Mapping[str, DeployError]) -> Status:
    record = item.recorded.machine if item.recorded else None
    why = not_searched.get(record.place) if record else None
    state = _state(machine_of(item.recorded, item.everything))
    found = _status(context, item.name, item.recorded, item.everything, state, why=why)
    if item.unreadable is None:
        return found
    message = f"{item.unreadable.message}; {item.unreadable.hint}"
    return replace(found, drift=(warning(item.unreadable.code, message, key="record"),))


def _state(machine: Found | None) -> MachineState | None:
    if machine is None:
        return None
    attributes = machine.attributes
    return MachineState(
        state=machine.state,  # type: ignore[arg-type]  # the cloud's own words are the port's
        reason_code=attributes.get("reason_code"),
        reason=attributes.get("reason"),
        address=attributes.get("address") or None,
        reclaimed=RECLAIMED in attributes,
    )


def _status(
    context: Context,
    name: str,
    recorded: Deployment | None,
    seen: tuple[Found, ...],
    state: MachineState | None,
    *,
    alone: bool = False,
    why: DeployError | None = None,
) -> Status:
    machine = machine_of(recorded, seen)
    deployment = recorded or (tagged_deployment(context, name, seen) if seen else None)
    reachable = why is not None or (machine is not None and machine.alive)
    probe, unknown = _probed(context, deployment) if deployment and reachable else (None, ())
    healthy = probe is not None and probe.ok
    console = console_of(context, machine) if machine else lambda: ""
    late = why is None and _is_late(context, recorded, seen)
    return Status(
        name=name,
        recorded=recorded,
        deployment=deployment,
        seen=seen,
        drift=(*unknown, *drift(context, recorded, seen, late=late)) if why is None else unknown,
        machine=state,
        probe=probe,
        replicas=tuple(_replicas(context, deployment, seen, state, healthy=healthy)),
        ends=ends_of(recorded, [machine.tags] if machine else []),
        spot_notice=_spot_notice(machine, state, seen, console, healthy=healthy),
        starting=starting(context, deployment, state, console) if alone and deployment and not healthy else None,
        late=late,
        not_searched=why,
    )


def _probed(context: Context, deployment: Deployment) -> tuple[Probe | None, tuple[Problem, ...]]:
    """Return the result of the health check. Tags can name an engine that this version does not support."""
    try:
        return context.probe_of(deployment), ()
    except DeployError as error:
        return None, (warning(error.code, f"its endpoint was not checked: {error.message}", key="endpoint"),)


def _is_late(context: Context, recorded: Deployment | None, seen: Sequence[Found]) -> bool:
    """Return whether the machine may be too new to be visible; True if its location can't be queried."""
    try:
        return is_late(context, recorded, seen)
    except DeployError:
        return True


def _replicas(
    context: Context,
    deployment: Deployment | None,
    seen: Sequence[Found],
    state: MachineState | None,
    *,
    healthy: bool,
) -> Iterator[Replica]:
    """Yield the machines of a deployment, the serving one first; for a machine with several replicas, those."""
    first, now = machine_of(deployment, seen), context.clock.now()
    others = other_machines(deployment, seen)
    if first and state and len(state.replicas) > (not others):
        for found in (first, *others):
            parts = (state if found is first else context.cloud(found.place).machine(found.id)).replicas
            yield from (_replica(item, revision_of(found.key), found.place, now) for item in parts)
        return
    for found in (first, *others) if first else ():
        made = created_at(found)
        yield Replica(
            id=found.id,
            revision=revision_of(found.key) or (deployment.current.number if deployment else None),
            location=found.place,
            status="ready" if healthy and found is first else found.state,
            age_s=None if made is None else max(0, round((now - made).total_seconds())),
            usd_per_hour=price_of(deployment, (found,)) if found is first else price_of_all(deployment, (found,)),
        )


def _replica(state: ReplicaState, number: int | None, place: str, now: datetime) -> Replica:
    made = moment_of(state.created)
    return Replica(
        id=state.id,
        revision=number,
        location=place,
        status=state.status,
        age_s=None if made is None else max(0, round((now - made).total_seconds())),
        usd_per_hour=None,
    )


def not_serving(found: Status) -> NotHealthyError | None:
    """Return why a deployment does not serve now, and what to do; None if it serves, or if that is unknown."""
    name = found.name
    if found.healthy or found.deployment is None or not is_name(name):  # tags can be unsafe in a command
        return None
    if found.stopped:
        return stopped_error(name)
    if found.missing:
        return NotHealthyError(
            "machine_missing",
            f"'{name}' does not serve: it has no running machine{_since(found)}",
            hint=f"'tgi-deploy diagnose {name}' shows why it terminated; the same 'up' launches another one, "
            f"'tgi-deploy down {name}' removes the rest",
        )
    if found.probe is None and found.machine is not None and found.machine.state == "running":
        return None
    why = (
        f"its endpoint {found.probe}"
        if found.probe
        else found.machine.description
        if found.machine
        else "it has no machine"
    )
    return NotHealthyError(
        "not_answering",
        f"'{name}' does not serve: {why}{_since(found)}",
        hint=f"'tgi-deploy logs {name}' shows its log, 'tgi-deploy diagnose {name}' finds the cause, "
        f"'tgi-deploy down {name}' removes it",
    )


def _since(found: Status) -> str:
    return "" if found.verified_at is None else f"; it was last verified at {found.verified_at:%Y-%m-%d %H:%M} UTC"


def drift(context: Context, recorded: Deployment | None, seen: Sequence[Found], *, late: bool = False) -> list[Problem]:
    """Return the differences, starting with those of recorded resources. A `late` machine is not missing."""
    records = recorded.resources if recorded else ()
    known = {record.attributes["id"] for record in records if "id" in record.attributes}
    there, second = {found.id: found for found in seen}, second_machines(recorded, seen)
    differences = [
        warning(
            "resource_missing",
            f"{record.kind} {record.attributes['id']} is recorded but no longer exists",
            key=record.key,
        )
        for record in records
        if "id" in record.attributes and record.attributes["id"] not in there and not (late and record.is_machine)
    ]
    differences.extend(
        warning("unsettled", f"{record.kind}: its creation is not finished", key=record.key)
        for record in records
        if record.state == "intent" or (late and record.is_machine)
    )
    differences.extend(
        warning(
            "second_machine",
            f"{second_machine(recorded, found)}; the same 'up' removes it, "
            f"'tgi-deploy down {found.tags[TAG_NAME]}' removes both",
            key=found.key,
        )
        for found in second
    )
    differences.extend(
        warning("unrecorded", f"{found.kind} {found.id} exists but is not in the record", key=found.key)
        for found in seen
        if not found.attached
        and found.id not in known
        and found not in second
        and not _beside(context, recorded, found)
    )
    differences.extend(
        warning(
            "other_instance_type",
            f"{found.kind} {found.id} runs on {found.attributes['instance_type']}, which had capacity: its price may"
            f" differ from that of {recorded.plan.chosen.instance_type}",
            key=found.key,
        )
        for found in seen
        if recorded is not None and recorded.plan is not None and found.is_machine and found.alive and found.id in known
        if found.attributes.get("instance_type", "") not in {"", recorded.plan.chosen.instance_type}
    )
    differences.extend(
        warning("not_running", f"{found.kind} {found.id}: {_why_not_running(found)}", key=found.key)
        for found in seen
        if found.id in known and not found.alive and not (recorded and recorded.status == found.state == "stopped")
    )
    if recorded is not None and recorded.status == "ready":
        differences.extend(_unenforced(context, seen))
    differences.extend(
        warning("host_not_served", f"{found.id} leads no callers here: {found.attributes[UNSERVED]}", key=found.key)
        for found in seen
        if found.attributes.get(UNSERVED)
    )
    return [*differences, *added_rules(context, seen)]


def _why_not_running(found: Found) -> str:
    return found.attributes.get(DESCRIPTION_ONLY) or f"it is {found.state}"


def _beside(context: Context, recorded: Deployment | None, found: Found) -> bool:
    """Return whether a resource was added to a running deployment later, for its limits or its range of replicas."""
    ours = recorded is not None and found.tags.get(TAG_ID) == recorded.id
    return ours and context.cloud(found.place).handler(found.kind).rare


def second_machine(recorded: Deployment | None, machine: Found) -> str:
    """Return a sentence about a machine that runs in addition to the deployment's own."""
    costs = price_words(price_of_all(recorded, (machine,)))
    return f"a second {machine.kind} is {machine.state} in {machine.place}: {machine.id}{costs}"


def _unenforced(context: Context, seen: Sequence[Found]) -> Iterator[Problem]:
    """Yield warnings for limits that are not enforced now. While a deployment starts, that is expected."""
    for found in seen:
        if found.attributes.get(UNENFORCED):
            yield warning(
                "limits_not_enforced",
                f"the limits are not enforced now, because the pod of the Job is not running "
                f"({found.attributes[UNENFORCED]}); to inspect it: {_look_command(context, found)}",
                key=found.key,
            )


def added_rules(context: Context, seen: Sequence[Found]) -> list[Problem]:
    """Return warnings for firewall rules added by hand. They stay until the security group is deleted."""
    return [
        warning(
            "security_group_drift",
            f"{found.kind} {found.id} allows {found.attributes[FOREIGN_RULES]}, by a rule added by hand; to "
            f"inspect it: {_look_command(context, found)}",
            key=found.key,
        )
        for found in seen
        if found.attributes.get(FOREIGN_RULES)
    ]


def _look_command(context: Context, found: Found) -> str | None:
    return context.target_at(found.place).manual_commands.look_command(found.kind, found.id, found.place)


def _spot_notice(
    machine: Found | None,
    state: MachineState | None,
    seen: Iterable[Found],
    console: Callable[[], str],
    *,
    healthy: bool,
) -> str | None:
    """Return a sentence if the cloud is reclaiming, or has reclaimed, a spot machine; else None.

    The machine's state and its spot request were read before. The console is read only if a spot machine does not
    answer.
    """
    if machine is None or machine.attributes.get("market") != "spot":
        return None
    if state is not None and state.reclaimed:
        return f"the cloud reclaimed the spot machine: {state.reason or state.reason_code}"
    for item in seen:
        if RECLAIMED in item.attributes:
            return f"the cloud is reclaiming the spot machine: {item.id} is {item.attributes[RECLAIMED]}"
    if healthy or not machine.alive:
        return None
    try:
        notice = notice_of(console())
    except DeployError:
        return None
    return None if notice is None else str(notice)
