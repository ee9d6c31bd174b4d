"""Reads DescribeEndpoint, and judges what it means for one of the endpoint's configurations. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.targets.sagemaker.names import number_of
from tgi_deploy.text import one_line
from tgi_deploy.values.resource import MachineState, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.reply import Reply

_Status = Literal[
    "OutOfService",
    "Creating",
    "Updating",
    "SystemUpdating",
    "RollingBack",
    "InService",
    "Deleting",
    "Failed",
    "UpdateRollbackFailed",
]
_STATUSES: Final[tuple[_Status, ...]] = (
    "OutOfService",
    "Creating",
    "Updating",
    "SystemUpdating",
    "RollingBack",
    "InService",
    "Deleting",
    "Failed",
    "UpdateRollbackFailed",
)
_SETTLED: Final = frozenset({"InService", "OutOfService", "UpdateRollbackFailed"})
# Codes for the end of a machine, for which AWS gives only a sentence.
_FAILED: Final = "Failed"
_WENT_BACK: Final = "UpdateRolledBack"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointState:
    """`configuration` is the one in service, `pending` the one that it is being created with or moved to.

    `desired` and `current` count machines; `instance_type` is empty while there is none.
    """

    name: str
    arn: str
    status: _Status
    configuration: str
    pending: str
    why: str
    created: str
    desired: int
    current: int
    instance_type: str
    tags: Mapping[str, str] = field(default_factory=dict)

    def tagged(self, tags: Mapping[str, str]) -> EndpointState:
        return replace(self, tags=tags)

    @property
    def configurations(self) -> frozenset[str]:
        return frozenset(filter(None, (self.configuration, self.pending)))

    @property
    def settled(self) -> bool:
        """Whether SageMaker takes requests to change or delete it."""
        return self.status in _SETTLED

    @property
    def failed(self) -> bool:
        return self.status == "Failed"

    @property
    def ending(self) -> bool:
        return self.status == "Deleting"

    @property
    def serves(self) -> bool:
        """Whether it answers: during an update and a change of size the former machines do."""
        return self.status not in {"OutOfService", "Creating", "Deleting", "Failed"}

    def keeps(self, replicas: int, most: int) -> bool:
        """Return whether an update to `replicas` machines, of at most `most` with autoscaling, keeps the number."""
        return replicas <= self.desired <= most

    def moved(self, replicas: int, most: int) -> int:
        """Return how many machines such an update replaces in steps."""
        return self.desired if self.keeps(replicas, most) else min(self.desired, replicas)

    def of(self, configuration: str) -> tuple[str, bool]:
        """Return the state of the machine with a configuration, and whether it is alive.

        A configuration that is neither in service nor being deployed is stopped and only has to be deleted: its update
        failed, or the endpoint is gone. A former one is alive while a later one is: the endpoint can go back to it.
        """
        if self.ending:
            return "shutting-down", False
        if self.failed:
            return "stopped", False
        if configuration == self.configuration and self.status != "Creating":
            return "running", True
        if configuration in self.configurations:
            return "pending", True
        return ("running", True) if number_of(configuration) < number_of(self.configuration) else ("stopped", False)

    def machine(self, configuration: str, address: str, *, started: bool) -> MachineState:
        """Return the machine's state, with the address once all of several machines serve.

        `started`: its container has written to the log, which is the first that is seen of it.
        """
        state, alive = self.of(configuration)
        if state == "pending":
            return MachineState(state="running" if started else "pending", reason_code=self.status)
        if not alive and state != "shutting-down":
            code = _FAILED if self.failed else _WENT_BACK
            why = self.why or "the endpoint has gone back to the former configuration"
            return MachineState(state="terminated", reason_code=code, reason=one_line(why))
        if state != "running" or not self.serves:
            shown: Literal["running", "shutting-down"] = "running" if state == "running" else "shutting-down"
            return MachineState(state=shown, reason_code=self.status, reason=one_line(self.why) or None)
        complete = self.current >= self.desired
        return MachineState(state="running", address=address if complete else None, replicas=self._replicas())

    def _replicas(self) -> tuple[ReplicaState, ...]:
        """Return the machines, which have no ids, if there are several."""
        most = max(self.desired, self.current)
        if most <= 1:
            return ()
        return tuple(
            ReplicaState(id=f"machine {number}", status="ready" if number <= self.current else "pending")
            for number in range(1, most + 1)
        )


def _type_of(variant: Reply) -> str:
    """Return the machines' type; of several pools, those that have machines."""
    pools = variant.optional_parts("InstancePools")
    used = (item.text("InstanceType") for item in pools if item.integer("CurrentInstanceCount"))
    return ", ".join(used) or variant.optional_text("InstanceType")


def read_endpoint(reply: Reply) -> EndpointState:
    pending = reply.optional_part("PendingDeploymentSummary")
    variants = reply.optional_parts("ProductionVariants") or pending.optional_parts("ProductionVariants")
    first = variants[0] if variants else None
    return EndpointState(
        name=reply.text("EndpointName"),
        arn=reply.text("EndpointArn", prefix="arn:"),
        status=reply.choice("EndpointStatus", _STATUSES),
        configuration=reply.optional_text("EndpointConfigName"),
        pending=pending.optional_text("EndpointConfigName"),
        why=reply.optional_text("FailureReason"),
        created=reply.moment("CreationTime"),
        desired=first.integer("DesiredInstanceCount") if first else 0,
        current=first.integer("CurrentInstanceCount") if first else 0,
        instance_type=_type_of(first) if first else "",
    )
