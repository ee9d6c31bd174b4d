"""Shifts a deployment's traffic from one container to another through its proxy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from tgi_deploy.errors import DeployError, NotHealthyError
from tgi_deploy.targets.docker.container import ID_LENGTH
from tgi_deploy.targets.docker.proxy import Proxies
from tgi_deploy.targets.docker.resources import PROXY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.reconcile.ports import Clock
    from tgi_deploy.targets.docker.api import Api
    from tgi_deploy.values.deployment import Deployment, ResourceRecord

_LOOK_S: Final = 1.0
_RELOAD_S: Final = 30.0
_RELOAD_LOOK_S: Final = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyFront:
    api: Api
    clock: Clock
    stable: ClassVar = True
    cuts: ClassVar = False

    def no_room(self, deployment: Deployment) -> str:
        now, then = deployment.current, deployment.wanted
        if now.spec is None or then.spec is None or then.plan is None:
            return "the record lacks the resources of the serving container"
        if now.spec.container.host or then.spec.container.host:
            return "a container uses all accelerators of its type"
        has = then.plan.chosen.accelerator_count
        both = now.spec.container.accelerators + then.spec.container.accelerators
        return f"both would need {both} accelerators, but the host has {has}" if both > has else ""

    def grace_s(self, deployment: Deployment) -> int:
        return deployment.current.grace_s

    def shift(self, deployment: Deployment, machine: ResourceRecord) -> str:
        proxies, proxy_id = Proxies(self.api), _proxy_of(deployment)
        self._send(proxy_id, _id_of(machine))
        return proxies.inspect(proxy_id, proxies.address) or ""

    def drain(self, deployment: Deployment, machine: ResourceRecord, deadline_s: float) -> Iterator[None]:
        """Wait until the old workers have exited, which finish the responses of earlier machines."""
        proxies, proxy_id = Proxies(self.api), _proxy_of(deployment)
        if proxies.serves(proxy_id, _id_of(machine)):
            self._send(proxy_id, "")
        until = self.clock.monotonic() + deadline_s
        while proxies.workers(proxy_id) > 1 and self.clock.monotonic() < until:
            yield
            self.clock.sleep(_LOOK_S)

    def _send(self, proxy_id: str, machine_id: str) -> None:
        """Send new requests only to this machine, or nowhere if empty; return once that is in effect."""
        proxies = Proxies(self.api)
        proxies.configure(proxy_id, machine_id)
        before, until = proxies.loaded(proxy_id), self.clock.monotonic() + _RELOAD_S
        proxies.reload(proxy_id)
        while proxies.loaded(proxy_id) == before:
            if self.clock.monotonic() > until:
                raise DeployError(
                    "front_not_reloaded",
                    f"the proxy {proxy_id} did not load its new configuration",
                    hint=f"'docker logs {proxy_id}' may show why; run the same command to try again",
                )
            self.clock.sleep(_RELOAD_LOOK_S)


def _id_of(machine: ResourceRecord) -> str:
    return machine.attributes["id"][:ID_LENGTH]


def _proxy_of(deployment: Deployment) -> str:
    record = deployment.record(PROXY)
    if record is None:
        raise NotHealthyError(
            "front_missing", f"the record of '{deployment.name}' has no proxy", hint="the same 'up' creates one"
        )
    return record.attributes["id"]
