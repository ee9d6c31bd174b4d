"""The use cases `stop`, `start` and `restart`. The machine, its revision and its disk stay.

Each request is recorded before the call, and its outcome afterwards: the next `stop`, `start` or `up` finishes a killed
run, and `down` removes what exists. The ledger has a line for the cost of a stopped machine. Its end by --ttl or
--max-spend still applies while it is stopped; its lease and its idle time restart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, cast

from tgi_deploy.errors import ConflictError, DeployError, InputError, NotHealthyError
from tgi_deploy.operations.deploying.current_state import current_machine
from tgi_deploy.operations.deploying.failure_report import with_diagnosis
from tgi_deploy.operations.deploying.readiness import wait
from tgi_deploy.operations.deploying.rolling import front_of, promote
from tgi_deploy.operations.deploying.service import prove_known, unknown_release
from tgi_deploy.operations.launching.traffic import url_to
from tgi_deploy.operations.watching.broken_off import naming_what_exists
from tgi_deploy.operations.watching.ledger import STARTED, STOPPED
from tgi_deploy.operations.watching.limits import (
    LeaseKeeper,
    Running,
    ceiling_of,
    keep_ceiling,
    move_limits,
    with_tags,
)
from tgi_deploy.operations.watching.lookup import SWITCHED, is_stopped, machine_of, price_of
from tgi_deploy.planner.time_to_ready import phases_of_restart
from tgi_deploy.reconcile.ends import (
    NO_LIMIT,
    TAG_IDLE_S,
    TAG_LEASE,
    TAG_LEASE_S,
    ends_of,
    lease_end,
    moved_tag,
    reads_tags,
    stamp,
    ttl_end,
)
from tgi_deploy.reconcile.executor import event_data
from tgi_deploy.reconcile.retry import PollPolicy, polls
from tgi_deploy.values.base import replaced
from tgi_deploy.values.ends import SHORTEST_TTL_S, WantedEnds
from tgi_deploy.values.resource import STARTABLE, TAG_EXPIRES, Found, MachineState, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from decimal import Decimal

    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.deploying.service import Proof, ReadyLevel, ReportedAs
    from tgi_deploy.readiness.waiting import ReadyReport
    from tgi_deploy.reconcile.ends import End
    from tgi_deploy.reconcile.ports import Pausing
    from tgi_deploy.values.deployment import Deployment, DeploymentStatus, RecordState

Switch = Literal["stop", "start", "restart"]
# Time for the rest of a shutdown, after the engine's grace period. Clouds cut a shutdown off after some minutes.
_SHUTDOWN_S: Final = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchProposal:
    """The change to confirm. `usd_per_hour` is billed afterwards; `emptied` is whether the weights will be lost.

    `grace_s` is how long open requests may take to finish.
    """

    switch: Switch
    name: str
    machine: Found
    usd_per_hour: Decimal | None
    ends: tuple[End, ...]
    grace_s: int
    emptied: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchOutcome:
    """The outcome. `changed` is False if there was nothing to do, or the user declined.

    `deployment` is None without a record; the engine is then neither awaited nor verified.
    """

    switch: Switch
    name: str
    machine_id: str
    deployment: Deployment | None
    usd_per_hour: Decimal | None
    ends: tuple[End, ...] = ()
    endpoint: str | None = None
    changed: bool = True
    declined: bool = False
    ready: ReadyReport | None = None
    proof: Proof | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchRequest:
    """The request. `reported_as` returns all versions that a release may report.

    Without `wait`, the engine is not contacted.
    """

    name: str
    confirm: Callable[[SwitchProposal], bool] = lambda _proposal: True
    level: ReadyLevel = "full"
    reported_as: ReportedAs = unknown_release
    wait: bool = True


def stop(context: Context, request: SwitchRequest) -> SwitchOutcome:
    """Stop the machine once its in-flight requests have finished. The disk is kept and billed.

    Raises:
        InputError: `unknown_deployment`; `spot_not_stoppable`, `not_stoppable` for a machine that cannot be stopped.
        ConflictError: `locked`, `being_removed`, `update_unfinished`, `name_taken`.
        DeployError: `machine_missing`, `not_stopped`, and the errors of the cloud.
    """
    with context.store.lock(request.name, command=context.command):
        at = current_machine(context, request.name)
        if at.machine.attributes.get("market") == "spot":
            raise InputError(
                "spot_not_stoppable",
                f"'{at.name}' runs on a spot machine, which cannot be stopped and started again",
                hint=f"'tgi-deploy down {at.name}' removes it; an on-demand machine can be stopped",
            )
        if not context.target_at(at.machine.place).facts.stops:
            raise InputError(
                "not_stoppable",
                f"'{at.name}' runs on {at.machine.place}, where a deployment can't be stopped without removing it",
                hint=f"'tgi-deploy down {at.name}' removes it; the same 'up' brings it up again",
            )
        settled = at.recorded is None or at.recorded.status == "stopped"
        if at.machine.state == "stopped" and settled and not _is_under_way(at.recorded):
            return _outcome("stop", at, changed=False)
        if not request.confirm(_proposal(context, "stop", at)):
            return _outcome("stop", at, changed=False, declined=True)
        with naming_what_exists(context, at.name, next_step="the same 'stop' resumes it", machine=at.machine):
            return _outcome("stop", _stop(context, at))


def start(context: Context, request: SwitchRequest) -> SwitchOutcome:
    """Start the machine unless it is running, wait for the engine, and verify it.

    Raises:
        InputError: `unknown_deployment`; `max_spend_reached`.
        ConflictError: `locked`, `being_removed`, `update_unfinished`, `name_taken`; `limit_reached`.
        DeployError: `machine_missing`; `not_started`, also without capacity: the machine then stays stopped.
        NotHealthyError: the engine did not become ready; the machine is running.
    """
    with context.store.lock(request.name, command=context.command):
        at = current_machine(context, request.name)
        if _serves(context, at):
            return _outcome("start", at, changed=False)
        check_time_left(context, at)
        if not request.confirm(_proposal(context, "start", at)):
            return _outcome("start", at, changed=False, declined=True)
        with naming_what_exists(context, at.name, next_step="the same 'start' resumes it", machine=at.machine):
            return started(context, request, at)


def started(context: Context, request: SwitchRequest, at: Running) -> SwitchOutcome:
    """Start this machine, wait for its engine and verify it. Raises the errors of `start`."""
    found = context.cloud(at.machine.place).handler(at.machine.kind).read(at.machine.attributes)
    at = replace(at, machine=found or at.machine)
    before = _console(context, at.machine)
    at, address = _resume(context, at)
    return _wait_and_prove(context, request, "start", at, address, before=before)


def stopped_machine(deployment: Deployment, seen: Sequence[Found]) -> Running | None:
    """Return the machine that `up` should start, or keep starting, instead of creating one.

    Raises ConflictError `name_taken` for a stopped machine without a record here.
    """
    machine, record = machine_of(deployment, seen), deployment.machine
    if machine is None or deployment.rollout is not None:
        return None
    if is_stopped(deployment, machine) and record is None:
        raise ConflictError(
            "name_taken",
            f"a machine named '{deployment.name}' is stopped in {machine.place} ({machine.id}), "
            "and its record is not on this computer",
            hint=f"'tgi-deploy start {deployment.name}' starts it, and the same 'up' then adopts it; "
            f"'tgi-deploy down {deployment.name}' removes it",
        )
    if not (is_stopped(deployment, machine) or (machine.alive and record is not None and record.state in SWITCHED)):
        return None
    return Running(name=deployment.name, recorded=deployment, machine=machine, seen=seen)


def restart(context: Context, request: SwitchRequest) -> SwitchOutcome:
    """Restart the engine on the running machine, wait for it, and verify it. Raises the errors of `start`."""
    with context.store.lock(request.name, command=context.command):
        at = current_machine(context, request.name)
        if not at.machine.alive:
            raise DeployError(
                "machine_missing",
                f"'{at.name}' has no running machine: {at.machine.id} is {at.machine.state}",
                hint=f"'tgi-deploy start {at.name}' starts a stopped one",
            )
        if not context.target_at(at.machine.place).facts.restarts:
            raise InputError(
                "not_restartable",
                f"'{at.name}' runs on {at.machine.place}, where an engine can't be restarted",
                hint=f"'tgi-deploy status {at.name}' shows its state; 'tgi-deploy down {at.name}' and the same 'up' "
                "create it again",
            )
        if not request.confirm(_proposal(context, "restart", at)):
            return _outcome("restart", at, changed=False, declined=True)
        with naming_what_exists(context, at.name, next_step="run the same 'restart' again", machine=at.machine):
            before = _console(context, at.machine)
            at = _save_state(context, at, status="running")
            _step(context, at, "restart", "begun")
            if not _pausing(context, at.machine).restart(at.machine.attributes):
                _await_exit(context, at)
            _step(context, at, "restart", "done")
            address = context.cloud(at.machine.place).machine(at.machine.id).address or ""
            return _wait_and_prove(context, request, "restart", at, address, before=before)


def _is_under_way(recorded: Deployment | None) -> bool:
    record = recorded.machine if recorded else None
    return record is not None and record.state in {"stopping", "starting"}


def _serves(context: Context, at: Running) -> bool:
    if not at.machine.alive or at.recorded is None or at.recorded.status != "ready":
        return at.machine.alive and at.recorded is None
    probe = context.probe_of(at.recorded)
    return probe is not None and probe.ok and not _is_under_way(at.recorded)


def _proposal(context: Context, switch: Switch, at: Running) -> SwitchProposal:
    then = _seen_as(at.machine, "stopped" if switch == "stop" else "running")
    return SwitchProposal(
        switch=switch,
        name=at.name,
        machine=at.machine,
        usd_per_hour=price_of(at.recorded, (then,)),
        ends=ends_of(at.recorded, [at.machine.tags]),
        grace_s=_grace_s(context, at.recorded) if at.recorded and at.machine.alive else 0,
        emptied=switch != "restart" and _uses_instance_storage(at.recorded),
    )


def _grace_s(context: Context, recorded: Deployment) -> int:
    front = front_of(context, recorded)
    return recorded.current.grace_s if front is None else front.grace_s(recorded)


def _uses_instance_storage(recorded: Deployment | None) -> bool:
    """Return whether the weights are on instance storage, which a stop erases."""
    return recorded is not None and recorded.plan is not None and recorded.plan.storage.weights_on_nvme


def _outcome(switch: Switch, at: Running, *, changed: bool = True, declined: bool = False) -> SwitchOutcome:
    return SwitchOutcome(
        switch=switch,
        name=at.name,
        machine_id=at.machine.id,
        deployment=at.recorded,
        usd_per_hour=price_of(at.recorded, (at.machine,)),
        ends=ends_of(at.recorded, [at.machine.tags]),
        endpoint=at.recorded.endpoint if at.recorded else None,
        changed=changed,
        declined=declined,
    )


def _stop(context: Context, at: Running) -> Running:
    """Stop the machine, wait until it is stopped, and record that only its disk is billed from then on."""
    at = _save_state(context, at, state="stopping")
    _step(context, at, "stop", "begun")
    if at.machine.state != "stopped":
        _await_up(context, at)
        _pausing(context, at.machine).stop(at.machine.attributes)
        _await_down(context, at)
    return record_stopped(context, replace(at, machine=_seen_as(at.machine, "stopped")))


def record_stopped(context: Context, at: Running) -> Running:
    """Record that the machine is stopped. The price comes first: the next run of a killed one then repeats both."""
    _save_price(context, at, STOPPED)
    at = _save_state(context, at, state="stopped", status="stopped")
    _step(context, at, "stop", "done")
    return _pause_ends(context, at)


def _resume(context: Context, at: Running) -> tuple[Running, str]:
    """Start the machine, wait until it runs, and return its new address.

    Raises DeployError `not_started` if it does not start and stays stopped.
    """
    check_time_left(context, at)
    if not at.machine.alive:
        down = _await_down(context, at)
        _step(context, at, "start", "begun")
        at = _save_state(context, _resume_ends(context, at), state="starting")
        _save_price(context, at, STARTED)
        try:
            at, state = _start(context, at, down)
        except DeployError as error:
            if context.cloud(at.machine.place).machine(at.machine.id).state != "stopped":
                raise
            at = record_stopped(context, replace(at, machine=_seen_as(at.machine, "stopped")))
            raise _not_started(at, error) from error
        _step(context, at, "start", "done")
    else:
        state = context.cloud(at.machine.place).machine(at.machine.id)
    return _save_state(context, at, state="created", status="running"), state.address or ""


def _start(context: Context, at: Running, down: MachineState) -> tuple[Running, MachineState]:
    """Start the machine and return its state. `down` is the stopped state, which a stale read may still report."""
    cloud, machine = context.cloud(at.machine.place), at.machine
    _pausing(context, machine).start(machine.attributes)
    state = MachineState(state="missing")
    for _ in polls(context.clock, context.pace.running):
        state = cloud.machine(machine.id)
        at_once = context.target_at(machine.place).facts.shows_at_once
        again = state.state == "stopped" and state.why != down.why
        if at_once or again or (state.state == "running" and state.address):
            break
    if state.state != "running":
        raise DeployError("not_started", f"starting {machine.kind} {machine.id}: it {state.description}")
    found = cloud.handler(machine.kind).read(machine.attributes)
    return replace(at, machine=found or _seen_as(machine, "running")), state


def _not_started(at: Running, error: DeployError) -> DeployError:
    price = price_of(at.recorded, (at.machine,))
    costs = f" and costs ${price:.4f} an hour" if price else ""
    return DeployError(
        "not_started",
        f"'{at.name}' could not be started: {error.message}",
        hint=f"it is still stopped, and its disk is kept{costs}; 'tgi-deploy start {at.name}' tries again, "
        f"'tgi-deploy down {at.name}' and 'up' launch a machine elsewhere",
    )


def _wait_and_prove(
    context: Context, request: SwitchRequest, switch: Switch, at: Running, address: str, *, before: str
) -> SwitchOutcome:
    """Wait for the engine and verify it. Without a record, the model that it should serve is unknown."""
    recorded = at.recorded
    if recorded is None or recorded.plan is None or recorded.machine is None:
        return _outcome(switch, at)
    executor, plan = context.executor(), recorded.plan
    url = url_to(recorded.machine, address, plan.engine.port)
    recorded = executor.save(replaced(recorded, endpoint=url))
    if not request.wait:
        return _outcome(switch, replace(at, recorded=recorded))
    lease = LeaseKeeper.of(context, recorded)
    phases = phases_of_restart(plan.time_to_ready, plan.storage, emptied=switch == "start")
    try:
        ready = wait(lease.kept_by(context), recorded, phases, before=before)
        proof = prove_known(context, recorded, request.level, request.reported_as)
    except DeployError as error:
        recorded = executor.save(replaced(recorded, status="failed").leased_until(lease.until))
        executor.event(recorded, error.code, error.message, level="error")
        raise with_diagnosis(context, recorded, error) from error
    recorded = promote(context, recorded.leased_until(lease.until), url)
    executor.event(recorded, "ready", f"{recorded.endpoint} serves {plan.model.id} again")
    return replace(_outcome(switch, replace(at, recorded=recorded)), ready=ready, proof=proof)


def _pausing(context: Context, machine: Found) -> Pausing:
    return cast("Pausing", context.cloud(machine.place).handler(machine.kind))


def _console(context: Context, machine: Found) -> str:
    """Return the console so far; a wait for new output skips it."""
    try:
        return context.cloud(machine.place).console(machine.id)
    except DeployError:
        return ""


def _seen_as(machine: Found, state: Literal["stopped", "running"]) -> Found:
    """Return the machine as it will be seen once it is stopped or running."""
    attributes = {name: text for name, text in machine.attributes.items() if name != STARTABLE}
    if state == "stopped":
        attributes[STARTABLE] = "its disk is kept"
    return replaced(machine, state=state, alive=state == "running", attributes=attributes)


def step_of(machine: Found, switch: Switch) -> Step:
    return Step(
        action=switch,
        key=machine.key,
        kind=machine.kind,
        place=machine.place,
        reason="is stopped" if switch == "start" else "was requested",
        attributes=machine.attributes,
        is_machine=True,
    )


def _step(context: Context, at: Running, switch: Switch, outcome: str) -> None:
    context.reporter.step(step_of(at.machine, switch), outcome)


def _save_state(
    context: Context, at: Running, *, state: RecordState | None = None, status: DeploymentStatus | None = None
) -> Running:
    """Record the requested or reached state. A stopped machine has no endpoint."""
    recorded = at.recorded
    record = recorded.machine if recorded else None
    if recorded is None or record is None:
        return at
    attributes = {name: text for name, text in at.machine.attributes.items() if name != STARTABLE}
    record = replaced(record, state=state or record.state, attributes=attributes)
    url = None if (state or record.state) == "stopped" else recorded.endpoint
    made = replaced(recorded.with_record(record), status=status or recorded.status, endpoint=url)
    return replace(at, recorded=context.executor().save(made))


def _save_price(context: Context, at: Running, code: str) -> None:
    """Record that from now on only the disk is billed, or the whole machine again. Idempotent."""
    recorded = at.recorded
    record = recorded.machine if recorded else None
    if recorded is None or record is None:
        return
    price = recorded.stopped_usd_per_hour
    data = event_data(record, at.machine.attributes, recorded)
    data["stopped_usd_per_hour"] = None if price is None else str(price)
    context.executor().event(recorded, code, f"{record.kind} {at.machine.id} {code}", step=record.key, data=data)


def check_time_left(context: Context, at: Running) -> None:
    """Raise ConflictError `limit_reached` for a stopped machine that would end before its engine could answer."""
    end = ttl_end(at.recorded, at.machine.tags)
    if at.machine.alive or end is None or end - context.clock.now() >= timedelta(seconds=SHORTEST_TTL_S):
        return
    raise ConflictError(
        "limit_reached",
        f"'{at.name}' reaches its limit at {stamp(end)}: a machine started now would terminate itself",
        hint=f"'tgi-deploy extend {at.name} --ttl TIME' gives it more time; then run 'tgi-deploy start {at.name}'; "
        f"'tgi-deploy down {at.name}' removes it",
    )


def _pause_ends(context: Context, at: Running) -> Running:
    """Suspend the lease, and recompute when the disk alone will have cost --max-spend."""
    recorded, tags = at.recorded, at.machine.tags
    if not reads_tags(tags):
        return at
    if TAG_LEASE_S in tags and tags.get(TAG_LEASE) != NO_LIMIT:
        at = _set_tags(context, at, {TAG_LEASE: NO_LIMIT})
        recorded = at.recorded and context.executor().save(at.recorded.leased_until(None))
        at = replace(at, recorded=recorded)
    ceiling = ceiling_of(at)
    return at if recorded is None or not ceiling else keep_ceiling(context, at, ceiling)


def _resume_ends(context: Context, at: Running) -> Running:
    """Update the limits in the machine's tags before it reads them: a new lease, and the rest of the other limits.

    Raises InputError `max_spend_reached`.
    """
    tags, now = at.machine.tags, context.clock.now().replace(microsecond=0)
    if not reads_tags(tags):
        return at
    ceiling = ceiling_of(at)
    if ceiling:
        end = ttl_end(None, tags)
        ttl_s = None if at.recorded or end is None else round((end - now).total_seconds())
        runs = replace(at, machine=_seen_as(at.machine, "running"))
        recorded, moved = move_limits(context, runs, WantedEnds(max_spend_usd=ceiling, ttl_s=ttl_s))
        at = replace(at, recorded=recorded, machine=with_tags(at.machine, moved))
    own: dict[str, str] = {}
    end = ttl_end(None, at.machine.tags)
    if end is not None:
        own[TAG_EXPIRES] = moved_tag(end, now)
    lease_s = tags.get(TAG_LEASE_S, NO_LIMIT)
    until = lease_end(int(lease_s), context.clock) if lease_s.isdecimal() else None
    if until is not None:
        own[TAG_LEASE] = moved_tag(until, now)
    idle_s = tags.get(TAG_IDLE_S, "").rpartition(" ")[2]
    if idle_s.isdecimal():  # with the current time, so that the machine recognizes the limit as new
        own[TAG_IDLE_S] = f"{stamp(now)} {idle_s}"
    if own:
        at = _set_tags(context, at, own)
    if at.recorded is None or until is None:
        return at
    return replace(at, recorded=context.executor().save(at.recorded.leased_until(until)))


def _set_tags(context: Context, at: Running, tags: dict[str, str]) -> Running:
    context.cloud(at.machine.place).handler(at.machine.kind).update({"id": at.machine.id}, {"tags": tags})
    return replace(at, machine=with_tags(at.machine, tags))


def _await_up(context: Context, at: Running) -> None:
    """Wait for a machine that is still starting, because clouds can't stop it before."""
    cloud = context.cloud(at.machine.place)
    for _ in polls(context.clock, context.pace.running):
        if cloud.machine(at.machine.id).state != "pending":
            return


def _await_down(context: Context, at: Running) -> MachineState:
    cloud, state = context.cloud(at.machine.place), MachineState(state="missing")
    for _ in polls(context.clock, context.pace.deletion):
        state = cloud.machine(at.machine.id)
        if state.state == "stopped":
            return state
        if state.state in {"shutting-down", "terminated"}:
            break
    raise DeployError(
        "not_stopped",
        f"stopping {at.machine.kind} {at.machine.id}: it {state.description}",
        hint=f"'tgi-deploy status {at.name}' shows what exists",
    )


def _await_exit(context: Context, at: Running) -> None:
    """Wait until the old engine has exited, so that its answers are not mistaken for those of the new one."""
    if at.recorded is None or at.recorded.endpoint is None:
        return
    deadline_s = at.recorded.current.grace_s + _SHUTDOWN_S
    polling = PollPolicy(deadline_s=deadline_s, poll_s=context.pace.health_poll_s, longest_poll_s=1.0)
    for _ in polls(context.clock, polling):
        probe = context.probe_of(at.recorded)
        if probe is None or not probe.ok:
            return
    raise NotHealthyError(
        "not_restarted",
        f"'{at.name}' did not restart: it still answers after {polling.deadline_s:.0f} s",
        hint=f"'tgi-deploy stop {at.name}', then 'tgi-deploy start {at.name}', boots it again from its disk",
    )
