"""A deployment as it is remembered: its record, the resources it knows of, and the events of its history."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from tgi_deploy.values.base import Moment, Seconds, Value, replaced
from tgi_deploy.values.plan_document import PlanDocument

RecordPhase = Literal["intent", "created", "deleting"]
DeploymentPhase = Literal["creating", "running", "ready", "failed", "deleting"]
Level = Literal["info", "warning", "error"]

SCHEMA: Final = 1


class ResourceRecord(Value, frozen=True, kw_only=True):
    """What is remembered of a resource. An `intent` may or may not exist: it has to be looked up."""

    key: str
    kind: str
    place: str
    phase: RecordPhase
    spec: str
    attempt: int
    attributes: Mapping[str, str] = {}
    notes: Mapping[str, str] = {}
    is_machine: bool = False


class Deployment(Value, frozen=True, kw_only=True):
    """A named thing in the world, as the record on disk keeps it.

    `plan` is None before the first launch; `wish` is a hash of what was asked for; `serial` rises with every save;
    `attempt` rises with every new creating request, so that no request token is used for two. `owner` is who began it,
    as user@host. `spent_usd` is what machines before the present one had cost when its end was fixed, None where no
    ceiling counts that; `given_up`: `up` itself removes it, so that its cost counts for the next one of its name.
    `plaintext`: somebody has agreed that an API key travels unencrypted to a public address.
    """

    name: str
    id: str
    target: str
    region: str
    phase: DeploymentPhase
    created: Moment
    updated: Moment
    wish: str = ""
    plan: PlanDocument | None = None
    resources: tuple[ResourceRecord, ...] = ()
    endpoint: str | None = None
    usd_per_hour: Decimal | None = None
    ttl_s: Seconds | None = None
    expires: Moment | None = None
    idle_s: Seconds | None = None
    lease_s: Seconds | None = None
    lease_until: Moment | None = None
    attempt: int = 0
    serial: int = 0
    schema: int = SCHEMA
    owner: str = ""
    plaintext: bool = False
    spent_usd: Decimal | None = None
    given_up: bool = False

    def record(self, key: str) -> ResourceRecord | None:
        return next((item for item in self.resources if item.key == key), None)

    @property
    def machine(self) -> ResourceRecord | None:
        """The record of what runs the engine."""
        return next((item for item in self.resources if item.is_machine), None)

    def with_record(self, record: ResourceRecord) -> Deployment:
        """This deployment with `record` in the place of the one of the same key, or behind the others."""
        if self.record(record.key) is None:
            return replaced(self, resources=(*self.resources, record))
        kept = tuple(record if item.key == record.key else item for item in self.resources)
        return replaced(self, resources=kept)

    def without_record(self, key: str) -> Deployment:
        return replaced(self, resources=tuple(item for item in self.resources if item.key != key))

    @property
    def places(self) -> tuple[str, ...]:
        """Everywhere this deployment has, or may have, something."""
        return tuple(dict.fromkeys((self.region, *(item.place for item in self.resources))))


class Event(Value, frozen=True, kw_only=True):
    """One line of a deployment's history."""

    at: Moment
    deployment: str
    code: str
    text: str
    level: Level = "info"
    step: str | None = None
    data: Mapping[str, Any] = {}
