"""The engine's container. Properties: see `targets/docker.py`. Its name is unique on the host: that is its token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from docker import errors as docker_errors
from docker.types import DeviceRequest, Healthcheck, LogConfig, Mount

from tgi_deploy.errors import ConflictError, InputError
from tgi_deploy.reconcile.model import TAG_ID, TAG_KEY, TAG_NAME, TAG_SPEC, Found

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tgi_deploy.adapters.docker.api import Api

KIND = "container"
ID_LENGTH: Final = 12
_NANO: Final = 10**9
_ALIVE: Final = frozenset({"created", "running", "paused", "restarting"})
_STARTABLE: Final = frozenset({"created", "exited"})
# The words that the engine of change has for what waits to be removed, and for what removes itself.
_STATES: Final = {"exited": "stopped", "dead": "stopped", "removing": "shutting-down"}


@dataclass(frozen=True, slots=True)
class Containers:
    api: Api

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        labels = [f"{name}={value}" if value else name for name, value in tags.items()]
        listed = self.api.ask(
            "looking for containers", lambda client: client.containers(all=True, filters={"label": labels})
        )
        details = (self.inspect(str(item["Id"])) for item in listed)
        found = [self._found(item) for item in details if item is not None]
        return tuple(sorted(found, key=lambda item: (item.attributes["created"], item.id)))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:  # noqa: ARG002 -- the name is the token
        """Make it, not started yet: `complete` does that, so that a kill in between is mended by the next run.

        Raises ConflictError `name_taken` when something else has the name.
        """
        return self.api.ask(
            "making the container", lambda client: self._create(client, properties, tags), creating=True
        )

    def _create(self, client: Any, properties: Mapping[str, Any], tags: Mapping[str, str]) -> Found:  # noqa: ANN401 -- docker's own client
        try:
            made = client.create_container(**_request(client, properties, tags, self._secrets(properties)))
        except docker_errors.APIError as error:
            holder = self.inspect(properties["name"]) if error.status_code == 409 else None  # noqa: PLR2004 -- conflict
            if holder is None:
                raise
            return self._of_same_name(holder, properties["name"], tags)
        made_id = str(made["Id"])
        return self._found(self.inspect(made_id) or {"Id": made_id, "Config": {"Labels": dict(tags)}})

    def _secrets(self, properties: Mapping[str, Any]) -> dict[str, str]:
        """Read at the last moment: they are in no plan, record or label."""
        missing = [name for name in properties["secret_env"].values() if name not in self.api.environ]
        if missing:
            raise InputError("secret_missing", f"{missing[0]} is not set here", hint=f"export {missing[0]}=…")
        return {name: self.api.environ[here] for name, here in properties["secret_env"].items()}

    def _of_same_name(self, holder: Mapping[str, Any], name: str, tags: Mapping[str, str]) -> Found:
        """What has the name already: this very container if its labels say so."""
        found = self._found(holder)
        if all(found.tags.get(tag) == tags.get(tag) for tag in (TAG_ID, TAG_KEY, TAG_SPEC)):
            return found
        owner = found.tags.get(TAG_NAME)
        what = f"a container of the deployment '{owner}'" if owner else "a container that this tool has not made"
        raise ConflictError(
            "name_taken",
            f"the name {name} belongs to {what} ({found.id})",
            hint=f"choose another --name, or remove it with 'docker rm --force {found.id}' if nobody needs it",
        )

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:  # noqa: ARG002 -- a Handler's signature
        """Start it unless it runs. Raises HostRefusedError where the host can't give it its GPUs or its port."""
        container_id = attributes["id"]
        state = self.inspect(container_id)
        if state is not None and state["State"]["Status"] in _STARTABLE:
            self.api.ask("starting the container", lambda client: client.start(container_id))

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        item = self.inspect(attributes["id"])
        return None if item is None else self._found(item)

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Ended at once: whoever removes a deployment has no more use for its answers."""
        container_id = attributes["id"]
        self.api.look(
            "removing the container", lambda client: client.remove_container(container_id, force=True, v=True)
        )

    def inspect(self, container_id: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.api.look(
            "reading a container", lambda client: client.inspect_container(container_id)
        )
        return found

    def _found(self, item: Mapping[str, Any]) -> Found:
        labels: Mapping[str, str] = (item.get("Config") or {}).get("Labels") or {}
        state = str((item.get("State") or {}).get("Status", "created"))
        return Found(
            key=labels.get(TAG_KEY, KIND),
            kind=KIND,
            place=self.api.place,
            attributes=self._attributes(item),
            tags=dict(labels),
            state=_STATES.get(state, state),
            alive=state in _ALIVE,
        )

    def _attributes(self, item: Mapping[str, Any]) -> dict[str, str]:
        config = item.get("Config") or {}
        return {
            "id": str(item["Id"])[:ID_LENGTH],
            "name": str(item.get("Name", "")).removeprefix("/"),
            "image": str(config.get("Image", "")),
            "created": str(item.get("Created", "")),
            "address": self.address(item) or "",
        }

    def address(self, item: Mapping[str, Any]) -> str | None:
        """Where its published port is reached: from its settings, so that one that has ended has it, too."""
        bindings = ((item.get("HostConfig") or {}).get("PortBindings") or {}).values()
        hosts = [str(binding.get("HostIp") or "") for bound in bindings for binding in bound or ()]
        if not hosts:
            return None
        return self.api.endpoint.host if hosts[0] in {"", "0.0.0.0", "::"} else hosts[0]  # noqa: S104 -- compared with


def _request(
    client: Any,  # noqa: ANN401 -- docker's own client
    properties: Mapping[str, Any],
    tags: Mapping[str, str],
    secrets: Mapping[str, str],
) -> dict[str, Any]:
    """The parameters of `create_container`."""
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
    log = properties["log"]
    return {
        "port_bindings": {properties["container_port"]: (properties["bind"], properties["port"])},
        "mounts": [*_volumes(properties["volumes"]), *_folders(properties["model"])],
        "shm_size": properties["shm_size"],
        "device_requests": _device_requests(properties["devices"]),
        "restart_policy": _restart_policy(properties["restarts"]),
        "log_config": LogConfig(type=log["driver"], config=dict(log["options"])),
    }


def _restart_policy(restarts: int | None) -> dict[str, Any]:
    """None: for ever, whatever it ended with."""
    return {"Name": "always"} if restarts is None else {"Name": "on-failure", "MaximumRetryCount": restarts}


def _volumes(volumes: Mapping[str, str]) -> Iterable[Mount]:
    return (Mount(target=target, source=name, type="volume") for target, name in volumes.items())


def _folders(folders: Mapping[str, str]) -> Iterable[Mount]:
    return (Mount(target=target, source=path, type="bind", read_only=True) for target, path in folders.items())


def _device_requests(devices: list[str] | None) -> list[DeviceRequest]:
    """What `docker run --gpus` asks for: all, or those named."""
    if devices is None:
        return [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return [DeviceRequest(device_ids=list(devices), capabilities=[["gpu"]])] if devices else []
