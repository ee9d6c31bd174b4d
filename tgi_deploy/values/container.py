"""What an engine asks of whatever runs it. A container knows no host: no address, no device, no folder of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from tgi_deploy.values.base import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Where a folder of the host is mounted, when it is the model.
MODEL_DIR: Final = "/model"


class Image(Value, frozen=True, kw_only=True):
    """`reference` is what is pulled, `bytes` its size unpacked."""

    reference: str
    bytes: int
    digest: str | None = None


class SecretRef(Value, frozen=True, kw_only=True):
    """A variable of the container, and where its value comes from. The value itself is never held."""

    variable: str
    source: str | None = None


class Mount(Value, frozen=True, kw_only=True):
    """A folder that outlives the container. Two containers share one where purpose and `layout` are the same."""

    path: str
    purpose: Literal["weights", "compile-cache"]
    layout: str


class Health(Value, frozen=True, kw_only=True):
    """How to ask whether it serves, every `every_s` seconds; so many wrong answers in a row mean that it does not.

    `refuses_while_starting`: nothing listens before it is ready, so that a 503 always means that it is sick.
    """

    path: str
    every_s: int
    failures: int
    refuses_while_starting: bool


class Restart(Value, frozen=True, kw_only=True):
    """When it is started again, at most `most` times. `never_after` are exit codes of a wrong configuration."""

    policy: Literal["always", "on-failure"]
    never_after: tuple[int, ...]
    most: int


class Stop(Value, frozen=True, kw_only=True):
    """How it ends: after the signal it may finish what runs, for `grace_s` seconds at most.

    `accepts_while_draining`: it goes on taking new requests meanwhile, so it has to leave its balancer first.
    """

    signal: Literal["SIGTERM"]
    grace_s: int
    accepts_while_draining: bool


class Redaction(Value, frozen=True, kw_only=True):
    """A line of the log that holds `text`, in capitals or not, must not leave the machine.

    `closed_by`: nor must the indented lines after it and the one that begins with this, unless the line has it, too.
    """

    text: str
    closed_by: str | None = None


class HostAccess(Value, frozen=True, kw_only=True):
    """How Docker hands accelerators other than NVIDIA's to a container: all those of the host.

    `visible` is the variable that names some of them by index. `remark` is what the user should know of the build.
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
        """Options of `docker run`, each with its value. The host's shared memory comes with its accelerators."""
        return (
            *((("--runtime", self.runtime),) if self.runtime else ()),
            *(("--device", path) for path in self.devices),
            *(("--group-add", group) for group in self.groups),
            *(("--cap-add", name) for name in self.capabilities),
            *(("--security-opt", option) for option in self.security_options),
            ("--ipc", "host"),
        )


class Container(Value, frozen=True, kw_only=True):
    """One container of an engine. Arguments reach the entry point unchanged; `env` is sorted and never secret.

    `port` is the container's own. Without `host` its accelerators are NVIDIA's.
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
    """The value of `docker run --mount` for a folder: CSV, so a path may hold commas and colons."""
    return ",".join(map(_csv_field, ("type=bind", f"source={model_dir}", f"target={MODEL_DIR}", "readonly")))


def _csv_field(text: str) -> str:
    """RFC 4180, section 2: a field with a comma or a quote is quoted, and quotes in it are doubled."""
    return '"{}"'.format(text.replace('"', '""')) if {",", '"'}.intersection(text) else text


def served_as(model_id: str) -> str:
    """What an engine in a container calls its model: a folder of the host is mounted at one place."""
    return MODEL_DIR if is_folder(model_id) else model_id


def is_folder(model_id: str) -> bool:
    """Whether a model that an engine is told to serve is a folder: hub ids begin with a name."""
    return model_id.startswith("/")


def mounted(args: Iterable[str], model_dir: str) -> tuple[str, ...]:
    """Return the arguments with the mounted folder in place of the host's."""
    return tuple(MODEL_DIR if arg == model_dir else arg for arg in args)


def grouped(args: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Arguments as a reader groups them: a flag with its value."""
    rest = list(args)
    while rest:
        size = 2 if rest[0].startswith("--") and len(rest) > 1 and not rest[1].startswith("--") else 1
        yield tuple(rest[:size])
        del rest[:size]
