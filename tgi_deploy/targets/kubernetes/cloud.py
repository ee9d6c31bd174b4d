"""A namespace of a cluster as a location for the executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tgi_deploy.reconcile.observe import search
from tgi_deploy.targets.kubernetes.autoscalers import Autoscalers
from tgi_deploy.targets.kubernetes.enforcing import Enforcers, Workloads
from tgi_deploy.targets.kubernetes.errors import FORBIDDEN_CODE
from tgi_deploy.targets.kubernetes.front import Services
from tgi_deploy.targets.kubernetes.gateway import Routes
from tgi_deploy.targets.kubernetes.manifests import object_name
from tgi_deploy.targets.kubernetes.objects import Dependents, Objects, selector_of
from tgi_deploy.targets.kubernetes.pods import LiveDeployment, Pod, console, machine_state, pod_console, replicas_of
from tgi_deploy.targets.kubernetes.resources import (
    AUTOSCALERS,
    DEPLOYMENT,
    ENFORCER,
    HTTP_ROUTE,
    INGRESS,
    KINDS,
    SERVICE,
)
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_ID, MachineState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.targets.kubernetes.api import Api
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.resource import Found

_T = TypeVar("_T")
# Only limits need service accounts, which may be forbidden.
_UNREADABLE_CODES: Final = frozenset({FORBIDDEN_CODE})
_HANDLERS: Final[Mapping[str, Callable[[Api], Objects]]] = {
    DEPLOYMENT: Workloads,
    ENFORCER: Enforcers,
    SERVICE: Services,
    INGRESS: partial(Dependents, kind=INGRESS),
    HTTP_ROUTE: Routes,
    **{kind: partial(Autoscalers, kind=kind) for kind in AUTOSCALERS},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesCloud:
    """`unsearched` collects (place, kind) → why the search failed."""

    api: Api
    unsearched: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def region(self) -> str:
        return str(self.api.place)

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS

    def handler(self, kind: str) -> Objects:
        return _HANDLERS.get(kind, partial(Objects, kind=kind))(self.api)

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        wanted = {TAG_ID: "", **tags}
        return tuple(
            found
            for kind in KINDS
            for found in search(
                self.handler(kind), wanted, self.unsearched, key=(self.region, kind), codes=_UNREADABLE_CODES
            )
        )

    def machine(self, instance_id: str) -> MachineState:
        found = self.live(instance_id)
        if found is None:
            return MachineState(state="missing")
        state = machine_state(*found, self.address(found[0].name))
        return replaced(state, remedy=self.api.place.commands(state.remedy))

    def console(self, instance_id: str) -> str:
        found = self.live(instance_id)
        return "" if found is None else console(self.api, *found)

    def consoles(self, instance_id: str) -> Mapping[str, str]:
        found = self.live(instance_id)
        return {pod.name: pod_console(self.api, pod) for pod in found[1] if pod.counts} if found else {}

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        """Nothing outside the deployment ends it."""

    def workload(self, instance_id: str) -> tuple[Reply, tuple[Pod, ...]] | None:
        """Return a Deployment's document with its pods; None if it does not exist."""
        found = self._read(instance_id, lambda item: (item, selector_of(item)))
        return None if found is None else (found[0], self._pods(found[1]))

    def live(self, instance_id: str) -> tuple[LiveDeployment, tuple[Pod, ...]] | None:
        """Return a Deployment with its pods; None if it does not exist."""
        found = self._read(instance_id, LiveDeployment.of)
        return None if found is None else (found, self._pods(found.selector))

    def replicas(self, instance_id: str) -> int:
        return self._read(instance_id, replicas_of) or 0

    def _read(self, instance_id: str, read: Callable[[Reply], _T]) -> _T | None:
        return self.api.get(self.handler(DEPLOYMENT).path(instance_id), "reading the deployment", read)

    def _pods(self, labels: Mapping[str, str]) -> tuple[Pod, ...]:
        query = {"labelSelector": ",".join(f"{name}={value}" for name, value in sorted(labels.items()))}
        return self.api.each(self.api.path("/api/v1", "pods"), "looking for the deployment's pods", Pod.of, query=query)

    def address(self, name: str) -> str:
        """Return the address of a deployment's Service inside the cluster, or its name there while it has none."""
        service = object_name(name)
        path = self.handler(SERVICE).path(service)
        found = self.api.get(path, "reading the service", lambda item: item.part("spec").address("clusterIP"))
        return found or f"{service}.{self.api.place.namespace}.svc"
