"""A deployment as it is remembered: revisions of what it runs, its limits, the resources it knows of, its history."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import msgspec

from tgi_deploy.values.base import Moment, Value, replaced
from tgi_deploy.values.container import Container, served_as
from tgi_deploy.values.ends import Ends
from tgi_deploy.values.plan_document import PlanDocument
from tgi_deploy.values.probing import Promise
from tgi_deploy.values.request import Market
from tgi_deploy.values.resource import digest, revision_of
from tgi_deploy.values.serving import Service

RecordState = Literal["intent", "created", "deleting", "stopping", "stopped", "starting"]
DeploymentStatus = Literal["creating", "running", "ready", "stopped", "failed", "deleting"]
RevisionState = Literal["pending", "serving", "retired", "failed"]
Strategy = Literal["recreate", "rolling"]
Level = Literal["info", "warning", "error"]

SCHEMA: Final = 2
# Enough to go back to; what is older is of no use to anybody.
_MOST_REVISIONS: Final = 10


class ModelRef(Value, frozen=True, kw_only=True):
    """What the engine loads: a hub id or a folder, and its commit where one is pinned."""

    id: str
    commit: str | None


class SpecHardware(Value, frozen=True, kw_only=True):
    """What one replica runs on. Instance types that have it are pools of the same spec."""

    accelerator: str
    accelerators: int
    interconnect: str
    cpu_arch: str


class Spec(Value, frozen=True, kw_only=True):
    """What one replica runs. It says nothing of prices, places, limits or how many there are."""

    engine: str
    release: str
    model: ModelRef
    hardware: SpecHardware
    container: Container
    weights: Literal["hub", "folder"]
    disk_gib: int

    @property
    def digest(self) -> str:
        """Return a hash that decides whether something changes.

        The size of an image is a fact about it, and where a secret's value comes from may move: neither counts.
        """
        container = replaced(
            self.container,
            image=replaced(self.container.image, bytes=0),
            secrets=tuple(replaced(secret, source=None) for secret in self.container.secrets),
        )
        return digest(msgspec.to_builtins(replaced(self, container=container)))


class Pool(Value, frozen=True, kw_only=True):
    """One source of machines for a replica. `zone` is empty where the target chooses.

    `machine_usd_per_hour` is everything that is billed with the machine; None: it is not billed by the hour. Of what
    only tags tell, type and market are not known.
    """

    place: str
    zone: str = ""
    instance_type: str | None = None
    market: Market | None = None
    machine_usd_per_hour: Decimal | None = None


def service_of(plan: PlanDocument) -> Service:
    """Return what a plan has a machine serve."""
    engine, served, request = plan.engine, plan.model.served_id, plan.requirements
    promise = Promise(
        model_id=served_as(served),
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        concurrency=request.concurrency,
        max_input_tokens=engine.max_input_tokens,
        max_total_tokens=engine.max_total_tokens,
    )
    return Service(engine=engine.name, release=engine.version, model=served, port=engine.port, promise=promise)


class Revision(Value, frozen=True, kw_only=True):
    """A numbered spec, and the plan that it is of, without rejections: request, choice and predictions.

    `spec` is None where a record of schema 1 or tags alone tell of it, `plan` where tags alone do. `marks` is what the
    target's settings add to the request, `options` are the target's own as they were given: names of secrets, never
    their values. The first of `pools` is where its replica is, or is being tried.
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

    @property
    def service(self) -> Service | None:
        """What its plan has its machine serve."""
        return service_of(self.plan) if self.plan else None

    @property
    def usd_per_hour(self) -> Decimal | None:
        """What its machine costs; None where it is not billed by the hour."""
        return self.pools[0].machine_usd_per_hour if self.pools else None

    @property
    def stopped_usd_per_hour(self) -> Decimal | None:
        """What its machine costs while it is stopped; None where it is not billed by the hour, or not known."""
        if self.usd_per_hour is None or self.plan is None:
            return None
        return sum((line.usd_per_hour for line in self.plan.cost.lines if line.stays_when_stopped), Decimal(0))


class Rollout(Value, frozen=True, kw_only=True):
    """An update that has begun and is not finished: on record from before its first step until after its last.

    `source` is the revision that served and is put back if the destination fails, None where none ever has.
    `recreate`: while the stage is `ending`, the machine is one of the revision before the destination; while it is
    `starting`, the destination's. `rolling`: the machine of the source, which ends by `ends`, serves until the stage is
    `promoted`; from then on that of the destination does, and the other one drains and goes. `refuses_since`: when the
    machine that served began to end, so that new requests are refused.
    """

    source: int | None
    destination: int
    stage: Literal["ending", "starting", "promoted"]
    strategy: Strategy = "recreate"
    ends: Ends | None = None
    refuses_since: Moment | None = None


class ResourceRecord(Value, frozen=True, kw_only=True):
    """What is remembered of a resource. An `intent` may or may not exist: it has to be looked up.

    A machine is `stopping` or `starting` from before the call until what it asked for was seen.
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


class Deployment(Value, frozen=True, kw_only=True):
    """A named thing in the world, as the record on disk keeps it.

    `active` is the number of the revision that serves. `serial` rises with every save; `request_number` rises with
    every new creating request, so that no request token is used for two. `owner` is who began it, as user@host.
    `given_up`: `up` itself removes it, so that its cost counts for the next one of its name. `plaintext`: somebody has
    agreed that an API key travels unencrypted to a public address.
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
        """The revision of the highest number, whatever became of it."""
        return self.revisions[-1]

    @property
    def wanted(self) -> Revision:
        """The revision that is being brought up, else what serves, else what was brought up last."""
        number = self.rollout.destination if self.rollout else self.active
        return self.numbered(number) or self._brought_up

    @property
    def current(self) -> Revision:
        """The revision of its machine: of two beside each other, of the one that serves."""
        ending = self.rollout is not None and self.rollout.stage == "ending"
        before = self.revisions[-2] if ending and len(self.revisions) > 1 else self._brought_up
        return self.numbered(self.active) or before

    @property
    def _brought_up(self) -> Revision:
        """The one that is pending: a newer one may have been taken back. Else the newest."""
        return next((item for item in self.revisions if item.state == "pending"), self.revision)

    @property
    def rolling(self) -> bool:
        """Whether the machine of a new revision is brought up beside the one that serves."""
        rollout = self.rollout
        return rollout is not None and (rollout.strategy, rollout.stage) == ("rolling", "starting")

    @property
    def plan(self) -> PlanDocument | None:
        """What is planned for the revision of its machine."""
        return self.current.plan

    @property
    def service(self) -> Service | None:
        """What its machine serves."""
        return self.current.service

    @property
    def usd_per_hour(self) -> Decimal | None:
        """What its machine costs; None where it is not billed by the hour."""
        return self.current.usd_per_hour

    def price_of(self, key: str) -> Decimal | None:
        """Return what the machine costs that a thing of this key is, or belongs to."""
        revision = self.numbered(revision_of(key)) or self.current
        return revision.usd_per_hour

    @property
    def stopped_usd_per_hour(self) -> Decimal | None:
        """What its machine costs while it is stopped; None where it is not billed by the hour, or not known."""
        return self.current.stopped_usd_per_hour

    @property
    def region(self) -> str:
        """The place of its machine, or where one is being tried; empty before anything is."""
        pools = self.current.pools
        return pools[0].place if pools else next((item.place for item in self.resources), "")

    @property
    def places(self) -> tuple[str, ...]:
        """Everywhere this deployment has, or may have, something."""
        return tuple(dict.fromkeys(filter(None, (self.region, *(item.place for item in self.resources)))))

    def record(self, key: str) -> ResourceRecord | None:
        return next((item for item in self.resources if item.key == key), None)

    @property
    def machine(self) -> ResourceRecord | None:
        """The record of what runs the engine: of two beside each other, of the one that serves."""
        return self.machine_at(self.current.number) or next((item for item in self.machines if not self.rolling), None)

    @property
    def machines(self) -> tuple[ResourceRecord, ...]:
        """The records of all its machines: an update may have two."""
        return tuple(item for item in self.resources if item.is_machine)

    def machine_at(self, number: int) -> ResourceRecord | None:
        """Return the record of the machine of a revision."""
        return next((item for item in self.machines if revision_of(item.key) == number), None)

    def with_record(self, record: ResourceRecord) -> Deployment:
        """This deployment with `record` in the place of the one of the same key, or behind the others."""
        if self.record(record.key) is None:
            return replaced(self, resources=(*self.resources, record))
        kept = tuple(record if item.key == record.key else item for item in self.resources)
        return replaced(self, resources=kept)

    def without_record(self, key: str) -> Deployment:
        return replaced(self, resources=tuple(item for item in self.resources if item.key != key))

    def leased_until(self, until: Moment | None) -> Deployment:
        """This deployment with another end of its lease."""
        return replaced(self, ends=replaced(self.ends, lease_until=until))

    def with_revision(self, revision: Revision) -> Deployment:
        """This deployment with `revision`, in the place of one of the same number, or as the newest one."""
        others = [item for item in self.revisions if item.number != revision.number]
        every = sorted((*others, revision), key=lambda item: item.number)
        needed = {self.active, self.rollout.source if self.rollout else None}
        old = every[:-_MOST_REVISIONS]
        return replaced(self, revisions=(*(item for item in old if item.number in needed), *every[-_MOST_REVISIONS:]))

    def numbered(self, number: int | None) -> Revision | None:
        """The revision of that number; None where the record no longer has it."""
        return next((item for item in self.revisions if item.number == number), None)

    def in_state(self, state: RevisionState) -> Deployment:
        """This deployment with the revision that is wanted in a state. One that serves retires what served before."""
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
    """A deployment as its tags tell of it, where there is no record. It is never saved."""

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
