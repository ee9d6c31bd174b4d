"""What the engine of change needs from outside."""

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
        """The time of day, with its zone (UTC)."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class Handler(Protocol):
    """All that can be done with one kind of resource in one place.

    Methods raise the classes of `reconcile.errors`; a missing resource is not an error to `read` and `delete`.
    """

    @property
    def rare(self) -> bool:
        """Whether few deployments have one: it is looked for where it is known of, or where nothing may be missed."""

    @property
    def runs_engines(self) -> bool:
        """Whether an engine runs in one: all that it finds `is_machine`."""

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        """Everything of this kind with all these tags, in a stable order; what is gone is left out."""

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        """Create it, tagged in the same request. `token` makes a repeated request the same request."""

    def complete(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        """Bring an existing one to what is wanted, as far as that changes in place. Safe to repeat.

        Called for what has `loose` properties alone, after it was made, too.
        """

    def read(self, attributes: Mapping[str, str]) -> Found | None: ...

    def delete(self, attributes: Mapping[str, str]) -> None:
        """Begin to delete; `read` says when it is gone. Raises InUseError while something holds it."""


@runtime_checkable
class BatchHandler(Protocol):
    """A handler that can also delete many at once."""

    def delete_many(self, many: Sequence[Mapping[str, str]]) -> frozenset[str]:
        """Begin to delete them in few requests. Return the ids that it was begun for; the rest go one by one."""


@runtime_checkable
class SizedHandler(Protocol):
    """A handler whose things hold data that outlives deployments."""

    def size_bytes(self, thing_id: str) -> int | None:
        """Return how much it holds; None where that can't be told."""


@runtime_checkable
class Pausing(Protocol):
    """A handler whose machines can be stopped and started again with what is on their disks.

    A repeated request changes nothing. What comes of one is seen by the machine's state.
    """

    def stop(self, attributes: Mapping[str, str]) -> None:
        """Begin to stop it; its engine finishes the requests that are open, as long as it allows."""

    def start(self, attributes: Mapping[str, str]) -> None:
        """Begin to start it. Raises NoCapacityError where there is no room for it."""

    def restart(self, attributes: Mapping[str, str]) -> bool:
        """Begin to stop it and start it anew; return whether what ran has ended already."""


@runtime_checkable
class OutsideEnd(Protocol):
    """A location that can end a machine from outside, too."""

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        """Bring what ends the machine from outside, if that is among `seen`, to another moment.

        Raises InputError `external_end_stays` where it cannot be lifted.
        """


class Cloud(Protocol):
    """One location of a target: a region, a host."""

    @property
    def region(self) -> str: ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every kind of resource, in the order of creation."""

    def handler(self, kind: str) -> Handler: ...

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        """Everything of every kind that this tool has made and that has these tags, in the order of creation."""

    def machine(self, instance_id: str) -> MachineState:
        """Return the state of what runs an engine: an instance, a container."""

    def console(self, instance_id: str) -> str:
        """Return what it has written; empty when there is nothing."""


class Store(Protocol):
    """The record of deployments."""

    def load(self, name: str) -> Deployment | None: ...

    def save(self, deployment: Deployment, *, expected_serial: int) -> Deployment:
        """Write it with the next serial. Raises ConflictError when somebody else has written meanwhile."""

    def names(self) -> tuple[str, ...]: ...

    def remove(self, name: str) -> None: ...

    def lock(self, name: str, *, command: str) -> AbstractContextManager[None]: ...

    def append_event(self, event: Event) -> None: ...

    def events(self, name: str) -> tuple[Event, ...]:
        """Its history, oldest first; empty once it is removed."""

    def save_receipt(self, file_name: str, text: str) -> str:
        """Keep a receipt of a removal beyond the record; where it lies."""

    def receipts(self, name: str | None = None) -> tuple[Mapping[str, Any], ...]:
        """Return the receipts of all removals, of this name where one is given, as documents."""

    def recall(self, topic: str) -> Mapping[str, Any]:
        """What was remembered about `topic`; empty when nothing was, or nothing that can be read."""

    def remember(self, topic: str, document: Mapping[str, Any]) -> None:
        """Keep something beside the deployments that may get lost, in the place of what was there."""

    def save_artifact(self, name: str, file_name: str, text: str) -> None: ...


class Reporter(Protocol):
    """Hears what happens while it happens."""

    def step(self, step: Step, outcome: str) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, problem: Problem) -> None: ...


class Listener(Protocol):
    """Receives the progress of a wait: `phase` after every look, `line` for a message."""

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:
        """`elapsed_s` counts from the beginning of this phase; `expected_s` is what it should take."""

    def line(self, text: str) -> None: ...
