"""What an engine needs from its target. A container is independent of its host's addresses, devices and folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from msgspec import UnsetType

from tgi_deploy.values.base import UNSET, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# The mount point of a model folder of the host.
MODEL_DIR: Final = "/model"


class Image(Value, frozen=True, kw_only=True):
    """`reference` is what to pull, `bytes` its unpacked size. `needs_root`: no other user can start its programs."""

    reference: str
    bytes: int
    digest: str | None = None
    needs_root: bool | UnsetType = UNSET


class SecretRef(Value, frozen=True, kw_only=True):
    """A container variable and the source, never the value, of its secret."""

    variable: str
    source: str | None = None


class Mount(Value, frozen=True, kw_only=True):
    """A folder that outlives the container. Containers with the same purpose and `layout` share it."""

    path: str
    purpose: Literal["weights", "compile-cache"]
    layout: str


class Health(Value, frozen=True, kw_only=True):
    """The health check, every `every_s` seconds, and how many failures in a row mean unhealthy.

    `refuses_while_starting`: nothing listens before it is ready, so a 503 always means unhealthy.
    """

    path: str
    every_s: int
    failures: int
    refuses_while_starting: bool


class Restart(Value, frozen=True, kw_only=True):
    """The restart policy, at most `most` times. `never_after` are exit codes of a wrong configuration."""

    policy: Literal["always", "on-failure"]
    never_after: tuple[int, ...]
    most: int


class Stop(Value, frozen=True, kw_only=True):
    """How to stop it: after the signal, open requests may finish within `grace_s` seconds.

    `accepts_while_draining`: it still accepts new requests, so remove it from its load balancer first.
    `drain_variable` is the container's variable for the seconds that open requests may take, if a target may set it;
    `drain_s` are those seconds if the user has set them.
    """

    signal: Literal["SIGTERM"]
    grace_s: int
    accepts_while_draining: bool
    drain_variable: str | UnsetType = UNSET
    drain_s: int | UnsetType = UNSET


class Redaction(Value, frozen=True, kw_only=True):
    """Log lines that contain `text`, ignoring case, must not leave the machine.

    `closed_by`: the following indented lines through one that begins with this are included, unless the line has it.
    """

    text: str
    closed_by: str | None = None


class HostAccess(Value, frozen=True, kw_only=True):
    """How Docker passes accelerators other than NVIDIA's: all of the host's.

    `visible` is the variable that selects some by index. `remark` is a note on the build for the user.
    """

    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    security_options: tuple[str, ...] = ()
    runtime: str | None = None
    visible: str | None = None
    remark: str

    @property
    def run_options(self) -> tuple[tuple[str, str], ...]:
        """The options of `docker run`, with values. The host's shared memory comes with its accelerators."""
        return (
            *((("--runtime", self.runtime),) if self.runtime else ()),
            *(("--device", path) for path in self.devices),
            *(("--group-add", group) for group in self.groups),
            *(("--cap-add", name) for name in self.capabilities),
            *(("--security-opt", option) for option in self.security_options),
            ("--ipc", "host"),
        )


class Container(Value, frozen=True, kw_only=True):
    """An engine's container. Arguments are passed unchanged to the entry point; `env` is sorted and never secret.

    `port` is inside the container. Without `host` its accelerators are NVIDIA's.
    """

    image: Image
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    secrets: tuple[SecretRef, ...]
    port: int
    accelerators: int
    shm_bytes: int
    mounts: tuple[Mount, ...]
    health: Health
    restart: Restart
    stop: Stop
    redactions: tuple[Redaction, ...]
    host: HostAccess | None = None


def mount_of(model_dir: str) -> str:
    """Return the value of `docker run --mount`: CSV, so paths may contain commas and colons."""
    return ",".join(map(_csv_field, ("type=bind", f"source={model_dir}", f"target={MODEL_DIR}", "readonly")))


def _csv_field(text: str) -> str:
    """Quote a field by RFC 4180, section 2."""
    return '"{}"'.format(text.replace('"', '""')) if {",", '"'}.intersection(text) else text


def served_as(model_id: str) -> str:
    """Return the model argument inside the container, where a host folder has a fixed mount point."""
    return MODEL_DIR if is_folder(model_id) else model_id


def is_folder(model_id: str) -> bool:
    """Return whether an engine's model argument is a folder; hub ids begin with a name."""
    return model_id.startswith("/")


def mounted(args: Iterable[str], model_dir: str) -> tuple[str, ...]:
    """Return the arguments with the host's folder replaced by the mount point."""
    return tuple(MODEL_DIR if arg == model_dir else arg for arg in args)


def grouped(args: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Group each flag with its value."""
    rest = list(args)
    while rest:
        size = 2 if rest[0].startswith("--") and len(rest) > 1 and not rest[1].startswith("--") else 1
        yield tuple(rest[:size])
        del rest[:size]
