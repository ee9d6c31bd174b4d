"""Protocols that the executor depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from tgi_deploy.errors import Problem
    from tgi_deploy.values.deployment import Deployment, Event
    from tgi_deploy.values.resource import Found, MachineState, Step


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the current time, in UTC."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class Handler(Protocol):
    """Finds, creates, updates, reads and deletes one kind of resource in one place.

    Methods raise the errors of `reconcile.errors`; to `read` and `delete` a missing resource is not an error.
    """

    @property
    def rare(self) -> bool:
        """Whether few deployments have one, so that only thorough searches, or a record that names one, look for it."""

    @property
    def runs_engines(self) -> bool:
        """Whether engines run in resources of this kind, so that each one that it finds has `is_machine`."""

    @property
    def unrepeatable(self) -> bool:
        """Whether each `create` creates another one: neither the token nor a unique name prevents that."""

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        """Return the existing resources of this kind with all these tags, in a stable order."""

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        """Create it, tagged in the same request. `token` makes retries idempotent."""

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Update those properties of an existing one that can change in place. Idempotent.

        Called only for resources with `mutable` properties, also right after creation.
        """

    def read(self, attributes: Mapping[str, str]) -> Found | None: ...

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Start the deletion; `read` shows when it is gone. Raises InUseError while something uses it."""


@runtime_checkable
class BatchHandler(Protocol):
    """A handler that can also delete many at once."""

    def delete_many(self, many: Sequence[Mapping[str, str]]) -> frozenset[str]:
        """Start deleting them in few requests. Return the accepted ids; the rest are deleted one by one."""


@runtime_checkable
class SlowHandler(Protocol):
    """A handler whose deletions take longer than those of other kinds."""

    @property
    def slower(self) -> int:
        """How many times the usual deadline a deletion gets."""


@runtime_checkable
class SizedHandler(Protocol):
    """A handler of resources whose data outlives deployments."""

    def size_bytes(self, thing_id: str) -> int | None:
        """Return the size of its data; None if unknown."""


@runtime_checkable
class Pausing(Protocol):
    """A handler of machines that can be stopped and restarted with their disks; see `TargetFacts.stops`.

    Calls are idempotent. The machine's state shows their outcome.
    """

    def stop(self, attributes: Mapping[str, str]) -> None:
        """Start stopping it; its engine finishes open requests within its grace period."""

    def start(self, attributes: Mapping[str, str]) -> None:
        """Start it. Raises NoCapacityError if there is no capacity for it."""

    def restart(self, attributes: Mapping[str, str]) -> bool:
        """Start a restart; return whether the previous run has already ended, or no longer counts."""


class Cloud(Protocol):
    """One location of a target: a region or a host."""

    @property
    def region(self) -> str: ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of resources, in order of creation."""

    def handler(self, kind: str) -> Handler: ...

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        """Return the resources of all kinds with these tags that this tool created, in order of creation."""

    def machine(self, instance_id: str) -> MachineState:
        """Return the state of an instance or container that runs an engine."""

    def console(self, instance_id: str) -> str:
        """Return its output; empty if there is none."""

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        """Change when a resource outside the machine terminates it, if `seen` has such a resource.

        Raises InputError `external_end_fixed` if that end can't be removed.
        """


@runtime_checkable
class Consoles(Protocol):
    """A location whose machines consist of several replicas."""

    def consoles(self, instance_id: str) -> Mapping[str, str]:
        """Return the output of each replica, by name."""


class Store(Protocol):
    """The record of deployments."""

    def load(self, name: str) -> Deployment | None: ...

    def save(self, deployment: Deployment, *, expected_serial: int) -> Deployment:
        """Write it with the next serial. Raises ConflictError if somebody else has written it since."""

    def names(self) -> tuple[str, ...]: ...

    def remove(self, name: str) -> None: ...

    def lock(self, name: str, *, command: str) -> AbstractContextManager[None]: ...

    def append_event(self, event: Event) -> None: ...

    def events(self, name: str) -> tuple[Event, ...]:
        """Return its history, oldest first; empty once it is removed."""

    def save_receipt(self, file_name: str, text: str) -> str:
        """Store a removal's receipt, which outlives the record, and return its path."""

    def receipts(self, name: str | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return the receipts of all removals, or of this name's."""

    def recall(self, topic: str) -> Mapping[str, Any]:
        """Return what was stored about `topic`; empty if nothing was, or if it can't be read."""

    def remember(self, topic: str, document: Mapping[str, Any]) -> None:
        """Store expendable data about `topic`, replacing earlier data."""

    def save_artifact(self, name: str, file_name: str, text: str) -> None: ...


class Reporter(Protocol):
    """Receives progress events."""

    def step(self, step: Step, outcome: str) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, problem: Problem) -> None: ...


class Listener(Protocol):
    """Receives the progress of a wait: `phase` after every poll, `line` for a message."""

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:
        """`elapsed_s` counts from the start of this phase; `expected_s` is its expected duration."""

    def line(self, text: str) -> None: ...
