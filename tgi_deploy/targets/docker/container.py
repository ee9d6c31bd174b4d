"""Handler of engine containers. The name, unique on the host, is the request token.

Behind a proxy the container publishes no port and is only on the deployment's network. Its name is then the proxy's
plus a dot, which deployment names can't contain, and its revision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from docker.types import DeviceRequest, Healthcheck, LogConfig, Mount

from tgi_deploy.errors import ConflictError, InputError
from tgi_deploy.reconcile.errors import LostReplyError
from tgi_deploy.targets.reply import Reply, replies
from tgi_deploy.values.resource import TAG_ID, TAG_KEY, TAG_NAME, TAG_SPEC, Found, key_of, machine_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tgi_deploy.targets.docker.api import Api

KIND = "container"
ID_LENGTH: Final = 12
_NANO: Final = 10**9
_T = TypeVar("_T")
_ALIVE: Final = frozenset({"created", "running", "paused", "restarting"})
_STARTABLE: Final = frozenset({"created", "exited"})
# Docker's states in the executor's terms.
_STATES: Final = {"exited": "stopped", "dead": "stopped", "removing": "shutting-down"}


@dataclass(frozen=True, slots=True)
class Containers:
    api: Api
    kind: ClassVar[str] = KIND
    rare: ClassVar[bool] = False
    runs_engines: ClassVar[bool] = True
    unrepeatable: ClassVar[bool] = False

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        labels = [f"{name}={value}" if value else name for name, value in tags.items()]
        ids = self.api.ask(
            "looking for containers",
            lambda client: client.containers(all=True, filters={"label": labels}),
            lambda listed: [item.text("Id") for item in replies(listed)],
        )
        found = [item for container_id in ids if (item := self.inspect(container_id, self._found)) is not None]
        mine = [item for item in found if item.key.partition("@")[0] == self.kind]
        return tuple(sorted(mine, key=lambda item: (item.attributes["created"], item.id)))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- the name is the token
        """Create it without starting it; `update` starts it, so that a killed run can be resumed.

        Raises ConflictError `name_taken` if something else has the name.
        """
        name = properties["name"]
        request = self._request(properties, tags)
        made_id = self.api.create("creating the container", lambda client: client.create_container(**request))
        found = self.inspect(made_id or name, self._found)
        if made_id is None:
            return self._of_same_name(found, name, tags)
        return found or self._found(Reply({"Id": made_id, "Config": {"Labels": dict(tags)}}))

    def _request(self, properties: Mapping[str, Any], tags: Mapping[str, str]) -> dict[str, Any]:
        return _request(self.api.client, properties, tags, self._secrets(properties))

    def _secrets(self, properties: Mapping[str, Any]) -> dict[str, str]:
        """Return the secrets, which are in no plan, record or label."""
        missing = [name for name in properties["secret_env"].values() if name not in self.api.environ]
        if missing:
            raise InputError("secret_missing", f"{missing[0]} is not set here", hint=f"export {missing[0]}=…")
        return {name: self.api.environ[here] for name, here in properties["secret_env"].items()}

    def _of_same_name(self, found: Found | None, name: str, tags: Mapping[str, str]) -> Found:
        """Return the container that has the name already, if its labels match."""
        if found is None:
            raise LostReplyError(f"creating the container: the name {name} was used by something that no longer exists")
        if all(found.tags.get(tag) == tags.get(tag) for tag in (TAG_ID, TAG_KEY, TAG_SPEC)):
            return found
        owner = found.tags.get(TAG_NAME)
        what = f"a container of the deployment '{owner}'" if owner else "a container that this tool did not create"
        raise ConflictError(
            "name_taken",
            f"the name {name} belongs to {what} ({found.id})",
            hint=f"choose another --name, or remove it with 'docker rm --force {found.id}' if it is not needed",
        )

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:  # noqa: ARG002 -- a Handler's signature
        """Start it unless it runs. Raises HostRefusedError if the host can't provide its GPUs or port."""
        container_id = attributes["id"]
        status = self.inspect(container_id, lambda item: item.part("State").text("Status"))
        if status in _STARTABLE:
            self.api.ask("starting the container", lambda client: client.start(container_id), lambda _nothing: None)

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        return self.inspect(attributes["id"], self._found)

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Stop it, letting the engine finish open requests within its grace period, and delete it."""
        container_id = attributes["id"]
        self.stop(attributes)
        self.api.look(
            "removing the container",
            lambda client: client.remove_container(container_id, force=True, v=True),
            lambda _nothing: None,
        )

    def stop(self, attributes: Mapping[str, str]) -> None:
        """Stop it and return once it has exited, after `_grace_s` at most."""
        container_id, grace_s = attributes["id"], self._grace_s(attributes)
        self.api.look(
            "stopping the container", lambda client: client.stop(container_id, timeout=grace_s), lambda _nothing: None
        )

    def start(self, attributes: Mapping[str, str]) -> None:
        self.update(attributes, {})

    def restart(self, attributes: Mapping[str, str]) -> bool:
        container_id, grace_s = attributes["id"], self._grace_s(attributes)
        self.api.ask(
            "restarting the container",
            lambda client: client.restart(container_id, timeout=grace_s),
            lambda _nothing: None,
        )
        return True

    def _grace_s(self, attributes: Mapping[str, str]) -> int:
        """Return the grace period, sent explicitly: Docker's client would time out before it is over."""
        return self.inspect(attributes["id"], lambda item: item.part("Config").integer("StopTimeout")) or 0

    def inspect(self, container_id: str, read: Callable[[Reply], _T]) -> _T | None:
        """Return `read` of its description; None if it does not exist."""
        return self.api.look(
            "reading a container",
            lambda client: client.inspect_container(container_id),
            lambda item: read(Reply.of(item)),
        )

    def name_of(self, container_id: str) -> str:
        """Return its name; empty if it does not exist."""
        return self.inspect(container_id, lambda item: item.optional_text("Name").removeprefix("/")) or ""

    def _found(self, item: Reply) -> Found:
        labels = item.optional_part("Config").table("Labels")
        state = item.optional_part("State").optional_text("Status") or "created"
        return Found(
            key=key_of(labels, machine_key(KIND, 1)),
            kind=self.kind,
            place=self.api.place,
            attributes=self._attributes(item),
            tags=labels,
            state=_STATES.get(state, state),
            alive=state in _ALIVE,
            is_machine=self.runs_engines,
        )

    def _attributes(self, item: Reply) -> dict[str, str]:
        return {
            "id": item.text("Id")[:ID_LENGTH],
            "name": item.optional_text("Name").removeprefix("/"),
            "image": item.optional_part("Config").optional_text("Image"),
            "created": item.optional_text("Created"),
            "address": self.address(item) or "",
            "devices": ",".join(_devices_in(item)),
        }

    def address(self, item: Reply) -> str | None:
        """Return its address for callers, from its settings or its proxy's, so that it is known after it exited."""
        bound = self._bound(item)
        name, _, revision = item.optional_text("Name").removeprefix("/").partition(".")
        if bound is None and revision:
            bound = self.inspect(name, self._bound)
        return self.api.endpoint.host if bound in {"", "0.0.0.0", "::"} else bound  # noqa: S104 -- compared with

    def own_address(self, item: Reply) -> str | None:
        """Return the address of this container itself; behind a proxy, its id."""
        address = self.address(item)
        behind = address is not None and self._bound(item) is None
        return f"{address}/machines/{item.text('Id')[:ID_LENGTH]}" if behind else address

    def _bound(self, item: Reply) -> str | None:
        """Return the host address that its port is published on, or None."""
        ports = item.optional_part("HostConfig").optional_part("PortBindings")
        return next((bound.address("HostIp") for port in ports.content for bound in ports.optional_parts(port)), None)


def _devices_in(item: Reply) -> Iterable[str]:
    """Return the accelerators assigned by name."""
    for asked in item.optional_part("HostConfig").optional_parts("DeviceRequests"):
        yield from asked.texts("DeviceIDs") if asked.has("DeviceIDs") else ()


def _request(
    client: Any,  # noqa: ANN401 -- docker's own client
    properties: Mapping[str, Any],
    tags: Mapping[str, str],
    secrets: Mapping[str, str],
) -> dict[str, Any]:
    """Return the parameters of `create_container`."""
    health = properties["health"]
    return {
        "name": properties["name"],
        "image": properties["image"],
        "command": list(properties["args"]),
        "environment": {**properties["env"], **secrets},
        "labels": dict(tags),
        "ports": [properties["container_port"]],
        "stop_timeout": properties["stop_timeout_s"],
        "healthcheck": Healthcheck(
            test=["CMD", *health["command"]],
            interval=health["every_s"] * _NANO,
            timeout=health["every_s"] * _NANO,
            retries=health["tries"],
            start_period=health["patience_s"] * _NANO,
        ),
        "host_config": client.create_host_config(**_host_config(properties)),
    }


def _host_config(properties: Mapping[str, Any]) -> dict[str, Any]:
    log, access = properties["log"], properties.get("host_access")
    return {
        **_reached(properties),
        "mounts": [*_volumes(properties["volumes"]), *_folders(properties["model"])],
        "shm_size": properties["shm_size"],
        **(_devices_of(access) if access else {"device_requests": _device_requests(properties["devices"])}),
        "restart_policy": _restart_policy(properties["restarts"]),
        "log_config": LogConfig(type=log["driver"], config=dict(log["options"])),
    }


def _reached(properties: Mapping[str, Any]) -> dict[str, Any]:
    if "network" in properties:
        return {"network_mode": properties["network"]}
    return {"port_bindings": {properties["container_port"]: (properties["bind"], properties["port"])}}


def _restart_policy(restarts: int | None) -> dict[str, Any]:
    """Return the restart policy. Not `always`, which would restart a stopped container with the daemon."""
    return {"Name": "unless-stopped"} if restarts is None else {"Name": "on-failure", "MaximumRetryCount": restarts}


def _volumes(volumes: Mapping[str, str]) -> Iterable[Mount]:
    return (Mount(target=target, source=name, type="volume") for target, name in volumes.items())


def _folders(folders: Mapping[str, str]) -> Iterable[Mount]:
    return (Mount(target=target, source=path, type="bind", read_only=True) for target, path in folders.items())


def _devices_of(access: Mapping[str, Any]) -> dict[str, Any]:
    """Return the devices for accelerators that are not NVIDIA's: all of the host's."""
    return {
        "devices": [f"{path}:{path}:rwm" for path in access["devices"]],
        "group_add": list(access["groups"]),
        "cap_add": list(access["capabilities"]),
        "security_opt": list(access["security_options"]),
        "runtime": access["runtime"],
        "ipc_mode": "host",
    }


def _device_requests(devices: list[str] | None) -> list[DeviceRequest]:
    """Return the equivalent of `docker run --gpus`: all, or the named ones."""
    if devices is None:
        return [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return [DeviceRequest(device_ids=list(devices), capabilities=[["gpu"]])] if devices else []
