"""A Docker host in memory: the part of the Docker SDK that the adapter uses, with its error classes. Every call passes
`enter` and `leave`, where a test can count it, kill the caller, or make it fail.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass, field
from typing import Any

from docker import errors


class _Response:
    def __init__(self, status: int) -> None:
        self.status_code = status
        self.reason = "refused"
        self.url = "http+docker://host"
        self.headers = {"Content-Type": "application/json"}


def api_error(status: int, result: str) -> errors.APIError:
    kind = errors.NotFound if status == 404 else errors.APIError
    return kind(result, response=_Response(status), explanation=result)


def packed(name: str, content: bytes) -> bytes:
    """Return an archive with one file."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as writer:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        writer.addfile(member, io.BytesIO(content))
    return archive.getvalue()


@dataclass
class FakeDocker:
    """`refusals`: call → (status, message), for the next such calls; `images` are present, others come by `layers`.

    `files` are those put into containers, by `ID:PATH`, `reloads` how often each got a signal, `finishing` how many
    workers of a proxy are listed besides the newest one, one less at each request.
    """

    containers_by_id: dict[str, dict[str, Any]] = field(default_factory=dict)
    volumes: dict[str, dict[str, Any]] = field(default_factory=dict)
    networks_by_id: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    reloads: dict[str, int] = field(default_factory=dict)
    finishing: int = 0
    images: set[str] = field(default_factory=set)
    messages: list[dict[str, Any]] = field(default_factory=list)
    deaths: list[dict[str, Any]] = field(default_factory=list)
    log: bytes = b""
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    on_call: Any = None
    after_call: Any = None

    def enter(self, name: str) -> None:
        self.calls.append(name)
        if self.on_call is not None:
            self.on_call(name)
        if name in self.refusals:
            raise api_error(*self.refusals[name])

    def leave(self, name: str) -> None:
        if self.after_call is not None:
            self.after_call(name)

    def create_host_config(self, **settings: Any) -> dict[str, Any]:
        return settings

    def create_container(self, **request: Any) -> dict[str, Any]:
        self.enter("create_container")
        if any(item["Name"] == f"/{request['name']}" for item in self.containers_by_id.values()):
            raise api_error(409, f'Conflict. The container name "/{request["name"]}" is already in use')
        made = hashlib.sha256(f"{request['name']} {len(self.calls)}".encode()).hexdigest()
        bound = request["host_config"].get("port_bindings", {})
        network = request["host_config"].get("network_mode")
        assert network is None or network in self.networks_by_id
        self.containers_by_id[made] = {
            "Id": made,
            "Name": f"/{request['name']}",
            "Created": "2026-01-09T00:00:00.123456789Z",
            "RestartCount": 0,
            "Config": {
                "Image": request["image"],
                "Labels": dict(request["labels"]),
                "StopTimeout": request["stop_timeout"],
            },
            "HostConfig": {
                "PortBindings": {
                    f"{port}/tcp": [{"HostIp": bind, "HostPort": str(host_port)}]
                    for port, (bind, host_port) in bound.items()
                },
                "DeviceRequests": [dict(item) for item in request["host_config"].get("device_requests", ())],
            },
            "State": {"Status": "created", "FinishedAt": "0001-01-01T00:00:00Z"},
            "request": request,
        }
        self.leave("create_container")
        return {"Id": made}

    def start(self, container_id: str) -> None:
        self.enter("start")
        self._one(container_id)["State"]["Status"] = "running"
        self.leave("start")

    def inspect_container(self, container_id: str) -> dict[str, Any]:
        self.enter("inspect_container")
        return self._one(container_id)

    def _one(self, container_id: str) -> dict[str, Any]:
        for known, item in self.containers_by_id.items():
            if known.startswith(container_id) or item["Name"] == f"/{container_id}":
                return item
        raise api_error(404, f"No such container: {container_id}")

    def containers(self, *, all: bool, filters: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: A002 -- the client's own word
        self.enter("containers")
        assert all
        return [item for item in self.containers_by_id.values() if _fits(item, filters)]

    def stop(self, container_id: str, *, timeout: int) -> None:
        """Stop it; a running one needs the engine's full grace period."""
        self.enter("stop")
        item = self._one(container_id)
        assert timeout == item["Config"]["StopTimeout"]
        item["State"]["Status"] = "exited"
        self.leave("stop")

    def restart(self, container_id: str, *, timeout: int) -> None:
        self.enter("restart")
        item = self._one(container_id)
        assert timeout == item["Config"]["StopTimeout"]
        item["State"]["Status"] = "running"
        self.leave("restart")

    def remove_container(self, container_id: str, *, force: bool, v: bool) -> None:
        self.enter("remove_container")
        assert force
        assert v
        del self.containers_by_id[self._one(container_id)["Id"]]
        self.leave("remove_container")

    def create_network(
        self, name: str, *, driver: str, check_duplicate: bool, labels: dict[str, str]
    ) -> dict[str, Any]:
        self.enter("create_network")
        assert (driver, check_duplicate) == ("bridge", True)
        if any(item["Name"] == name for item in self.networks_by_id.values()):
            raise api_error(409, f"network with name {name} already exists")
        made = hashlib.sha256(f"network {name} {len(self.calls)}".encode()).hexdigest()
        self.networks_by_id[made] = {"Id": made, "Name": name, "Created": "2026-01-09T00:00:00Z", "Labels": labels}
        self.leave("create_network")
        return {"Id": made}

    def networks(self, *, filters: dict[str, Any]) -> list[dict[str, Any]]:
        self.enter("networks")
        every = list(self.networks_by_id.values())
        if "name" in filters:
            return [item for item in every if filters["name"] in item["Name"]]
        return [item for item in every if _labelled(item["Labels"], filters)]

    def inspect_network(self, network_id: str) -> dict[str, Any]:
        self.enter("inspect_network")
        if network_id not in self.networks_by_id:
            raise api_error(404, f"network {network_id} not found")
        return self.networks_by_id[network_id]

    def remove_network(self, network_id: str) -> None:
        self.enter("remove_network")
        joined = [item["request"]["host_config"].get("network_mode") for item in self.containers_by_id.values()]
        if network_id in joined:
            raise api_error(403, f"error while removing network: network {network_id} has active endpoints")
        self.networks_by_id.pop(network_id, None)
        self.leave("remove_network")

    def put_archive(self, container_id: str, path: str, data: bytes) -> bool:
        self.enter("put_archive")
        made = self._one(container_id)["Id"]
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                self.files[f"{made}:{path}/{member.name}"] = archive.extractfile(member).read()
        self.leave("put_archive")
        return True

    def get_archive(self, container_id: str, path: str) -> tuple[list[bytes], dict[str, Any]]:
        self.enter("get_archive")
        content = self.files.get(f"{self._one(container_id)['Id']}:{path}")
        if content is None:
            raise api_error(404, f"Could not find the file {path} in container {container_id}")
        return [packed(path.rpartition("/")[2], content)], {}

    def kill(self, container_id: str, signal: str) -> None:
        self.enter("kill")
        assert signal == "SIGHUP"
        made = self._one(container_id)["Id"]
        self.reloads[made] = self.reloads.get(made, 0) + 1

    def top(self, container_id: str) -> dict[str, Any]:
        self._one(container_id)
        workers, self.finishing = 1 + self.finishing, max(0, self.finishing - 1)
        return {"Titles": ["PID", "CMD"], "Processes": [["1", "haproxy"]] * (1 + workers)}

    def create_volume(self, *, name: str, driver: str, labels: dict[str, str]) -> dict[str, Any]:
        self.enter("create_volume")
        made = self.volumes.setdefault(name, {"Name": name, "CreatedAt": "2026-01-09T00:00:00Z", "Labels": labels})
        self.leave("create_volume")
        return made

    def inspect_volume(self, name: str) -> dict[str, Any]:
        self.enter("inspect_volume")
        if name not in self.volumes:
            raise api_error(404, f"no such volume: {name}")
        return self.volumes[name]

    def remove_volume(self, name: str) -> None:
        self.enter("remove_volume")
        if any(name in _volumes_of(item) for item in self.containers_by_id.values()):
            raise api_error(409, f"remove {name}: volume is in use")
        self.volumes.pop(name, None)
        self.leave("remove_volume")

    def df(self) -> dict[str, Any]:
        return {"Volumes": [{"Name": name, "UsageData": {"Size": 16_000_000_000}} for name in self.volumes]}

    def logs(self, container_id: str, *, timestamps: bool, tail: int) -> bytes:
        loaded = self.reloads.get(self._one(container_id)["Id"], 0)
        return self.log + b"".join(b"%d : Loading success.\n" % at for at in range(loaded))

    def events(self, **_filters: Any) -> list[dict[str, Any]]:
        return self.deaths

    def inspect_image(self, image: str) -> dict[str, Any]:
        self.enter("inspect_image")
        if image not in self.images:
            raise api_error(404, f"No such image: {image}")
        return {"Id": "sha256:1"}

    def pull(self, image: str, *, stream: bool, decode: bool) -> list[dict[str, Any]]:
        self.enter("pull")
        self.images.add(image)
        return self.messages


def _fits(item: dict[str, Any], filters: dict[str, Any]) -> bool:
    if "volume" in filters:
        return filters["volume"] in _volumes_of(item)
    return _labelled(item["Config"]["Labels"], filters)


def _labelled(labels: dict[str, str], filters: dict[str, Any]) -> bool:
    pairs = [word.partition("=") for word in filters["label"]]
    return all(name in labels and (not equals or labels[name] == value) for name, equals, value in pairs)


def _volumes_of(item: dict[str, Any]) -> list[str]:
    return [mount["Source"] for mount in item["request"]["host_config"].get("mounts", ()) if mount["Type"] == "volume"]
