"""Waits until the engine on a running machine is ready."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tgi_deploy.diagnosis.lines import written_since
from tgi_deploy.errors import DeployError
from tgi_deploy.operations.context import address_of, with_certificate
from tgi_deploy.operations.launching.traffic import url_to
from tgi_deploy.operations.watching.diagnose import subject_of
from tgi_deploy.operations.watching.limits import LeaseKeeper
from tgi_deploy.planner.time_to_ready import phases_of_restart
from tgi_deploy.readiness.deadlines import PhaseDeadline
from tgi_deploy.readiness.waiting import Observer, Probe, WaitSettings, wait_until_ready
from tgi_deploy.reconcile.tagged import note_tags
from tgi_deploy.values.serving import CERTIFICATE_NOTE, UNREAD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tgi_deploy.operations.context import Context
    from tgi_deploy.planner.time_to_ready import PhaseEstimate
    from tgi_deploy.readiness.waiting import ReadyReport
    from tgi_deploy.values.deployment import Deployment, ResourceRecord

# Shards hang if the log shows them only waiting for this share of the loading deadline. The share is low although the
# whole deadline has passed: a console keeps 64 KiB, which is six minutes of eight shards.
_HANG_SHARE: Final = 0.25
# A machine that has just booted takes a while to register for tunnels.
_NO_TUNNEL_YET: Final = frozenset({"not_managed", "tunnel_failed", "throttled", "cloud_unreachable"})


def keep_certificate(context: Context, deployment: Deployment) -> Deployment:
    """Record the certificate that a new machine reports, and tag the machine, for computers without the record."""
    machine = deployment.machine_at(deployment.wanted.number)
    known = context.with_certificate(machine) if machine else None
    if machine is None or known is None or known == machine:
        return deployment
    handler = context.cloud(machine.place).handler(machine.kind)
    handler.update(machine.attributes, {"tags": note_tags(known.notes)})
    return context.executor().save(deployment.with_record(known))


@dataclass(slots=True, kw_only=True)
class _Reached:
    """Probes the engine's address; with TLS, only after the machine's console has shown its certificate."""

    context: Context
    machine: ResourceRecord
    port: int

    def read(self, console: str) -> None:
        if self.machine.notes.get(CERTIFICATE_NOTE) == UNREAD:
            self.machine = with_certificate(self.machine, console)

    def probe(self, host: str, path: str) -> Probe:
        address = address_of(url_to(self.machine, host, self.port), self.machine)
        if address.certificate == "":
            return Probe(outcome="refused")
        try:
            return self.context.probe(address.at(path))
        except DeployError as error:
            if error.code not in _NO_TUNNEL_YET:
                raise
            return Probe(outcome="no_tunnel", why=error.message)


def wait(context: Context, deployment: Deployment, phases: Iterable[PhaseEstimate], *, before: str = "") -> ReadyReport:
    """Wait for the engine of a deployment. `before` is its machine's output before a restart.

    Raises the errors of `wait_until_ready`.
    """
    plan, machine = deployment.plan, deployment.machine
    if machine is None or plan is None:
        raise ValueError("the record has no machine or no plan")
    cloud, instance_id = context.cloud(machine.place), machine.attributes["id"]
    reached = _Reached(context=context, machine=machine, port=plan.engine.port)
    health = context.engine_of(deployment).health

    def console() -> str:
        text = cloud.console(instance_id)
        reached.read(text)
        return written_since(before, text)

    observer = Observer(
        machine=partial(cloud.machine, instance_id),
        console=console,
        probe=lambda address: reached.probe(address, health.path),
    )
    deadlines = [
        PhaseDeadline(
            phase=phase.phase,
            expected_s=phase.expected_s,
            deadline_s=phase.deadline_s,
            stall_s=phase.stall_s,
            limit_s=phase.limit_s,
            amount_mb=phase.amount_mb,
        )
        for phase in phases
    ]
    hang_s = _HANG_SHARE * next(item.deadline_s for item in deadlines if item.phase == "loading")
    return wait_until_ready(
        observer,
        deadlines,
        grammar=context.grammar_of(deployment),
        clock=context.clock,
        listener=context.listener,
        settings=WaitSettings(
            poll_s=context.pace.ready_poll_s,
            probe_s=context.pace.health_poll_s,
            settle_s=context.pace.settle_s,
            unseen_s=0.0 if context.target_at(machine.place).facts.shows_at_once else context.pace.visibility_timeout_s,
            subject=subject_of(context, deployment, machine.place, plan=plan, hang_s=hang_s),
        ),
    )


def all_ready(context: Context, deployment: Deployment) -> ReadyReport:
    """Wait until all replicas of the serving machine are ready. Raises the errors of `wait`."""
    plan = deployment.plan
    if plan is None:
        raise ValueError("the record has no plan")
    phases = phases_of_restart(plan.time_to_ready, plan.storage, emptied=True)
    return wait(LeaseKeeper.of(context, deployment).kept_by(context), deployment, phases)
