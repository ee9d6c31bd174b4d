"""The proxy in front of a deployment's engines: HAProxy in its own container.

Its configuration names the one machine that gets new requests. It is stored in the container, so it survives a restart,
and is applied by a reload: a new worker takes over the sockets, and the old one continues until its last response ends.
No request is cut off or refused, and old workers mean open requests.

Rejected: Caddy, whose reload closes idle connections that clients are about to use; nginx, which does the same and
buffers streams by default; Traefik, which needs the Docker socket and so control of the host.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from docker.types import LogConfig, Ulimit

from tgi_deploy.targets.docker.console import log_of
from tgi_deploy.targets.docker.container import Containers
from tgi_deploy.targets.docker.resources import PROXY
from tgi_deploy.targets.reply import Reply, ReplyError
from tgi_deploy.templating import render_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORT: Final = 8080
_FOLDER: Final = "/etc"
_FILE: Final = "front.cfg"
_STOP_S: Final = 5
_LOADED: Final = b"Loading success."
_LOG_LINES: Final = 50
_LOG: Final = LogConfig(type="json-file", config={"max-size": "10m", "max-file": "1"})
# Two per `maxconn` of its configuration, plus HAProxy's own.
_FILES: Final = Ulimit(name="nofile", soft=10_000, hard=10_000)


def configuration(serving: str) -> str:
    """Return the configuration; `serving` is the id of the machine for new requests, empty for none."""
    return render_text("haproxy.cfg.j2", {"port": _PORT, "serving": serving}, templates_dir=None)


@dataclass(frozen=True, slots=True)
class Proxies(Containers):
    """Properties: name, image, network, bind, port, engine_port."""

    kind: ClassVar[str] = PROXY
    runs_engines: ClassVar[bool] = False

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Start it unless it runs; a new one first gets a configuration without a machine."""
        proxy_id = attributes["id"]
        if self.inspect(proxy_id, lambda item: item.part("State").text("Status")) == "created":
            self.configure(proxy_id, "")
        Containers.update(self, attributes, properties)

    def serves(self, proxy_id: str, machine_id: str) -> bool:
        """Return whether new requests are sent to this machine."""
        archive = self.api.look(
            "reading the proxy's configuration",
            lambda client: b"".join(client.get_archive(proxy_id, f"{_FOLDER}/{_FILE}")[0]),
            _bytes,
        )
        return f"server {machine_id} ".encode() in (archive or b"")

    def configure(self, proxy_id: str, machine_id: str) -> None:
        """Configure that new requests are sent only to this machine, or nowhere if empty."""
        packed, content = io.BytesIO(), configuration(machine_id).encode()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo(_FILE)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        self.api.ask(
            "writing the proxy's configuration",
            lambda client: client.put_archive(proxy_id, _FOLDER, packed.getvalue()),
            lambda _done: None,
        )

    def reload(self, proxy_id: str) -> None:
        """Apply the configuration."""
        self.api.ask("reloading the proxy", lambda client: client.kill(proxy_id, "SIGHUP"), lambda _nothing: None)

    def loaded(self, proxy_id: str) -> bytes:
        """Return its latest log line about a loaded configuration, which starts with a timestamp."""
        lines = reversed(log_of(self.api, proxy_id, _LOG_LINES).splitlines())
        return next((line for line in lines if _LOADED in line), b"")

    def workers(self, proxy_id: str) -> int:
        """Return the number of workers: the current one, and old ones with open responses."""
        processes = self.api.ask("counting the proxy's workers", lambda client: client.top(proxy_id), _processes)
        return len(processes) - 1

    def _request(self, properties: Mapping[str, Any], tags: Mapping[str, str]) -> dict[str, Any]:
        host_config = self.api.client.create_host_config(
            port_bindings={_PORT: (properties["bind"], properties["port"])},
            network_mode=properties["network"],
            restart_policy={"Name": "always"},
            log_config=_LOG,
            ulimits=[_FILES],
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
        )
        return {
            "name": properties["name"],
            "image": properties["image"],
            "command": ["haproxy", "-W", "-db", "-f", f"{_FOLDER}/{_FILE}"],
            "environment": {"ENGINE_PORT": str(properties["engine_port"])},
            "labels": dict(tags),
            "ports": [_PORT],
            # Docker stops restarting a container that was sent its stop signal, so a reload needs a different one.
            "stop_signal": "SIGTERM",
            "stop_timeout": _STOP_S,
            "host_config": host_config,
        }


def _bytes(raw: object) -> bytes:
    if not isinstance(raw, bytes):
        raise ReplyError("it is not a file")
    return raw


def _processes(item: object) -> list[object]:
    found = Reply.of(item).content.get("Processes")
    if not isinstance(found, list):
        raise ReplyError("the process list is missing")
    return found
