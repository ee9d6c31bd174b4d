"""The proxy before the engines of a deployment: HAProxy in a container of its own.

Its configuration names the one machine that new requests go to. It is written into the container's own files, so that
it outlives a restart, and a reload takes it up: a new worker gets the sockets, the one before it goes on until its last
response has ended. So no request is cut or refused, and workers that are left are requests that are open.

Not taken: Caddy, whose reload closes idle connections under clients about to send; nginx, which does the same and
buffers streams unless it is told not to; Traefik, which wants the Docker socket, and with it the host.
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
# Two for each of `maxconn` in its configuration, and what HAProxy itself needs.
_FILES: Final = Ulimit(name="nofile", soft=10_000, hard=10_000)


def configuration(serving: str) -> str:
    """`serving` is the id of the machine for new requests, empty for none."""
    return render_text("haproxy.cfg.j2", {"port": _PORT, "serving": serving}, templates_dir=None)


@dataclass(frozen=True, slots=True)
class Proxies(Containers):
    """Properties: name, image, network, bind, port, engine_port."""

    kind: ClassVar[str] = PROXY
    runs_engines: ClassVar[bool] = False

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Start it unless it runs. One that never has gets a configuration first, which sends nobody anywhere."""
        proxy_id = attributes["id"]
        if self.inspect(proxy_id, lambda item: item.part("State").text("Status")) == "created":
            self.configure(proxy_id, "")
        Containers.complete(self, attributes, properties)

    def serves(self, proxy_id: str, machine_id: str) -> bool:
        """Return whether new requests go to this machine."""
        archive = self.api.look(
            "reading where requests go",
            lambda client: b"".join(client.get_archive(proxy_id, f"{_FOLDER}/{_FILE}")[0]),
            _bytes,
        )
        return f"server {machine_id} ".encode() in (archive or b"")

    def configure(self, proxy_id: str, machine_id: str) -> None:
        """Write down that new requests go to this machine alone; to none where it is empty."""
        packed, content = io.BytesIO(), configuration(machine_id).encode()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            member = tarfile.TarInfo(_FILE)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        self.api.ask(
            "writing where requests go",
            lambda client: client.put_archive(proxy_id, _FOLDER, packed.getvalue()),
            lambda _done: None,
        )

    def reload(self, proxy_id: str) -> None:
        """Have it begin to act by what is written."""
        self.api.ask("reloading the proxy", lambda client: client.kill(proxy_id, "SIGHUP"), lambda _nothing: None)

    def loaded(self, proxy_id: str) -> bytes:
        """Return its latest line about a configuration that was taken up, which begins with the moment."""
        lines = reversed(log_of(self.api, proxy_id, _LOG_LINES).splitlines())
        return next((line for line in lines if _LOADED in line), b"")

    def workers(self, proxy_id: str) -> int:
        """Return how many work: one, and each before it whose responses have not all ended."""
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
            # Docker gives up restarting what was sent the signal that ends it: a reload's must be another one.
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
        raise ReplyError("there is no list of processes")
    return found
