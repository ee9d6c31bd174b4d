"""The proxy in front of a deployment's engines: HAProxy in its own container.

Its configuration names the one machine that gets new requests. It is stored in the container, so it survives a restart,
and is applied by a reload: a new worker takes over the sockets, and the old one continues until its last response ends.
No request is cut off or refused, and requests are open as long as there are old workers.

Rejected: Caddy, whose reload closes idle connections that clients are about to use; nginx, which does the same and
buffers streams by default; Traefik, which needs the Docker socket and so control of the host.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from docker.types import LogConfig, Ulimit

from tgi_deploy.errors import InputError
from tgi_deploy.targets.certificate import new_pair, read_chain
from tgi_deploy.targets.docker.console import log_of
from tgi_deploy.targets.docker.container import Containers
from tgi_deploy.targets.docker.resources import NEW, PROXY
from tgi_deploy.targets.reply import Reply, ReplyError
from tgi_deploy.templating import render_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORT: Final = 8080
_FOLDER: Final = "/etc"
_FILE: Final = "front.cfg"
_CHAIN: Final = "front.pem"
_KEY: Final = "front.pem.key"  # where HAProxy looks for the key of `front.pem`
_REPORT: Final = "front.certificate"
_MOST_BYTES: Final = 65536
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
    """Properties: name, image, network, bind, port, engine_port; `tls` (`Host` of `resources.py`) to answer over TLS.

    A new certificate is created here, and its private key is sent only to the container. Next to them, the container
    stores the line about its certificate that a machine prints on its console, for computers without the record.
    """

    kind: ClassVar[str] = PROXY
    runs_engines: ClassVar[bool] = False

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Start it unless it runs; a new one first gets its certificate, and a configuration without a machine."""
        proxy_id = attributes["id"]
        if self.inspect(proxy_id, lambda item: item.part("State").text("Status")) == "created":
            if "tls" in properties:
                self._write(proxy_id, "writing the proxy's certificate", self._certified(properties))
            self.configure(proxy_id, "")
        Containers.update(self, attributes, properties)

    def _certified(self, properties: Mapping[str, Any]) -> dict[str, str]:
        """Return the files of its certificate. Raises InputError `secret_missing`."""
        tls = properties["tls"]
        if tls["certificate"] == NEW:
            own, key = new_pair(properties["name"], datetime.now(UTC))
        else:
            own, key = read_chain(tls["certificate"]), self.api.environ.get(tls["key"], "")
            if not key:
                raise InputError("secret_missing", f"{tls['key']} is not set here", hint=f"export {tls['key']}=…")
        return {_CHAIN: own.pem, _KEY: key, _REPORT: f"{own.shown.line}\n"}

    def reported_certificate(self, name: str) -> str:
        """Return the line about the certificate of the proxy with this name or id; empty without one."""
        return (self._read(name, _REPORT) or b"").decode("ascii", "replace")

    def serves(self, proxy_id: str, machine_id: str) -> bool:
        """Return whether new requests are sent to this machine."""
        return f"server {machine_id} ".encode() in (self._read(proxy_id, _FILE) or b"")

    def configure(self, proxy_id: str, machine_id: str) -> None:
        """Write the configuration that sends new requests only to this machine, or nowhere if empty."""
        self._write(proxy_id, "writing the proxy's configuration", {_FILE: configuration(machine_id)})

    def _read(self, proxy_id: str, file: str) -> bytes | None:
        """Return the start of a file in its folder; None without it."""
        return self.api.look(
            f"reading the proxy's {file}",
            lambda client: b"".join(client.get_archive(proxy_id, f"{_FOLDER}/{file}")[0]),
            _content,
        )

    def _write(self, proxy_id: str, doing: str, files: Mapping[str, str]) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        self.api.ask(doing, lambda client: client.put_archive(proxy_id, _FOLDER, packed.getvalue()), lambda _done: None)

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
            "environment": {
                "ENGINE_PORT": str(properties["engine_port"]),
                **({"FRONT_TLS": "yes"} if "tls" in properties else {}),
            },
            "labels": dict(tags),
            "ports": [_PORT],
            # Docker stops restarting a container that was sent its stop signal, so a reload needs a different one.
            "stop_signal": "SIGTERM",
            "stop_timeout": _STOP_S,
            "host_config": host_config,
        }


def _content(raw: object) -> bytes:
    """Return the content of the only file in an archive, up to 64 KiB."""
    try:
        with tarfile.open(fileobj=io.BytesIO(raw if isinstance(raw, bytes) else b"")) as archive:
            file = archive.extractfile(next(iter(archive)))
            return file.read(_MOST_BYTES) if file is not None else b""
    except (KeyError, StopIteration, tarfile.TarError):  # KeyError: a link to a file that it lacks
        raise ReplyError("it is not a file") from None


def _processes(item: object) -> list[object]:
    found = Reply.of(item).content.get("Processes")
    if not isinstance(found, list):
        raise ReplyError("the process list is missing")
    return found
