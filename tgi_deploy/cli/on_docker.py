"""What the commands do differently where the engine runs in a container on a Docker host."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from tgi_deploy.cli.options import DOCKER
from tgi_deploy.errors import InputError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.operations.launching.launch_docker import DockerSettings
    from tgi_deploy.operations.planning.wish import Wish
    from tgi_deploy.values.plan import EngineRun

_ENDS: Final = ("ttl", "max_spend", "idle_timeout", "lease")
_ELSEWHERE: Final = (
    "allow_cidr",
    "subnet",
    "ami",
    "hub_token_parameter",
    "api_key_parameter",
    "instance_profile",
    "external_ttl",
)
_HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105 -- the variable's name, not a token


class Given(Protocol):
    """What `up` was given beside the wish."""

    @property
    def sandbox(self) -> bool: ...

    @property
    def bind(self) -> str | None: ...

    @property
    def expose_to_world(self) -> bool: ...

    @property
    def hub_token_from_env(self) -> bool: ...

    @property
    def api_key_from_env(self) -> str | None: ...

    @property
    def plaintext(self) -> bool: ...

    @property
    def lock(self) -> Path | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class DockerHost:
    """The host that was found, and what was found on it. `devices` are UUIDs, None where nobody looked."""

    place: str
    local: bool
    devices: tuple[str, ...] | None = None
    notices: tuple[Problem, ...] = ()


def check_target_options(target: str, given: Given) -> None:
    """Options that mean nothing for the target are refused, not ignored."""
    if target != DOCKER:
        if given.bind is not None:
            raise InputError(
                "conflicting_options", "--bind goes with --target docker", hint="--allow-cidr says who may connect"
            )
        return
    named = [name for name in _ELSEWHERE if getattr(given, name)]
    if named:
        raise InputError(
            "conflicting_options",
            f"--{named[0].replace('_', '-')} is for machines on EC2, not for a Docker host",
            hint="leave it out; --bind says where the port is published",
        )
    if given.sandbox:
        raise InputError(
            "conflicting_options",
            "--sandbox is a local cloud, it has no Docker host",
            hint="leave out --sandbox or --target docker",
        )
    _check_bind(given)


def _check_bind(given: Given) -> None:
    if given.bind is None:
        return
    try:
        address = ipaddress.ip_address(given.bind)
    except ValueError:
        raise InputError(
            "bad_bind", f"--bind {given.bind[:60]!r} is no address", hint="write an address of the Docker host"
        ) from None
    if address.is_unspecified and not given.expose_to_world:
        raise InputError(
            "world_exposed",
            f"--bind {given.bind} lets everybody in who reaches the host: Docker goes past its firewall",
            hint="name one address of the host, or add --expose-to-world if you mean it",
        )


def find_hardware(wish: Wish, catalog: Catalog, *, locked: bool = False) -> tuple[Wish, DockerHost]:
    """The wish with the hardware of the Docker host: what --hardware says, else this computer's own GPUs.

    Raises InputError `no_end_on_docker`, `hardware_needed`, `no_gpu`, `unknown_card`, `mig_enabled`.
    """
    from tgi_deploy import wiring  # noqa: PLC0415 -- likewise
    from tgi_deploy.operations.planning.local_hardware import local_hardware  # noqa: PLC0415 -- help is printed without it

    _refuse_ends(wish)
    endpoint = wiring.docker_endpoint()
    host = DockerHost(place=endpoint.place, local=endpoint.local)
    if locked or wish.hardware or os.environ.get("TGI_DEPLOY_HARDWARE"):
        return wish, host
    if not endpoint.local:
        raise InputError(
            "hardware_needed",
            f"the GPUs of the Docker host {endpoint.url} ({endpoint.source}) can't be seen from here",
            hint="say what it has with --hardware NxCARD, such as 2xRTX-4090",
        )
    found = local_hardware(wiring.local_gpus(), catalog, release=wish.engine_version or catalog.default_release)
    return replace(wish, hardware=found.hardware), replace(host, devices=found.devices, notices=found.notices)


def _refuse_ends(wish: Wish) -> None:
    """A promise that nothing keeps is worse than none."""
    from tgi_deploy.operations.planning.wish import variable_of_option  # noqa: PLC0415 -- help is printed without the planner

    for name in _ENDS:
        if getattr(wish, name) is not None or os.environ.get(variable_of_option(name)):
            raise InputError(
                "no_end_on_docker",
                f"--{name.replace('_', '-')}: nothing on a Docker host ends a container by itself",
                hint="leave it out, and end it with 'tgi-deploy down NAME'; it costs nothing by the hour",
            )


def docker_settings(given: Given, host: DockerHost, engine: EngineRun) -> DockerSettings:
    from tgi_deploy.operations.launching.launch_docker import DockerSettings  # noqa: PLC0415 -- help is printed without it

    everywhere = "0.0.0.0" if given.expose_to_world else "127.0.0.1"  # noqa: S104 -- asked for by --expose-to-world
    return DockerSettings(
        place=host.place,
        local=host.local,
        bind=given.bind or everywhere,
        devices=host.devices,
        secrets=_secrets(given, engine),
        known=frozenset(os.environ),
        api_key_variable=given.api_key_from_env,
        plaintext=given.plaintext,
    )


def _secrets(given: Given, engine: EngineRun) -> tuple[tuple[str, str], ...]:
    """(the container's variable, the one here that has its value), beside what the model itself needs."""
    wanted = [(_HUB_TOKEN, _HUB_TOKEN)] if given.hub_token_from_env else []
    if given.api_key_from_env is not None:
        variable = engine.access.key_variable
        if variable is None:
            raise InputError(
                "no_api_key", f"release {engine.version} asks for no API key", hint="choose a newer --engine-version"
            )
        wanted.append((variable, given.api_key_from_env))
    return tuple(wanted)
