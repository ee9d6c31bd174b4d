"""A namespace of a cluster as a location for the executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_deploy.targets.kubernetes.objects import Objects
from tgi_deploy.targets.kubernetes.pods import Pod, console, machine_state, pod_console, replicas_of
from tgi_deploy.targets.kubernetes.resources import DEPLOYMENT, KINDS, SERVICE, name_of
from tgi_deploy.values.resource import TAG_ID, MachineState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.resource import Found


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesCloud:
    api: Api

    @property
    def region(self) -> str:
        return str(self.api.place)

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    def handler(self, kind: str) -> Objects:
        return Objects(self.api, kind)

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        wanted = {TAG_ID: "", **tags}
        return tuple(found for kind in KINDS for found in self.handler(kind).find(wanted))

    def machine(self, instance_id: str) -> MachineState:
        found = self.workload(instance_id)
        return MachineState(state="missing") if found is None else machine_state(*found, self.address(instance_id))

    def console(self, instance_id: str) -> str:
        found = self.workload(instance_id)
        return "" if found is None else console(self.api, *found)

    def consoles(self, instance_id: str) -> Mapping[str, str]:
        found = self.workload(instance_id)
        return {pod.name: pod_console(self.api, pod) for pod in found[1] if pod.counts} if found else {}

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        """Nothing outside the deployment ends it."""

    def workload(self, instance_id: str) -> tuple[Reply, tuple[Pod, ...]] | None:
        """Return a Deployment with its pods; None if it does not exist."""
        deployment = self.api.get(
            self.handler(DEPLOYMENT).path(instance_id), "reading the deployment", lambda item: item
        )
        if deployment is None:
            return None
        labels = deployment.part("spec").part("selector").table("matchLabels")
        query = {"labelSelector": ",".join(f"{name}={value}" for name, value in sorted(labels.items()))}
        pods = self.api.items(self.api.path("/api/v1", "pods"), "looking for the deployment's pods", query=query)
        return deployment, tuple(map(Pod.of, pods))

    def replicas(self, instance_id: str) -> int:
        found = self.workload(instance_id)
        return 0 if found is None else replicas_of(found[0])

    def address(self, instance_id: str) -> str:
        """Return the address of its Service inside the cluster, or its name there while it has none."""
        path = self.handler(SERVICE).path(instance_id)
        found = self.api.get(path, "reading the service", lambda item: item.part("spec").address("clusterIP"))
        return found or f"{name_of(instance_id)}.{self.api.place.namespace}.svc"
