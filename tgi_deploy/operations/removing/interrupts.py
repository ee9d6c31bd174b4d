"""Handles requests to stop a run.

A call that changes something is finished and its result recorded; then `settle` keeps or removes what the run created.
`guard` returns a context whose calls do this; `cli/stopping.py` passes on the signals.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from tgi_deploy.errors import DeployError
from tgi_deploy.operations.removing.created_by_run import deletions
from tgi_deploy.operations.removing.down import issue, remove_own, sweep
from tgi_deploy.operations.removing.leftovers import removing
from tgi_deploy.operations.settling import asked_for, await_settled, not_shown_yet
from tgi_deploy.operations.watching.broken_off import recorded_resources
from tgi_deploy.operations.watching.ledger import Ledger, recorded_events, sighting
from tgi_deploy.reconcile.errors import LostReplyError
from tgi_deploy.reconcile.ports import BatchHandler, SizedHandler, SlowHandler
from tgi_deploy.reconcile.retry import PollPolicy
from tgi_deploy.rollout.stages import is_promoted
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import TAG_ID, TAG_NAME, ChangeSet, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from tgi_deploy.errors import RecordedResource
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.removing.receipt import Receipt
    from tgi_deploy.operations.stops import Stops
    from tgi_deploy.reconcile.ports import Clock, Cloud, Handler, Pausing, Store
    from tgi_deploy.values.deployment import Deployment, Event
    from tgi_deploy.values.resource import Found

Outcome = Literal["nothing_created", "removed", "kept", "removing", "not_removed"]
URGENT_POLLS: Final = PollPolicy(deadline_s=4, poll_s=0.5, longest_poll_s=1)


@dataclass(frozen=True, slots=True)
class _GuardedHandler:
    inner: Handler
    stops: Stops

    @property
    def rare(self) -> bool:
        return self.inner.rare

    @property
    def runs_engines(self) -> bool:
        return self.inner.runs_engines

    @property
    def unrepeatable(self) -> bool:
        return self.inner.unrepeatable

    @property
    def slower(self) -> int:
        return self.inner.slower if isinstance(self.inner, SlowHandler) else 1

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return self.stops.note_found(self.inner.find(tags))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        try:
            with self.stops.held(on=True):
                found = self.inner.create(properties, tags=tags, token=token)
                self.stops.made.append(found.id)
        except (KeyboardInterrupt, LostReplyError):
            self.stops.abandoned = True
            raise
        return found

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        with self.stops.held():
            self.inner.update(attributes, properties)

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        return self.inner.read(attributes)

    def delete(self, attributes: Mapping[str, str]) -> None:
        with self.stops.held():
            self.inner.delete(attributes)

    def delete_many(self, many: Sequence[Mapping[str, str]]) -> frozenset[str]:
        if not isinstance(self.inner, BatchHandler):
            return frozenset()
        with self.stops.held():
            return self.inner.delete_many(many)

    def stop(self, attributes: Mapping[str, str]) -> None:
        with self.stops.held():
            cast("Pausing", self.inner).stop(attributes)

    def start(self, attributes: Mapping[str, str]) -> None:
        with self.stops.held():
            cast("Pausing", self.inner).start(attributes)

    def restart(self, attributes: Mapping[str, str]) -> bool:
        with self.stops.held():
            return cast("Pausing", self.inner).restart(attributes)

    def size_bytes(self, resource_id: str) -> int | None:
        return self.inner.size_bytes(resource_id) if isinstance(self.inner, SizedHandler) else None


@dataclass(frozen=True, slots=True)
class _GuardedCloud:
    """Delegates everything not defined here to the cloud."""

    inner: Cloud
    stops: Stops

    def handler(self, kind: str) -> Handler:
        return _GuardedHandler(self.inner.handler(kind), self.stops)

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return self.stops.note_found(self.inner.find(tags))

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        with self.stops.held():
            self.inner.move_outside_end(seen, expires)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- any attribute of the cloud
        return getattr(self.inner, name)


@dataclass(frozen=True, slots=True)
class _GuardedStore:
    """Finishes a write that has begun; delegates reads to the store."""

    inner: Store
    stops: Stops

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- any attribute of the store
        return getattr(self.inner, name)

    def save(self, deployment: Deployment, *, expected_serial: int) -> Deployment:
        with self.stops.held():
            saved = self.inner.save(deployment, expected_serial=expected_serial)
            began = expected_serial == 0 and deployment.id not in self.stops.from_before
            self.stops.new_record = self.stops.new_record or began
        return saved

    def remove(self, name: str) -> None:
        with self.stops.held():
            self.inner.remove(name)

    def append_event(self, event: Event) -> None:
        with self.stops.held():
            if event.code == "adopted":
                self._note_adopted(str(event.data.get("id", "")))
            self.inner.append_event(event)

    def _note_adopted(self, resource_id: str) -> None:
        if resource_id not in self.stops.made:
            self.stops.adopted.append(resource_id)

    def save_receipt(self, file_name: str, text: str) -> str:
        with self.stops.held():
            return self.inner.save_receipt(file_name, text)

    def save_artifact(self, name: str, file_name: str, text: str) -> None:
        with self.stops.held():
            self.inner.save_artifact(name, file_name, text)

    @contextmanager
    def lock(self, name: str, *, command: str) -> Iterator[None]:
        """Take and release locks without interruption: a lock that stays would block this run's own removal."""
        with ExitStack() as stack:
            stack.callback(self._let_go)
            with self.stops.held():
                stack.enter_context(self._inner_lock(name, command))
            try:
                yield
            finally:
                self.stops.holding = True

    def _inner_lock(self, name: str, command: str) -> AbstractContextManager[None]:
        return self.inner.lock(name, command=command)

    def _let_go(self) -> None:
        self.stops.holding = False


@dataclass(frozen=True, slots=True)
class _GuardedClock:
    inner: Clock
    stops: Stops

    def now(self) -> datetime:
        return self.inner.now()

    def monotonic(self) -> float:
        return self.inner.monotonic()

    def sleep(self, seconds: float) -> None:
        self.stops.check()
        self.inner.sleep(seconds)


def guard(context: Context, stops: Stops) -> Context:
    """Return a context whose changing calls respect `stops`."""
    return replace(
        context,
        cloud=lambda region: _GuardedCloud(context.cloud(region), stops),
        store=_GuardedStore(context.store, stops),
        clock=_GuardedClock(context.clock, stops),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """The outcome. `exists` are the resources that are still recorded, `why` is the reason that they are left."""

    outcome: Outcome
    exists: tuple[RecordedResource, ...] = ()
    receipt: Receipt | None = None
    why: str = ""


def settle(
    context: Context, name: str, stops: Stops, *, ask: Callable[[tuple[RecordedResource, ...]], bool]
) -> Settled:
    """After an interrupted `up`, keep or remove what it created, and return what exists.

    `ask` receives what exists and returns whether to remove it. It is not called after a termination signal, nor after
    an update was promoted: the new machine then serves, and the next command finishes the update. Never raises: after
    another request to stop, or an error of the cloud, everything that is left stays recorded.
    """
    try:
        if not stops.created_any:
            return Settled(outcome="nothing_created", exists=existing(context, name))
        if _is_promoted(context, name):
            return Settled(outcome="kept", exists=existing(context, name), why="the new revision already serves")
        if not stops.urgent and not _wants_removal(context, name, stops, ask):
            return Settled(outcome="kept", exists=existing(context, name))
        with context.store.lock(name, command=context.command), removing(context, name):
            return _remove(context, name, stops)
    except KeyboardInterrupt:
        return Settled(outcome="not_removed", exists=existing(context, name), why="it was interrupted again")
    except DeployError as error:
        return Settled(outcome="not_removed", exists=existing(context, name), why=error.message)


def _wants_removal(
    context: Context, name: str, stops: Stops, ask: Callable[[tuple[RecordedResource, ...]], bool]
) -> bool:
    try:
        return ask(existing(context, name))
    except KeyboardInterrupt:
        if stops.urgent:  # the terminal was closed during the question
            return True
        raise


def _is_promoted(context: Context, name: str) -> bool:
    deployment = context.store.load(name)
    return deployment is not None and is_promoted(deployment)


def existing(context: Context, name: str) -> tuple[RecordedResource, ...]:
    """Return the resources that exist according to the record, without calling the cloud."""
    return recorded_resources(context.store.load(name))


def _remove(context: Context, name: str, stops: Stops) -> Settled:
    deployment = context.store.load(name)
    if deployment is None:
        return Settled(outcome="removed")
    if not stops.owns_all:
        return _remove_made(context, deployment, stops)
    if stops.urgent:
        return _remove_hastily(context, deployment, stops)
    return Settled(outcome="removed", receipt=remove_own(context, replaced(deployment, given_up=True)))


def _remove_made(context: Context, deployment: Deployment, stops: Stops) -> Settled:
    """Remove the resources that this run created. Those of an earlier run stay, and so does the record."""
    if not stops.urgent:
        await_settled(context, deployment)
    late = _deletions_by_tag(context, deployment) if stops.abandoned else ()
    steps = (*late, *deletions(deployment, lambda record: record.attributes.get("id") in stops.made))
    if stops.urgent:
        refusals = [why for step in steps if (why := _refusal(context, step))]
        return Settled(outcome="removing", exists=existing(context, deployment.name), why="; ".join(refusals[:1]))
    context.executor().execute(deployment, ChangeSet(steps=steps))
    return Settled(outcome="removed", exists=existing(context, deployment.name))


def _deletions_by_tag(context: Context, deployment: Deployment) -> tuple[Step, ...]:
    """Return the steps that delete what an aborted call created. Its id is unknown, but its tags are recorded.

    The resources that are found are added to the history, because the receipt needs them.
    """
    intents = (record for record in deployment.resources if record.state == "intent")
    late = tuple(found for record in intents for found in asked_for(context, deployment, record))
    for found in late:
        context.store.append_event(sighting(found, deployment, context.clock.now(), name=deployment.name))
    return tuple(Step.deletion(found, "was created by this run") for found in late)


def _refusal(context: Context, step: Step) -> str:
    """Start a deletion; return why it was rejected, or an empty text."""
    try:
        context.cloud(step.place).handler(step.kind).delete(step.attributes)
    except DeployError as error:
        return error.message
    return ""


def _remove_hastily(context: Context, deployment: Deployment, stops: Stops) -> Settled:
    """Request all deletions, machines first, and poll for some seconds.

    The record stays until the removal is verified.
    """
    executor, name = context.executor(), deployment.name
    deployment = executor.save(replaced(deployment, status="deleting", given_up=True))
    asked = _end_machines(context, deployment)
    ledger = Ledger.of((*context.store.events(name), *recorded_events(deployment)))
    places = tuple(dict.fromkeys((*deployment.places, *ledger.regions)))

    def note(event: Event) -> None:
        ledger.add(event)
        context.store.append_event(event)

    try:
        known = _sweep_hastily(context, deployment, places, note)
        hidden = not_shown_yet(context, deployment, known)
    except DeployError as error:
        return Settled(outcome="removing", exists=existing(context, name), why=error.message)
    if stops.abandoned or any(record.attributes.get("id") not in asked for record in hidden):
        return Settled(
            outcome="removing", exists=existing(context, name), why="a resource just requested is not visible yet"
        )
    receipt = issue(context, deployment, ledger, places)
    context.store.remove(name)
    return Settled(outcome="removed", receipt=receipt)


def _end_machines(context: Context, deployment: Deployment) -> frozenset[str]:
    """Terminate the recorded machines by id, before any search: they cost the most, and time may run out.

    Return the ids whose termination was accepted.
    """
    asked = set()
    for record in deployment.resources:
        if record.is_machine and "id" in record.attributes:
            with suppress(DeployError):  # the sweep requests it again, and reports refusals
                context.cloud(record.place).handler(record.kind).delete(record.attributes)
                asked.add(record.attributes["id"])
    return frozenset(asked)


def _sweep_hastily(
    context: Context, deployment: Deployment, places: Sequence[str], note: Callable[[Event], None]
) -> tuple[Found, ...]:
    """Delete everything with the deployment's tags; return the resources that existed."""
    tags = {TAG_NAME: deployment.name, TAG_ID: deployment.id}
    known = tuple(found for place in places for found in context.cloud(place).find(tags))
    for found in known:
        note(sighting(found, deployment, context.clock.now(), name=deployment.name))
    sweep(context, tags, places, note=note, seen=known, polling=URGENT_POLLS)
    return known
