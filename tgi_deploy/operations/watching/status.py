"""The use case `status`: what was recorded, what is there, the difference, and whether it answers. Read-only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tgi_deploy.errors import DeployError, InputError, Problem, warning
from tgi_deploy.operations.watching.broken_off import price_words
from tgi_deploy.operations.watching.fleet import each, is_late, look_at_all
from tgi_deploy.operations.watching.known import machine_of, price_of_all, second_machines
from tgi_deploy.operations.watching.ledger import spent_by
from tgi_deploy.operations.watching.starting import console_of, starting
from tgi_deploy.readiness.spot import notice_of
from tgi_deploy.reconcile.ends import ends_of
from tgi_deploy.reconcile.observe import observe
from tgi_deploy.values.resource import RECLAIMED, STRANGE_RULES, TAG_NAME, MachineState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.watching.fleet import Seen
    from tgi_deploy.operations.watching.starting import Starting
    from tgi_deploy.readiness.waiting import Probe
    from tgi_deploy.reconcile.ends import End
    from tgi_deploy.values.deployment import Deployment
    from tgi_deploy.values.ends import Spent
    from tgi_deploy.values.resource import Found


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """`drift` is how record and world differ; the data name the `key` of the resource.

    `machine` and `probe` are None where there is no machine, or no endpoint to ask.

    `ends` are all ways in which its machine ends by itself, the earliest first. `spot_notice` says that the cloud takes
    a spot machine back, and how it is known. `late`: its machine was asked for a moment ago, and the cloud may not show
    it yet. Only the status of one deployment has `starting`, how far an engine that does not answer has come, and
    `spent`, what machines of its name have cost so far.
    """

    name: str
    recorded: Deployment | None
    seen: tuple[Found, ...]
    drift: tuple[Problem, ...]
    machine: MachineState | None
    probe: Probe | None
    ends: tuple[End, ...] = ()
    spot_notice: str | None = None
    starting: Starting | None = None
    spent: Spent | None = None
    late: bool = False

    @property
    def healthy(self) -> bool:
        return self.probe is not None and self.probe.ok

    @property
    def gone(self) -> bool:
        """Its recorded machine is no more."""
        record = self.recorded.machine if self.recorded else None
        return self.machine is None and record is not None and "id" in record.attributes and not self.late

    @property
    def silent(self) -> bool:
        """Its engine was ready once, and does not answer now."""
        ready = self.recorded is not None and self.recorded.status == "ready"
        return ready and self.probe is not None and not self.probe.ok


def status(context: Context, name: str) -> Status:
    """Raises InputError `unknown_deployment` when neither a record nor a tag knows the name."""
    recorded = context.store.load(name)
    seen = observe(name, recorded, cloud=context.cloud, places=context.where(recorded), side=recorded is None)
    if recorded is None and not seen:
        raise unknown_deployment(context, name)
    machine = machine_of(recorded, seen)
    state = context.cloud(machine.place).machine(machine.id) if machine else None
    return _status(context, name, recorded, seen, state, alone=True)


def statuses(context: Context) -> list[Status]:
    """Of every deployment, by one search of each kind in each place; endpoints are asked some at a time.

    A record that can't be read is told as a difference: the others are still worth seeing.
    """
    return each(context, look_at_all(context), lambda item: _status_of(context, item))


def _status_of(context: Context, item: Seen) -> Status:
    machine = machine_of(item.recorded, item.everything)
    found = _status(context, item.name, item.recorded, item.everything, _state(machine))
    if item.unreadable is None:
        return found
    told = f"{item.unreadable.message}; {item.unreadable.hint}"
    return replace(found, drift=(warning(item.unreadable.code, told, key="record"),))


def _state(machine: Found | None) -> MachineState | None:
    if machine is None:
        return None
    told = machine.attributes
    return MachineState(
        state=machine.state,  # type: ignore[arg-type]  # the cloud's own words are the port's
        reason_code=told.get("reason_code"),
        reason=told.get("reason"),
        address=told.get("address") or None,
        reclaimed=RECLAIMED in told,
    )


def _status(
    context: Context,
    name: str,
    recorded: Deployment | None,
    seen: tuple[Found, ...],
    state: MachineState | None,
    *,
    alone: bool = False,
) -> Status:
    machine = machine_of(recorded, seen)
    probe = context.probe_of(recorded) if recorded and machine and machine.alive else None
    healthy = probe is not None and probe.ok
    console = console_of(context, machine) if machine else lambda: ""
    late = is_late(context, recorded, seen)
    return Status(
        name=name,
        recorded=recorded,
        seen=seen,
        drift=tuple(drift(context, recorded, seen, late=late)),
        machine=state,
        probe=probe,
        ends=ends_of(recorded, [machine.tags] if machine else []),
        spot_notice=_spot_notice(machine, state, seen, console, healthy=healthy),
        starting=starting(context, recorded, state, console) if alone and not healthy else None,
        spent=spent_by(context, recorded) if alone and recorded else None,
        late=late,
    )


def drift(context: Context, recorded: Deployment | None, seen: Sequence[Found], *, late: bool = False) -> list[Problem]:
    """The differences, record first. A machine that is `late` is not gone."""
    records = recorded.resources if recorded else ()
    known = {record.attributes["id"] for record in records if "id" in record.attributes}
    there, second = {found.id: found for found in seen}, second_machines(recorded, seen)
    differences = [
        warning("gone", f"{record.kind} {record.attributes['id']} is recorded and gone", key=record.key)
        for record in records
        if "id" in record.attributes and record.attributes["id"] not in there and not (late and record.is_machine)
    ]
    differences.extend(
        warning("unsettled", f"{record.kind}: creating it was begun, not finished", key=record.key)
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
        warning("unrecorded", f"{found.kind} {found.id} exists and is not in the record", key=found.key)
        for found in seen
        if not found.attached and found.id not in known and found not in second
    )
    differences.extend(
        warning("not_running", f"{found.kind} {found.id} is {found.state}", key=found.key)
        for found in seen
        if found.id in known and not found.alive
    )
    return [*differences, *added_rules(context, seen)]


def second_machine(recorded: Deployment | None, machine: Found) -> str:
    """Return a sentence about a machine that runs beside the deployment's own."""
    costs = price_words(price_of_all(recorded, (machine,)))
    return f"a second {machine.kind} of it is {machine.state} in {machine.place}: {machine.id}{costs}"


def added_rules(context: Context, seen: Sequence[Found]) -> list[Problem]:
    """Doors that somebody has opened by hand. They are told of, and go with the group; nothing closes them before."""
    return [
        warning(
            "rule_added",
            f"{found.kind} {found.id} lets in {found.attributes[STRANGE_RULES]}, by a rule added by hand; to "
            f"look at it: {context.target_at(found.place).by_hand.look_command(found.kind, found.id, found.place)}",
            key=found.key,
        )
        for found in seen
        if found.attributes.get(STRANGE_RULES)
    ]


def unknown_deployment(context: Context, name: str) -> InputError:
    """Neither a record nor a tag knows the name. With the nearest recorded names."""
    return InputError(
        "unknown_deployment",
        f"there is no deployment '{name}' in {', '.join(context.regions)}",
        hint=f"{_meant(context, name)}'tgi-deploy list' shows what there is; --region looks elsewhere",
    )


def unrecorded_deployment(context: Context, name: str) -> InputError:
    """For what works from the record alone: the cloud was not asked. With the nearest recorded names."""
    return InputError(
        "unknown_deployment",
        f"there is no record of '{name}' here",
        hint=f"{_meant(context, name)}'tgi-deploy status {name}' looks for it in the cloud, by its tags",
    )


def _meant(context: Context, name: str) -> str:
    near = recorded_like(context, name)
    return f"did you mean {' or '.join(near)}? " if near else ""


def recorded_like(context: Context, name: str) -> list[str]:
    """The recorded names nearest to one that is not recorded."""
    import difflib  # noqa: PLC0415 -- only for a name that nobody knows

    return difflib.get_close_matches(name, context.store.names(), n=2)


def _spot_notice(
    machine: Found | None,
    state: MachineState | None,
    seen: Iterable[Found],
    console: Callable[[], str],
    *,
    healthy: bool,
) -> str | None:
    """The notice in a sentence, None where there is none.

    What was read anyway comes first: the machine's end and its spot request. The console is read only where a spot
    machine does not answer.
    """
    if machine is None or machine.attributes.get("market") != "spot":
        return None
    if state is not None and state.reclaimed:
        return f"the cloud took the spot machine back: {state.reason or state.reason_code}"
    for item in seen:
        if RECLAIMED in item.attributes:
            return f"the cloud takes the spot machine back: {item.id} is {item.attributes[RECLAIMED]}"
    if healthy or not machine.alive:
        return None
    try:
        notice = notice_of(console())
    except DeployError:
        return None
    return None if notice is None else str(notice)
