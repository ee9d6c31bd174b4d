"""One Docker host as a location for the executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.targets.docker.console import console_of
from tgi_deploy.targets.docker.container import Containers
from tgi_deploy.targets.docker.network import Networks
from tgi_deploy.targets.docker.proxy import Proxies
from tgi_deploy.targets.docker.resources import CONTAINER, NETWORK, PROXY, VOLUME
from tgi_deploy.targets.docker.volume import Volumes
from tgi_deploy.values.resource import TAG_ID, MachineState
from tgi_deploy.values.serving import CERTIFICATE_LINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tgi_deploy.reconcile.ports import Handler
    from tgi_deploy.targets.docker.api import Api
    from tgi_deploy.targets.reply import Reply
    from tgi_deploy.values.resource import Found

_KINDS: Final = (VOLUME, NETWORK, PROXY, CONTAINER)
_STATES: Final = {
    "created": "pending",
    "running": "running",
    "restarting": "running",
    "paused": "stopped",
    "exited": "stopped",
    "dead": "terminated",
    "removing": "shutting-down",
}
_REMEDIES: Final = {
    "OOMKilled": "the host has too little memory: stop other processes, or choose a smaller model",
    "Exited": "read its log with 'tgi-deploy logs NAME'",
    "Paused": "'docker unpause {container}' resumes it",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerCloud:
    api: Api

    @property
    def region(self) -> str:
        return self.api.place

    @property
    def kinds(self) -> tuple[str, ...]:
        return _KINDS

    def handler(self, kind: str) -> Handler:
        handlers: dict[str, Handler] = {
            VOLUME: Volumes(self.api),
            NETWORK: Networks(self.api),
            PROXY: Proxies(self.api),
            CONTAINER: Containers(self.api),
        }
        return handlers[kind]

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        wanted = {TAG_ID: "", **tags}
        return tuple(found for kind in _KINDS for found in self.handler(kind).find(wanted))

    def machine(self, instance_id: str) -> MachineState:
        """Return the container's state. One in a restart loop counts as running: its log shows why."""
        containers = Containers(self.api)

        def read(item: Reply) -> MachineState:
            state = item.part("State")
            code, reason = _why(state)
            return MachineState(
                state=_STATES.get(state.text("Status"), "pending"),  # type: ignore[arg-type]
                reason_code=code,
                reason=reason,
                address=containers.own_address(item),
                remedy=_REMEDIES.get(code or "", "").replace("{container}", instance_id),
            )

        return containers.inspect(instance_id, read) or MachineState(state="missing")

    def console(self, instance_id: str) -> str:
        """Return the container's log, after a line with the certificate of its proxy if that answers over TLS.

        Only that line counts: the engine's log may contain others' text.
        """
        log = console_of(self.api, instance_id)
        proxy, _, revision = Containers(self.api).name_of(instance_id).partition(".")
        line = Proxies(self.api).reported_certificate(proxy) if revision else ""
        return line + log.replace(CERTIFICATE_LINE, "[certificate") if line else log

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        """Do nothing: no resource outside the host stops a container."""


def _why(state: Reply) -> tuple[str | None, str | None]:
    """Return (code, sentence) for a container that has exited."""
    if state.text("Status") not in {"exited", "dead"}:
        return ("Paused", "the container is paused") if state.text("Status") == "paused" else (None, None)
    if state.flag("OOMKilled"):
        return "OOMKilled", "it was killed by the OOM killer: the host's memory was used up"
    failed = state.optional_text("Error").strip()
    return "Exited", failed or f"the container exited with code {state.integer('ExitCode')}"
