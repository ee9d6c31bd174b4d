"""From a running machine to an engine that has proved that it serves what was planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.planner.time_to_ready import estimate
from tgi_deploy.reconcile.health import WaitSettings, wait_until_ready
from tgi_deploy.reconcile.patience import PhaseDeadline
from tgi_deploy.targets.ec2 import endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.app.context import Context
    from tgi_deploy.planner.types import Candidate
    from tgi_deploy.reconcile.health import Probe, ReadyReport
    from tgi_deploy.reconcile.model import MachineState, ResourceRecord
    from tgi_deploy.reconcile.ports import Cloud


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudObserver:
    """Looks at one machine: its cloud, its console, its endpoint."""

    cloud: Cloud
    instance_id: str
    port: int
    ask: Callable[[str], Probe]

    def machine(self) -> MachineState:
        return self.cloud.machine(self.instance_id)

    def console(self) -> str:
        return self.cloud.console(self.instance_id)

    def probe(self, address: str) -> Probe:
        return self.ask(endpoint(address, self.port))


def wait(context: Context, candidate: Candidate, machine: ResourceRecord, *, name: str) -> ReadyReport:
    """`machine` is its record, `name` the deployment's. Raises what `wait_until_ready` raises."""
    observer = CloudObserver(
        cloud=context.cloud(machine.place),
        instance_id=machine.attributes["id"],
        port=candidate.engine.port,
        ask=context.probe,
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
        for phase in estimate(candidate)
    ]
    return wait_until_ready(
        observer,
        deadlines,
        table=context.phases(),
        clock=context.clock,
        listener=context.listener,
        settings=WaitSettings(
            poll_s=context.pace.ready_poll_s,
            probe_s=context.pace.health_poll_s,
            settle_s=context.pace.settle_s,
            name=name,
        ),
    )
