"""An endpoint in front of its machines: SageMaker itself starts the new ones and moves the traffic.

It moves new requests as soon as its own health check passes, before this program has verified anything. A
revision that fails verification is replaced by the former one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.retry import PollPolicy, polls
from tgi_deploy.targets.sagemaker.endpoints import ENDPOINT, at_a_time, wait_s
from tgi_deploy.targets.sagemaker.limits import enforce
from tgi_deploy.targets.sagemaker.names import endpoint_name, endpoint_of
from tgi_deploy.targets.sagemaker.scaling import TARGET, resource_id
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, TAG_OWNER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.targets.sagemaker.cloud import SageMakerCloud
    from tgi_deploy.values.deployment import Deployment, ResourceRecord

# How long AWS may take to change the number of machines: it may have to start some.
_SCALING: Final = PollPolicy(deadline_s=1800, poll_s=1, longest_poll_s=15)


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointFront:
    cloud: SageMakerCloud
    stable: ClassVar[bool] = True
    cuts: ClassVar[bool] = False
    moves: ClassVar[str] = "once SageMaker's own check of it passes, which is before it has been verified"

    def no_room(self, deployment: Deployment) -> str:  # noqa: ARG002 -- SageMaker says when it is asked
        return ""

    def batch(self, deployment: Deployment) -> tuple[int, int]:
        """Return how many machines SageMaker replaces in a step, and of how many."""
        state, plan = self.cloud.state(endpoint_name(deployment.name)), deployment.wanted.plan
        if state is None or plan is None:
            return 1, 1
        asked = plan.requirements.replicas
        moved = max(1, state.moved(plan.chosen.replicas, (asked.most or 0) if asked.varies else 0))
        return at_a_time(moved), moved

    def grace_s(self, deployment: Deployment) -> int:
        """Return how long SageMaker keeps the former machines after it has moved the requests."""
        machine = deployment.machine
        known = machine.attributes.get("id") if machine else None
        return wait_s(self.cloud.endpoints.configuration(known) if known else None)

    def shift(self, deployment: Deployment, machine: ResourceRecord) -> str | None:
        """With a range, register the endpoint for autoscaling; otherwise set the number of machines."""
        name = endpoint_name(deployment.name)
        targets, wanted = self.cloud.handler(TARGET), deployment.wanted
        asked = wanted.plan.requirements.replicas if wanted.plan else None
        found = targets.read({"id": resource_id(name)})
        service = wanted.service
        if asked is None or not asked.varies or service is None or not service.promise:
            if found is not None:
                targets.delete(found.attributes)
            if wanted.plan is not None:
                self._resize(machine, wanted.plan.chosen.replicas)
            return None
        properties = {
            "name": name, "least": asked.least, "most": asked.most, "concurrency": service.promise.concurrency
        }  # fmt: skip
        if found is None:
            found = targets.create(properties, tags=_tags(deployment), token="")
        targets.update(found.attributes, properties)
        return None

    def _resize(self, machine: ResourceRecord, replicas: int) -> None:
        """Change the number of machines if autoscaling has left another one. Raises DeployError `endpoint_busy`."""
        name, status = endpoint_of(machine.attributes["id"]), ""
        for _ in polls(self.cloud.api.retrier.clock, _SCALING):
            state = self.cloud.state(name)
            if state is None or state.settled or state.desired == replicas:
                self.cloud.handler(ENDPOINT).update(machine.attributes, {"replicas": replicas})
                return
            status = state.status
        what = f"setting the number of machines of {name} to {replicas}: the endpoint is {status}"
        raise DeployError("endpoint_busy", what, hint="run the same 'up' again once it is InService")

    def restore(self, machine: ResourceRecord) -> None:
        """Set the schedule, which all revisions share, to the limits of this one."""
        found = self.cloud.endpoints.read(machine.attributes)
        if found is not None:
            enforce(self.cloud.api, found, found.tags)

    def drain(self, deployment: Deployment, machine: ResourceRecord, deadline_s: float) -> Iterator[None]:  # noqa: ARG002 -- the protocol's
        """End at once: SageMaker waits for the open answers of the former machines before it stops them."""
        yield from ()


def _tags(deployment: Deployment) -> dict[str, str]:
    tags = {TAG_NAME: deployment.name, TAG_ID: deployment.id, TAG_KEY: TARGET}
    return tags | ({TAG_OWNER: deployment.owner} if deployment.owner else {})
