"""Turns a candidate into the resources of a container on a Docker host. Pure.

A proxy in front has the deployment's name and publishes the port; it and the network outlive updates.

The weights cache is a volume shared by all deployments of a host, which it outlives. Its name includes its layout:
releases that store models elsewhere under `/data` use another volume.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.base import as_dict
from tgi_deploy.values.container import MODEL_DIR
from tgi_deploy.values.resource import KEPT, Ref, Resource, machine_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.targets.container import HostedContainer
    from tgi_deploy.values.container import Health, HostAccess, Mount

VOLUME: Final = "volume"
CONTAINER: Final = "container"
NETWORK: Final = "network"
PROXY: Final = "proxy"
CACHE: Final = "cache"
LOOPBACK: Final = "127.0.0.1"
NEW: Final = "new"  # a certificate that is created with the proxy
_WEIGHTS: Final = "weights"
# Only bash is in every release's image; curl and Python on PATH are not.
_HEALTH: Final = (
    "exec 3<>/dev/tcp/127.0.0.1/{port} && "
    r"printf 'GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3 && "
    "read -r -t 15 -u 3 _ status _ && [[ $status == 200 ]]"
)
# The engine logs a line per request: an unbounded log fills the disk with the weights and images.
_LOG: Final = {"driver": "json-file", "options": {"max-size": "50m", "max-file": "3"}}


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """Everything that determines the resources. `devices`: the host's GPU ids, None to use the container's.

    `place` is the Docker host, `bind` the host address to publish the port on. `proxy_image` is empty without a proxy.
    `tls` is empty for plain HTTP; otherwise `certificate` is `NEW` or the user's in PEM, and `key` the name of the
    variable with its private key.
    `secrets`: container variables with the names, never values, of the caller's variables that hold their values.
    """

    name: str
    revision: int
    place: str
    container: HostedContainer
    bind: str = LOOPBACK
    proxy_image: str = ""
    tls: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] | None = None
    secrets: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)
    ready_deadline_s: int


def container_name(name: str) -> str:
    """Return the container's name, unique per host, so that it reserves the deployment's name."""
    return f"tgi-deploy-{name}"


def resources(host: Host) -> tuple[Resource, ...]:
    """Return the caches, the proxy and its network if there is one, and the container."""
    caches = (_cache(host.place, mount) for mount in host.container.container.mounts)
    return (*caches, *(_front(host) if host.proxy_image else ()), _container(host))


def _front(host: Host) -> tuple[Resource, Resource]:
    """Return the proxy and its network. An existing proxy keeps its image: replacing it would cut connections."""
    name = container_name(host.name)
    network = Resource(key=NETWORK, kind=NETWORK, place=host.place, properties={"name": name})
    proxy = Resource(
        key=PROXY,
        kind=PROXY,
        place=host.place,
        properties={
            "name": name,
            "image": host.proxy_image,
            "network": Ref(key=NETWORK, attribute="id"),
            "bind": host.bind,
            "port": host.container.port,
            "engine_port": host.container.container_port,
            **({"tls": dict(host.tls)} if host.tls else {}),
            "running": True,
        },
        mutable=("image", "running"),
    )
    return network, proxy


def cache_name(mount: Mount) -> str:
    """Return the volume's name, which depends on the layout."""
    layout = re.sub(r"[^a-z0-9]+", "-", mount.layout.lower()) or "default"
    return f"tgi-deploy-{_cache_key(mount)}-{layout}"


def _cache_key(mount: Mount) -> str:
    return CACHE if mount.purpose == _WEIGHTS else mount.purpose


def _cache(place: str, mount: Mount) -> Resource:
    return Resource(
        key=_cache_key(mount),
        kind=VOLUME,
        place=place,
        properties={"name": cache_name(mount)},
        notes={KEPT: "downloaded weights" if mount.purpose == _WEIGHTS else "compiled kernels"},
    )


def _container(host: Host) -> Resource:
    container = host.container
    return Resource(
        key=machine_key(CONTAINER, host.revision),
        kind=CONTAINER,
        place=host.place,
        properties={
            **_reached(host),
            "image": container.image,
            "args": list(container.args),
            "env": dict(container.env),
            "secret_env": dict(host.secrets),
            "devices": _devices(host),
            **_host_access(container.host),
            "shm_size": container.shm_size,
            "container_port": container.container_port,
            "volumes": {mount.path: cache_name(mount) for mount in container.container.mounts},
            "model": {MODEL_DIR: container.model_dir} if container.model_dir else {},
            "restarts": container.restarts,
            "stop_timeout_s": container.stop_timeout_s,
            "health": _health(container.health, container.container_port, host.ready_deadline_s),
            "log": _LOG,
            "running": True,
        },
        mutable=("running",),
        notes=host.notes,
        is_machine=True,
    )


def _reached(host: Host) -> Mapping[str, object]:
    """Return how the container is reached. Behind a proxy, two revisions run side by side under different names."""
    name = container_name(host.name)
    if host.proxy_image:
        return {"name": f"{name}.{host.revision}", "network": Ref(key=NETWORK, attribute="id")}
    return {"name": name, "port": host.container.port, "bind": host.bind}


def _devices(host: Host) -> list[str] | None:
    """Return GPUs by index or UUID; None for all."""
    if host.devices is not None:
        return list(host.devices[: host.container.gpus])
    return None if host.container.devices is None else list(host.container.devices)


def _host_access(access: HostAccess | None) -> Mapping[str, object]:
    """Return access to accelerators that are not NVIDIA's; empty for NVIDIA, as in older specs."""
    return {} if access is None else {"host_access": as_dict(access)}


def _health(health: Health, port: int, patience_s: int) -> Mapping[str, object]:
    return {
        "command": ["bash", "-c", _HEALTH.format(port=port, path=health.path)],
        "every_s": health.every_s,
        "tries": health.failures,
        "patience_s": patience_s,
    }
