"""Two machines of one deployment side by side: an update changes the URL, or moves the static address.

A machine drains by shutting itself down, as at the end of its time: it reads that from its tags every 30 s, and the
shutdown lets the engine finish open requests. EC2 does not document how long a shutdown after TerminateInstances may
take (EC2 User Guide, "How instance termination works": no guarantee), so this does not rely on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from tgi_deploy.errors import NotHealthyError
from tgi_deploy.reconcile.ends import at_once_tag, reads_tags
from tgi_deploy.reconcile.retry import PollPolicy, polls
from tgi_deploy.targets.ec2.resources import ADDRESS
from tgi_deploy.values.resource import TAG_EXPIRES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.targets.ec2.region import Region
    from tgi_deploy.targets.protocol import TargetContext
    from tgi_deploy.values.deployment import Deployment, ResourceRecord

# Two polls of the tags (templates/user-data/expire.timer.j2) plus the shutdown's margin.
_NOTICED_S: Final = 60.0 + 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectFront:
    """Each machine is reached at its own address."""

    context: TargetContext
    region: Callable[[str], Region]
    stable: ClassVar[bool] = False
    cuts: ClassVar[bool] = False

    def no_room(self, deployment: Deployment) -> str:  # noqa: ARG002 -- EC2 reports it at the launch
        return ""

    def grace_s(self, deployment: Deployment) -> int:
        return deployment.current.grace_s

    def shift(self, deployment: Deployment, machine: ResourceRecord) -> str | None:  # noqa: ARG002 -- the protocol's
        """Do nothing: callers use the new address once they know it."""
        return None

    def drain(self, deployment: Deployment, machine: ResourceRecord, deadline_s: float) -> Iterator[None]:  # noqa: ARG002 -- the protocol's
        """Let the machine terminate itself. Machines of the first release don't read tags: return at once."""
        cloud = self.region(machine.place)
        handler, found = cloud.handler(machine.kind), cloud.handler(machine.kind).read(machine.attributes)
        if found is None or not found.alive or not reads_tags(found.tags):
            return
        now = self.context.clock.now().replace(microsecond=0)
        handler.update(found.attributes, {"tags": {TAG_EXPIRES: at_once_tag(now)}})
        polling = PollPolicy(deadline_s=_NOTICED_S + deadline_s, poll_s=1, longest_poll_s=5)
        for _ in polls(self.context.clock, polling):
            if cloud.machine(found.id).state not in {"pending", "running"}:
                return
            yield


@dataclass(frozen=True, kw_only=True, slots=True)
class StaticFront(DirectFront):
    """The serving machine has the deployment's Elastic IP address. Moving it may cut open connections."""

    stable: ClassVar[bool] = True
    cuts: ClassVar[bool] = True

    def shift(self, deployment: Deployment, machine: ResourceRecord) -> str | None:
        """Move the address to the machine and return it; None if the machine has terminated in the meantime."""
        record = deployment.record(ADDRESS)
        if record is None:
            raise NotHealthyError(
                "front_missing", f"the record of '{deployment.name}' has no address", hint="the same 'up' creates one"
            )
        cloud = self.region(record.place)
        found = cloud.handler(machine.kind).read(machine.attributes)
        if found is None or not found.alive:
            return None
        cloud.handler(record.kind).update(record.attributes, {"machine": found.id})
        return record.attributes["address"]
