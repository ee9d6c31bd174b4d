"""What an engine asks of whatever runs it. A container knows no host: no address, no device, no folder of one."""

from __future__ import annotations

from typing import Literal

from tgi_deploy.values.base import Value


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


class Container(Value, frozen=True, kw_only=True):
    """One container of an engine. Arguments reach the entry point unchanged; `env` is sorted and never secret.

    `port` is the container's own.
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
