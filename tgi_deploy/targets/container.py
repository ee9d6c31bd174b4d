"""The engine's container, as all artifacts describe it."""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.secret import checked
from tgi_deploy.targets.deployable import HUB_TOKEN
from tgi_deploy.values.container import grouped, mount_of, mounted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.secret import Secret
    from tgi_deploy.targets.protocol import Deployable
    from tgi_deploy.values.container import Container, Health, HostAccess, Mount, Redaction
    from tgi_deploy.values.plan import Candidate, EngineRun

_WEIGHTS: Final = "weights"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_SIZES: Final = (("g", 1024**3), ("m", 1024**2), ("b", 1))


def api_key_variable(engine: EngineRun) -> str:
    """Return the container's variable that sets the API key. Raises InputError `api_key_unsupported`."""
    if engine.access.key_variable is None:
        raise InputError(
            "api_key_unsupported",
            f"version {engine.version} of the engine does not support an API key",
            hint="choose a newer --engine-version, or omit the API key",
        )
    return engine.access.key_variable


def check_key_variable(variable: str, environment: Mapping[str, str], engine: EngineRun) -> Secret:
    """Return the API key for this computer's own requests.

    Raises InputError `bad_env`, `secret_missing`, `secret_unusable`.
    """
    if not _VARIABLE.fullmatch(variable):
        example = f"{engine.name.upper()}_API_KEY"
        raise InputError(
            "bad_env",
            "--api-key-from-env takes the name of an environment variable, not a key",
            hint=f"export {example}=… and give --api-key-from-env {example}",
        )
    return checked(environment.get(variable), variable, "the API key")


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """A folder whose content outlives the container: a Docker volume `name`, or a folder with `suffix` on a machine."""

    name: str
    suffix: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostedContainer:
    """A container with what its host adds, as the templates need it.

    `name` is the engine's; `port` and `model_dir` are on the host. `devices` is None if all GPUs are used.
    """

    name: str
    container: Container
    secret_env: tuple[str, ...]
    devices: tuple[str, ...] | None
    port: int
    model_dir: str | None

    @property
    def image(self) -> str:
        return self.container.image.reference

    @property
    def args(self) -> tuple[str, ...]:
        """The arguments, with a host folder replaced by its mount point."""
        return self.container.args if self.model_dir is None else mounted(self.container.args, self.model_dir)

    @property
    def env(self) -> tuple[tuple[str, str], ...]:
        offline = {} if self.model_dir is None else {"HF_HUB_OFFLINE": "1"}
        chosen = {} if self.host is None or self.host.visible is None else {self.host.visible: self._visible}
        return tuple(sorted({**offline, **chosen, **dict(self.container.env)}.items()))

    @property
    def _visible(self) -> str:
        return "all" if self.devices is None else ",".join(self.devices)

    @property
    def gpus(self) -> int:
        return self.container.accelerators

    @property
    def gpus_option(self) -> str:
        """The value of `docker run --gpus`, which Docker parses as CSV, so a list of devices needs quotes."""
        return "all" if self.devices is None else f'"device={",".join(self.devices)}"'

    @property
    def host(self) -> HostAccess | None:
        """How the container gets accelerators that are not NVIDIA's."""
        return self.container.host

    @property
    def accelerator_options(self) -> tuple[tuple[str, str], ...]:
        """The `docker run` options, with values, that pass the accelerators."""
        return (("--gpus", self.gpus_option),) if self.host is None else self.host.run_options

    @property
    def shm_size(self) -> str | None:
        """The size in Docker's and Compose's notation, in the largest exact unit."""
        size_bytes = 0 if self.host else self.container.shm_bytes
        letter, unit = next((letter, unit) for letter, unit in _SIZES if size_bytes % unit == 0)
        return f"{size_bytes // unit}{letter}" if size_bytes else None

    @property
    def container_port(self) -> int:
        return self.container.port

    @property
    def stop_timeout_s(self) -> int:
        return self.container.stop.grace_s

    @property
    def drain_variable(self) -> str | None:
        """The variable for the seconds that open requests may take; None if that can't be changed."""
        return self.container.stop.drain_variable or None

    @property
    def pinned_drain_s(self) -> int:
        """The seconds that open requests may take, as set by the user; 0 if not set."""
        return self.container.stop.drain_s or 0

    @property
    def health(self) -> Health:
        return self.container.health

    @property
    def redactions(self) -> tuple[Redaction, ...]:
        return self.container.redactions

    @property
    def never_after(self) -> tuple[int, ...]:
        return self.container.restart.never_after

    @property
    def restart_policy(self) -> str:
        return self.container.restart.policy

    @property
    def restarts(self) -> int | None:
        """How often Docker restarts it; None: always.

        Docker can't distinguish a wrong flag from a crash, so restarts are limited; the user data's systemd unit can.
        """
        return self.container.restart.most if self.container.restart.policy == "on-failure" else None

    @property
    def restart_option(self) -> str:
        """The value of `docker run --restart`."""
        return "always" if self.restarts is None else f"on-failure:{self.restarts}"

    @property
    def volumes(self) -> tuple[Volume, ...]:
        return tuple(_volume(self.name, mount) for mount in self.container.mounts)

    @property
    def model_mount(self) -> str | None:
        """The value of `docker run --mount` for a local model."""
        return None if self.model_dir is None else mount_of(self.model_dir)

    @property
    def arg_lines(self) -> tuple[tuple[str, ...], ...]:
        return tuple(grouped(self.args))


def _volume(engine: str, mount: Mount) -> Volume:
    suffix = "" if mount.purpose == _WEIGHTS else f"-{mount.purpose}"
    return Volume(name=f"{engine}-data{suffix}", suffix=suffix, path=mount.path)


def container_for(deployable: Deployable) -> HostedContainer:
    engine = deployable.candidate.engine
    return HostedContainer(
        name=engine.name,
        container=engine.container,
        secret_env=secret_names(deployable),
        devices=_devices(deployable.candidate),
        port=engine.port,
        model_dir=_absolute(deployable.model.model.local_path),
    )


def secret_names(deployable: Deployable) -> tuple[str, ...]:
    """Return the variables whose values are not in the artifact; gated models need the token."""
    model = deployable.model.model
    names = {secret.variable for secret in deployable.candidate.engine.container.secrets}
    if model.gated and model.local_path is None:
        names.add(HUB_TOKEN)
    return tuple(sorted(names))


def _devices(candidate: Candidate) -> tuple[str, ...] | None:
    """Return GPUs by index, unless the deployment uses all of a rented host; an owned one may have more."""
    offer, used = candidate.offer, candidate.engine.container.accelerators
    if used == offer.instance_type.accelerator_count and offer.market != "owned":
        return None
    return tuple(map(str, range(used)))


def _absolute(path: str | None) -> str | None:
    """Return an absolute path, because Docker would take a relative one as a volume name."""
    return None if path is None else os.path.abspath(path)  # noqa: PTH100 -- resolves `..`, not symbolic links
