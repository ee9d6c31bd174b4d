"""Runs a change set step by step, so that it can be killed at any point and run again.

The intent is written to disk before each creating call and the result right after it. A step that may already have
happened is looked up by its tags first; a repeated request carries the same token. Deletions wait until the resource
is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError, Failure, InputError, LeftBehindError, ResourceRef
from tgi_deploy.reconcile.claim import name_taken_error, reject_concurrent_update, reject_foreign
from tgi_deploy.reconcile.clocks import ASKED, INTENDED, may_be_new
from tgi_deploy.reconcile.ends import end_tags
from tgi_deploy.reconcile.errors import (
    BadRequestError,
    ClaimedError,
    ExistsError,
    InUseError,
    LostReplyError,
    NoCapacityError,
    PermissionDeniedError,
    QuotaError,
    StaleTokenError,
    TokenMismatchError,
)
from tgi_deploy.reconcile.ports import SlowHandler
from tgi_deploy.reconcile.retry import PollPolicy, polls
from tgi_deploy.reconcile.tagged import serving_tags
from tgi_deploy.values.base import replaced
from tgi_deploy.values.deployment import Deployment, Event, Level, ResourceRecord
from tgi_deploy.values.resource import (
    TAG_CREATED,
    TAG_ID,
    TAG_KEY,
    TAG_NAME,
    TAG_OWNER,
    TAG_PRICE,
    TAG_SPEC,
    TAG_STOPPED_PRICE,
    TAG_UPDATE,
    TAG_VERSION,
    ChangeSet,
    Found,
    Ref,
    Resource,
    Step,
    digest,
    revision_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.reconcile.ports import Clock, Handler, Reporter, Store

_TOKENS: Final = 4
# Errors which prove that nothing was created. After any other failure of a creating request, something may exist.
_REFUSALS: Final[tuple[type[DeployError], ...]] = (
    BadRequestError,
    ClaimedError,
    InputError,
    NoCapacityError,
    PermissionDeniedError,
    QuotaError,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Executor:
    """Runs steps. `handler` returns the handler for a (place, kind); `version` is this tool's, for the tags.

    `visibility_timeout`: how long a resource from an earlier request may stay invisible.
    `holders` returns the pending deletions that a deletion refused as "in use" depends on.
    """

    handler: Callable[[str, str], Handler]
    store: Store
    clock: Clock
    reporter: Reporter
    version: str
    deletion: PollPolicy
    visibility_timeout: PollPolicy
    holders: Callable[[Step], tuple[Step, ...]] | None = None

    def execute(self, deployment: Deployment, changes: ChangeSet) -> Deployment:
        """Run all steps and return the recorded deployment. Raises what the handlers raise."""
        for step in changes.steps:
            deployment = self._run(deployment, step)
        return deployment

    def save(self, deployment: Deployment) -> Deployment:
        stamped = replaced(deployment, updated_at=self.clock.now())
        return self.store.save(stamped, expected_serial=deployment.serial)

    def event(
        self,
        deployment: Deployment,
        code: str,
        text: str,
        *,
        step: str | None = None,
        level: Level = "info",
        data: Mapping[str, Any] | None = None,
    ) -> None:
        at, name = self.clock.now(), deployment.name
        self.store.append_event(
            Event(at=at, deployment=name, code=code, text=text, step=step, level=level, data=data or {})
        )

    def _run(self, deployment: Deployment, step: Step) -> Deployment:
        if step.action == "delete":
            return self._delete(deployment, step)
        resource = step.resource
        if resource is None:
            raise ValueError(f"step {step.action} {step.key} has no resource")
        if step.action == "create":
            return self._create(deployment, step, resource)
        if step.action == "adopt":
            deployment = self._created(self._intend(deployment, resource), resource, step.attributes, outcome="adopted")
        if resource.mutable:
            self._update(deployment, resource, step.attributes)
        return deployment

    def _create(self, deployment: Deployment, step: Step, resource: Resource) -> Deployment:
        if self._appeared_late(deployment, resource):
            return deployment
        self.reporter.step(step, "begun")
        deployment = self._settle_open_intent(deployment, resource)
        repeated = self._is_open(deployment.record(resource.key))
        self._note_missing(deployment, resource.key)
        deployment = self._intend(deployment, resource)
        deployment, found = self._settle(deployment, resource, repeated=repeated)
        if resource.mutable:
            self._update(deployment, resource, found.attributes)
        self.reporter.step(replaced(step, attributes=found.attributes), "done")
        return deployment

    def _appeared_late(self, deployment: Deployment, resource: Resource) -> bool:
        """Return whether it exists but was not visible yet. Only kinds that could be created twice are checked."""
        record = deployment.record(resource.key)
        if record is None or not self.handler(resource.place, resource.kind).unrepeatable:
            return False
        made = (record.state, record.spec, record.place) == ("created", resource.spec, resource.place)
        new = may_be_new(record, self.clock.now(), within_s=self.visibility_timeout.deadline_s)
        return made and new and self._await_appearance(deployment, resource) is not None

    def _note_missing(self, deployment: Deployment, key: str) -> None:
        """Add the end of a recorded resource that no longer exists to the history before it is replaced."""
        record = deployment.record(key)
        if record is not None and "id" in record.attributes:
            self._add_missing(deployment, record, record.attributes)

    def _add_missing(
        self, deployment: Deployment, thing: Resource | ResourceRecord, attributes: Mapping[str, str]
    ) -> None:
        data = event_data(thing, attributes, deployment)
        self.event(
            deployment, "missing", f"{thing.kind} {attributes['id']} no longer exists", step=thing.key, data=data
        )

    def _is_open(self, record: ResourceRecord | None) -> bool:
        """Return whether an earlier request may have created something that is not visible yet."""
        if record is None or record.state != "intent":
            return False
        return may_be_new(record, self.clock.now(), within_s=self.visibility_timeout.deadline_s)

    def _settle_open_intent(self, deployment: Deployment, resource: Resource) -> Deployment:
        """Settle an open intent with another spec under this key before a new one replaces it."""
        known = deployment.record(resource.key)
        if known is None or known.spec == resource.spec or not self._is_open(known):
            return deployment
        return self._remove_earlier(deployment, known)

    def _settle(self, deployment: Deployment, resource: Resource, *, repeated: bool) -> tuple[Deployment, Found]:
        """Find or create the resource, retrying until one of them succeeds. A stale token is replaced."""
        for _ in range(_TOKENS - 1):
            try:
                return self._create_with_token(deployment, resource, repeated=repeated)
            except StaleTokenError as stale:
                if stale.ended is not None:
                    self._add_missing(deployment, resource, stale.ended.attributes)
                record = deployment.record(resource.key)
                if isinstance(stale, TokenMismatchError) and record is not None:
                    deployment = self._remove_earlier(deployment, record)
            deployment, repeated = self._intend(deployment, resource, fresh=True), False
        return self._create_with_token(deployment, resource, repeated=False)

    def _create_with_token(
        self, deployment: Deployment, resource: Resource, *, repeated: bool
    ) -> tuple[Deployment, Found]:
        """Create it with one token. After a lost reply, wait a minute for the resource to become visible.

        The same holds if the unique name is taken: its holder may not be visible yet. The minute starts after the
        reply, which may itself have taken that long.
        """
        doubts: list[LostReplyError] = []
        for _ in chain((0.0,), polls(self.clock, self.visibility_timeout)):
            try:
                found, outcome = self._find_or_create(deployment, resource, doubtful=repeated or bool(doubts))
            except LostReplyError as lost:
                if not doubts:
                    self.reporter.note(f"{lost.message}; checking for up to a minute whether it took effect")
                doubts.append(lost)
                if not isinstance(lost, ExistsError):
                    deployment = self._intend(deployment, resource)
                elif self._was_requested_differently(deployment, resource):
                    raise TokenMismatchError(lost.message) from lost
                continue
            except _REFUSALS:
                late = self._await_appearance(deployment, resource) if doubts or repeated else None
                if late is None:
                    self._drop_intent(deployment, resource)
                    raise
                found, outcome = late, "adopted"
            return self._created(deployment, resource, found.attributes, outcome=outcome), found
        if not isinstance(doubts[-1], ExistsError):
            raise doubts[-1]
        if all(isinstance(doubt, ExistsError) for doubt in doubts):
            self._drop_intent(deployment, resource)
        raise name_taken_error(deployment.name, resource, doubts[-1].message)

    def _was_requested_differently(self, deployment: Deployment, resource: Resource) -> bool:
        """Return whether an earlier request of ours, with different parameters, used the unique name.

        Raises ClaimedError if another owner created it.
        """
        shown = self.handler(resource.place, resource.kind).find({TAG_ID: deployment.id})
        try:
            reject_concurrent_update(deployment, shown)
        except ClaimedError:
            self._drop_intent(deployment, resource)
            raise
        return any(found.alive and found.key == resource.key and found.spec != resource.spec for found in shown)

    def _drop_intent(self, deployment: Deployment, resource: Resource) -> None:
        """Drop an intent that created nothing, so that no later command waits for it."""
        self.save(deployment.without_record(resource.key))

    def _await_appearance(self, deployment: Deployment, resource: Resource) -> Found | None:
        """Wait up to a minute for a resource that an earlier request may have created; None if it does not appear."""
        for _ in polls(self.clock, self.visibility_timeout):
            found = self._find(deployment, resource)
            if found is not None:
                return found
        return None

    def _find_or_create(self, deployment: Deployment, resource: Resource, *, doubtful: bool) -> tuple[Found, str]:
        """Return the resource, and how it was obtained: "adopted" or "created".

        `doubtful`: an earlier request may have created it. If a repeated one could create a second, wait for the first.
        """
        handler = self.handler(resource.place, resource.kind)
        may_appear_late = doubtful and handler.unrepeatable
        present = (self._await_appearance if may_appear_late else self._find)(deployment, resource)
        if present is not None:
            return present, "adopted"
        properties = resolve(resource.properties, deployment)
        tags = self._tags(deployment, resource)
        return handler.create(properties, tags=tags, token=_token(deployment, resource)), "created"

    def _find(self, deployment: Deployment, resource: Resource) -> Found | None:
        """Return the live resource with this spec. Raises ClaimedError if another deployment uses its name."""
        named = self.handler(resource.place, resource.kind).find({TAG_NAME: deployment.name})
        alive = [found for found in named if found.alive]
        reject_foreign(deployment, alive)
        return next((found for found in alive if (found.key, found.spec) == (resource.key, resource.spec)), None)

    def _remove_earlier(self, deployment: Deployment, record: ResourceRecord) -> Deployment:
        """Remove what an earlier request under this key created with different parameters, once that is visible."""
        handler, earlier = self.handler(record.place, record.kind), list[Found]()
        for _ in polls(self.clock, self.visibility_timeout):
            shown = handler.find({TAG_ID: deployment.id})
            earlier = [found for found in shown if found.alive and found.key == record.key]
            if earlier:
                break
        for found in earlier:
            deployment = self._delete(deployment, Step.deletion(found, "was requested with different settings"))
        return deployment

    def _intend(self, deployment: Deployment, resource: Resource, *, fresh: bool = False) -> Deployment:
        """Write the intent to disk. An open intent with the same spec keeps its token: the request is repeated."""
        known, now = deployment.record(resource.key), self.clock.now().isoformat(timespec="seconds")
        if known and not fresh and (known.state, known.spec) == ("intent", resource.spec):
            return self.save(deployment.with_record(replaced(known, notes={**known.notes, ASKED: now})))
        number = deployment.request_number + 1
        record = ResourceRecord(
            key=resource.key,
            kind=resource.kind,
            place=resource.place,
            state="intent",
            spec=resource.spec,
            request_number=number,
            notes={**resource.notes, INTENDED: now},
            is_machine=resource.is_machine,
            usd_per_hour=resource.usd_per_hour,
        )
        return self.save(replaced(deployment, request_number=number).with_record(record))

    def _created(
        self, deployment: Deployment, resource: Resource, attributes: Mapping[str, str], *, outcome: str
    ) -> Deployment:
        intent = deployment.record(resource.key)
        if intent is None:
            raise ValueError(f"{resource.key} was created without an intent")
        record = replaced(intent, state="created", attributes=dict(attributes))
        deployment = self.save(deployment.with_record(record))
        text = f"{resource.kind} {attributes.get('id', '')} {outcome}"
        data = event_data(resource, attributes, deployment)
        self.event(deployment, outcome, text, step=resource.key, data=data)
        return deployment

    def _update(self, deployment: Deployment, resource: Resource, attributes: Mapping[str, str]) -> None:
        handler = self.handler(resource.place, resource.kind)
        handler.update(attributes, resolve(resource.properties, deployment))

    def _delete(self, deployment: Deployment, step: Step) -> Deployment:
        self.reporter.step(step, "begun")
        deployment = self._mark_deleting(deployment, step)
        deployment = self._drop_record(self._delete_until_gone(deployment, step), step)
        data = event_data(step, step.attributes, deployment) | {"alive": step.alive}
        if step.rests is not None:
            data["rests"] = step.rests
        text = f"{step.kind} {step.attributes.get('id', '')} is gone"
        self.event(deployment, "deleted", text, step=step.key, data=data)
        self.reporter.step(step, "done")
        return deployment

    def _delete_until_gone(self, deployment: Deployment, step: Step) -> Deployment:
        handler = self.handler(step.place, step.kind)
        reason, ask, times = "it still exists", True, handler.slower if isinstance(handler, SlowHandler) else 1
        for _ in polls(self.clock, replace(self.deletion, deadline_s=times * self.deletion.deadline_s)):
            try:
                if ask:
                    handler.delete(step.attributes)
            except InUseError as error:
                reason = error.message
                deployment = self._delete_holders(deployment, step)
                continue
            seen = handler.read(step.attributes)
            if seen is None:
                return deployment
            reason, ask = f"it is {seen.state or 'still present'}", seen.alive
        raise left_behind([step], reason)

    def _delete_holders(self, deployment: Deployment, step: Step) -> Deployment:
        for holder in self.holders(step) if self.holders else ():
            deployment = self._delete(deployment, holder)
        return deployment

    def _mark_deleting(self, deployment: Deployment, step: Step) -> Deployment:
        record = _own_record(deployment, step)
        if record is None or record.state == "deleting":
            return deployment
        marked = replaced(record, state="deleting", attributes=dict(step.attributes))
        return self.save(deployment.with_record(marked))

    def _drop_record(self, deployment: Deployment, step: Step) -> Deployment:
        if _own_record(deployment, step) is None:
            return deployment
        return self.save(deployment.without_record(step.key))

    def _tags(self, deployment: Deployment, resource: Resource) -> dict[str, str]:
        tags = {
            "Name": f"tgi-deploy-{deployment.name}",
            TAG_NAME: deployment.name,
            TAG_ID: deployment.id,
            TAG_KEY: resource.key,
            TAG_VERSION: self.version,
            TAG_SPEC: resource.spec,
        }
        if deployment.owner:
            tags[TAG_OWNER] = deployment.owner
        revision = deployment.numbered(revision_of(resource.key))
        if revision is not None and revision.update:
            tags[TAG_UPDATE] = revision.update
        record = deployment.record(resource.key)
        if record is not None and INTENDED in record.notes:
            tags[TAG_CREATED] = record.notes[INTENDED]
        price = deployment.price_of(resource.key)
        if price is not None:
            tags[TAG_PRICE] = str(price)
        if resource.is_machine:
            revision = revision or deployment.wanted
            tags |= serving_tags(revision.service, resource.notes, plaintext=deployment.plaintext)
            if revision.stopped_usd_per_hour is not None:
                tags[TAG_STOPPED_PRICE] = str(revision.stopped_usd_per_hour)
        return tags | end_tags(deployment, record.notes.get(INTENDED) if record else None)


def resolve(value: Any, deployment: Deployment) -> Any:  # noqa: ANN401 -- any JSON-like value, references replaced
    """Return `value` with each reference replaced by its recorded attribute. Raises ValueError if that is unknown."""
    if isinstance(value, Ref):
        record = deployment.record(value.key)
        if record is None or value.attribute not in record.attributes:
            raise ValueError(f"{value.key}.{value.attribute} is not known yet")
        return record.attributes[value.attribute]
    if isinstance(value, Mapping):
        return {name: resolve(item, deployment) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(item, deployment) for item in value]
    return value


def event_data(
    thing: Resource | ResourceRecord | Step, attributes: Mapping[str, str], deployment: Deployment
) -> dict[str, Any]:
    """Return a resource event's data for the receipt. Unless it is `billed`, its price is that of its revision."""
    price, expires, record = deployment.price_of(thing.key), deployment.ends.expires_at, deployment.record(thing.key)
    billed = record is not None and record.usd_per_hour is not None
    return {
        **({"billed": True} if billed else {}),
        "kind": thing.kind,
        "id": attributes.get("id", ""),
        "region": thing.place,
        "is_machine": thing.is_machine,
        "created": attributes.get("launched") or attributes.get("created") or None,
        "usd_per_hour": None if price is None else str(price),
        "expires": None if expires is None else expires.isoformat(),
    }


def left_behind(what: list[Step] | list[Found], reason: str) -> LeftBehindError:
    """Return the error that lists the resources which could not be deleted."""
    items = [ResourceRef(kind=item.kind, id=item.attributes.get("id", ""), region=item.place) for item in what]
    names = ", ".join(f"{item.kind} {item.id} in {item.region}" for item in items)
    return LeftBehindError(
        "left_behind",
        f"removing {names} did not finish: {reason}",
        hint="run the same command again; until it succeeds, what is left may cost money",
        failure=Failure(not_removed=tuple(items)),
    )


def _token(deployment: Deployment, resource: Resource) -> str:
    """Return the request token, derived from number, place, key and spec (which holds zone, type and market)."""
    record = deployment.record(resource.key)
    number = record.request_number if record else 0
    parts = [deployment.id, number, resource.place, resource.key, resource.spec]
    return f"tgi-deploy-{deployment.id}-{digest(parts)}"[:64]


def _own_record(deployment: Deployment, step: Step) -> ResourceRecord | None:
    """Return the record of this step's resource; None for a duplicate, which has no record."""
    record = deployment.record(step.key)
    if record is None or record.attributes.get("id", step.attributes.get("id")) != step.attributes.get("id"):
        return None
    return record
