"""A deployment's record: revisions, limits, resources and history."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import msgspec

from tgi_deploy.text import dated
from tgi_deploy.values.base import UNSET, Moment, Value, replaced
from tgi_deploy.values.container import Container, served_as
from tgi_deploy.values.ends import Ends
from tgi_deploy.values.plan_document import PlanDocument
from tgi_deploy.values.probing import Promise
from tgi_deploy.values.request import Market
from tgi_deploy.values.resource import digest, revision_of
from tgi_deploy.values.serving import Service
from tgi_deploy.values.supply import is_added

RecordState = Literal["intent", "created", "deleting", "stopping", "stopped", "starting"]
DeploymentStatus = Literal["creating", "running", "ready", "stopped", "failed", "deleting"]
RevisionState = Literal["pending", "serving", "retired", "failed"]
Strategy = Literal["recreate", "rolling"]
Level = Literal["info", "warning", "error"]

SCHEMA: Final = 2
# Enough to roll back to.
_MOST_REVISIONS: Final = 10
# The default grace period of an engine: the longest of all known engines.
_GRACE_S: Final = 120


class ModelRef(Value, frozen=True, kw_only=True):
    """What the engine loads: a hub id or a folder, and the pinned commit, if any."""

    id: str
    commit: str | None


class SpecHardware(Value, frozen=True, kw_only=True):
    """The hardware of one replica. All instance types with it are pools of the same spec."""

    accelerator: str
    accelerators: int
    interconnect: str
    cpu_arch: str


class Spec(Value, frozen=True, kw_only=True):
    """What one replica runs, without prices, places, limits or replica count."""

    engine: str
    release: str
    model: ModelRef
    hardware: SpecHardware
    container: Container
    weights: Literal["hub", "folder"]
    disk_gib: int

    @property
    def digest(self) -> str:
        """Return the hash that decides whether a deployment changes.

        It ignores image sizes, the sources of secrets, what only targets use, and what the arguments repeat.
        """
        container = replaced(
            self.container,
            image=replaced(self.container.image, bytes=0, needs_root=UNSET),
            secrets=tuple(replaced(secret, source=None) for secret in self.container.secrets),
            stop=replaced(self.container.stop, drain_variable=UNSET, drain_s=UNSET),
        )
        return digest(msgspec.to_builtins(replaced(self, container=container)))


class Pool(Value, frozen=True, kw_only=True):
    """One source of machines for a replica. `zone` is empty if the target chooses it.

    `machine_usd_per_hour` is everything billed with the machine; None: not billed by the hour. Without a record, type
    and market are unknown.
    """

    place: str
    zone: str = ""
    instance_type: str | None = None
    market: Market | None = None
    machine_usd_per_hour: Decimal | None = None


def service_of(plan: PlanDocument) -> Service:
    """Return the service of a plan's machine, which has its share of the load if there are several replicas."""
    engine, served, request = plan.engine, plan.model.served_id, plan.requirements
    promise = Promise(
        model_id=served_as(served),
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        concurrency=-(-request.concurrency // plan.chosen.replicas),
        max_input_tokens=engine.max_input_tokens,
        max_total_tokens=engine.max_total_tokens,
    )
    return Service(engine=engine.name, release=engine.version, model=served, port=engine.port, promise=promise)


class Revision(Value, frozen=True, kw_only=True):
    """A numbered spec with its plan (request, choice and predictions, without rejections).

    `spec` is None if known only from a record of schema 1 or from tags, `plan` if known only from tags. `marks` is what
    the target's options add to the request; `options` are the target's own as given, with names of secrets, never
    values. The first of `pools` is where its replica is, or is being tried; with `any_pool` it may be in each of them.
    `update` distinguishes this update from another one to the same number, begun with a copy of the record; it is empty
    for a first revision.
    """

    number: int
    origin: Literal["up", "heal", "rollback", "adopted", "schema-1"]
    state: RevisionState
    created_at: Moment
    pools: tuple[Pool, ...]
    spec: Spec | None = None
    plan: PlanDocument | None = None
    marks: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    update: str = ""
    any_pool: bool = False

    @property
    def grace_s(self) -> int:
        """How long its engine may take to finish what is open."""
        return self.spec.container.stop.grace_s if self.spec else _GRACE_S

    @property
    def service(self) -> Service | None:
        """The service of its machine."""
        return service_of(self.plan) if self.plan else None

    @property
    def usd_per_hour(self) -> Decimal | None:
        """The machine's price, or the highest if it may be in any pool; None if it is not billed by the hour."""
        prices = [pool.machine_usd_per_hour for pool in self.pools[: None if self.any_pool else 1]]
        return max((price for price in prices if price is not None), default=None)

    @property
    def stopped_usd_per_hour(self) -> Decimal | None:
        """The machine's price while stopped; None if not billed by the hour, or unknown."""
        if self.usd_per_hour is None or self.plan is None:
            return None
        return sum((line.usd_per_hour for line in self.plan.cost.lines if line.stays_when_stopped), Decimal(0))


class Rollout(Value, frozen=True, kw_only=True):
    """An unfinished update, recorded from before its first step until after its last.

    `source` is the revision that served and is restored if the destination fails; None if none served. `recreate`: in
    stage `ending` the machine belongs to the revision before the destination, in stage `starting` to the destination.
    `rolling`: the source's machine, with the limits `ends`, serves until the stage is `promoted`; then the
    destination's serves, and the other drains and is deleted. `refuses_since`: when the serving machine began to end.
    """

    source: int | None
    destination: int
    stage: Literal["ending", "starting", "promoted"]
    strategy: Strategy = "recreate"
    ends: Ends | None = None
    refuses_since: Moment | None = None


class ResourceRecord(Value, frozen=True, kw_only=True):
    """The record of a resource. An `intent` may or may not exist and has to be looked up.

    A machine is `stopping` or `starting` from before the call until its effect was observed. `usd_per_hour` is the
    price of what is billed while there is no machine.
    """

    key: str
    kind: str
    place: str
    state: RecordState
    spec: str
    request_number: int
    attributes: Mapping[str, str] = {}
    notes: Mapping[str, str] = {}
    is_machine: bool = False
    usd_per_hour: Decimal | None = None


class Deployment(Value, frozen=True, kw_only=True):
    """A deployment, as recorded on disk.

    `active` is the number of the serving revision. `serial` increases with every save, `request_number` with every new
    creating request, so that each gets its own token. `owner` is its creator, as user@host. `given_up`: `up` removes it
    itself, so its cost counts toward the next deployment of its name. `plaintext`: the user accepted sending an API key
    unencrypted to a public address.
    """

    name: str
    id: str
    target: str
    status: DeploymentStatus
    created_at: Moment
    updated_at: Moment
    owner: str = ""
    revisions: Annotated[tuple[Revision, ...], msgspec.Meta(min_length=1)]
    active: int | None = None
    rollout: Rollout | None = None
    resources: tuple[ResourceRecord, ...] = ()
    endpoint: str | None = None
    plaintext: bool = False
    ends: Ends = Ends()
    request_number: int = 0
    serial: int = 0
    schema: int = SCHEMA
    given_up: bool = False

    @property
    def revision(self) -> Revision:
        """The newest revision, in any state."""
        return self.revisions[-1]

    @property
    def wanted(self) -> Revision:
        """The revision being brought up, else the serving one, else the last one."""
        number = self.rollout.destination if self.rollout else self.active
        return self.numbered(number) or self._brought_up

    @property
    def current(self) -> Revision:
        """The revision of its machine; of two machines, that of the serving one."""
        ending = self.rollout is not None and self.rollout.stage == "ending"
        before = self.revisions[-2] if ending and len(self.revisions) > 1 else self._brought_up
        return self.numbered(self.active) or before

    @property
    def _brought_up(self) -> Revision:
        """The pending revision, since a newer one may have been withdrawn; else the newest."""
        return next((item for item in self.revisions if item.state == "pending"), self.revision)

    @property
    def rolling(self) -> bool:
        """Whether a new revision's machine is being brought up while the old one serves."""
        rollout = self.rollout
        return rollout is not None and (rollout.strategy, rollout.stage) == ("rolling", "starting")

    @property
    def plan(self) -> PlanDocument | None:
        """The plan of its machine's revision."""
        return self.current.plan

    @property
    def service(self) -> Service | None:
        """The service of its machine."""
        return self.current.service

    @property
    def usd_per_hour(self) -> Decimal | None:
        """The machine's price; None if it is not billed by the hour."""
        return self.current.usd_per_hour

    @property
    def billed_usd_per_hour(self) -> Decimal | None:
        """The machine's price or, of nodes that its cluster adds for it, the plan's; None if not billed, or unknown."""
        plan = self.plan
        planned = plan.cost.usd_per_hour if plan is not None and is_added(plan.chosen) else None
        return planned if self.usd_per_hour is None else self.usd_per_hour

    def price_of(self, key: str) -> Decimal | None:
        """Return the price of what has this key, or else of the machine that it belongs to."""
        record = self.record(key)
        if record is not None and record.usd_per_hour is not None:
            return record.usd_per_hour
        revision = self.numbered(revision_of(key)) or self.current
        return revision.usd_per_hour

    @property
    def standing_usd_per_hour(self) -> Decimal:
        """The price of what is billed while there is no machine."""
        return sum((item.usd_per_hour for item in self.resources if item.usd_per_hour is not None), Decimal(0))

    @property
    def estimated(self) -> bool:
        """Whether its price is an estimate, like spot prices and derived ones."""
        plan = self.current.plan
        is_spot = any(pool.market == "spot" for pool in self.current.pools[:1])
        return is_spot or (plan is not None and plan.chosen.estimated)

    @property
    def price_dated(self) -> str:
        """The date of its planned price, as `listed 2026-07-20`; empty without a plan or a price."""
        plan = self.current.plan
        return dated(plan.chosen.price_date, estimated=self.estimated) if plan else ""

    @property
    def stopped_usd_per_hour(self) -> Decimal | None:
        """The machine's price while stopped; None if not billed by the hour, or unknown."""
        return self.current.stopped_usd_per_hour

    @property
    def region(self) -> str:
        """The place of its machine, or where one is being tried; empty before that."""
        pools = self.current.pools
        return pools[0].place if pools else next((item.place for item in self.resources), "")

    @property
    def places(self) -> tuple[str, ...]:
        """All places where this deployment has, or may have, resources."""
        return tuple(dict.fromkeys(filter(None, (self.region, *(item.place for item in self.resources)))))

    def record(self, key: str) -> ResourceRecord | None:
        return next((item for item in self.resources if item.key == key), None)

    @property
    def machine(self) -> ResourceRecord | None:
        """The record of its machine; of two, that of the serving one."""
        return self.machine_at(self.current.number) or next((item for item in self.machines if not self.rolling), None)

    @property
    def machines(self) -> tuple[ResourceRecord, ...]:
        """The records of all its machines; during an update there may be two."""
        return tuple(item for item in self.resources if item.is_machine)

    def machine_at(self, number: int) -> ResourceRecord | None:
        """Return the record of a revision's machine."""
        return next((item for item in self.machines if revision_of(item.key) == number), None)

    def with_record(self, record: ResourceRecord) -> Deployment:
        """Return a copy with `record` added, or replacing the one with the same key."""
        if self.record(record.key) is None:
            return replaced(self, resources=(*self.resources, record))
        kept = tuple(record if item.key == record.key else item for item in self.resources)
        return replaced(self, resources=kept)

    def without_record(self, key: str) -> Deployment:
        return replaced(self, resources=tuple(item for item in self.resources if item.key != key))

    def leased_until(self, until: Moment | None) -> Deployment:
        """Return a copy with another end of its lease."""
        return replaced(self, ends=replaced(self.ends, lease_until=until))

    def with_revision(self, revision: Revision) -> Deployment:
        """Return a copy with `revision` added, or replacing the one with the same number."""
        others = [item for item in self.revisions if item.number != revision.number]
        every = sorted((*others, revision), key=lambda item: item.number)
        needed = {self.active, self.rollout.source if self.rollout else None}
        old = every[:-_MOST_REVISIONS]
        return replaced(self, revisions=(*(item for item in old if item.number in needed), *every[-_MOST_REVISIONS:]))

    def numbered(self, number: int | None) -> Revision | None:
        """Return the revision with that number; None if the record no longer has it."""
        return next((item for item in self.revisions if item.number == number), None)

    def in_state(self, state: RevisionState) -> Deployment:
        """Return a copy with the wanted revision in a state. If it serves, the previous one is retired."""
        number, serves = self.wanted.number, state == "serving"
        active = number if serves else None if self.active == number else self.active
        revisions = tuple(
            replaced(item, state=state)
            if item.number == number
            else replaced(item, state="retired")
            if serves and item.state == "serving"
            else item
            for item in self.revisions
        )
        return replaced(self, revisions=revisions, active=active)


class TaggedDeployment(Deployment, frozen=True, kw_only=True):
    """A deployment reconstructed from tags, without a record. It is never saved."""

    tagged: Service | None = None

    @property
    def service(self) -> Service | None:
        return self.tagged


class Event(Value, frozen=True, kw_only=True):
    """One line of a deployment's history."""

    at: Moment
    deployment: str
    code: str
    text: str
    level: Level = "info"
    step: str | None = None
    data: Mapping[str, Any] = {}
