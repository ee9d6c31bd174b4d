"""The words of the acting half: what is wanted, what exists, what to do, what is remembered.

A `place` is an opaque name of where a resource lives (a region); the engine of change only compares it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from tgi_deploy.values.base import Moment, Seconds  # noqa: TC001 -- records are read by their annotations
from tgi_deploy.values.plan_document import PlanDocument  # noqa: TC001 -- likewise

if TYPE_CHECKING:
    from collections.abc import Iterator

Action = Literal["create", "adopt", "keep", "delete"]
RecordPhase = Literal["intent", "created", "deleting"]
DeploymentPhase = Literal["creating", "running", "ready", "failed", "deleting"]
Level = Literal["info", "warning", "error"]

SCHEMA: Final = 1
# A note on what outlives its deployment unless asked otherwise; its value says what it is.
KEPT: Final = "kept"
# An attribute of a thing that lets callers in: what it lets in that nobody asked this tool for.
STRANGE_RULES: Final = "strange_rules"
# An attribute of what the cloud takes back by itself: the word that the cloud has for it.
RECLAIMED: Final = "reclaimed"
TAG_PREFIX: Final = "tgi-deploy:"
TAG_NAME: Final = f"{TAG_PREFIX}deployment"
TAG_ID: Final = f"{TAG_PREFIX}id"
TAG_KEY: Final = f"{TAG_PREFIX}key"
TAG_VERSION: Final = f"{TAG_PREFIX}version"
TAG_EXPIRES: Final = f"{TAG_PREFIX}expires"
TAG_CREATED: Final = f"{TAG_PREFIX}created"
TAG_PRICE: Final = f"{TAG_PREFIX}usd-per-hour"
TAG_SPEC: Final = f"{TAG_PREFIX}spec"
TAG_OWNER: Final = f"{TAG_PREFIX}owner"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ref:
    """An attribute of another resource, known only once that one exists."""

    key: str
    attribute: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """One wanted thing.

    `loose` names properties that may change in place: they don't count in `spec`. `notes` are kept in its record
    from the intent on. `is_machine`: the engine runs in it, and it is billed.
    """

    key: str
    kind: str
    place: str
    properties: Mapping[str, Any]
    loose: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    is_machine: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the resources this one refers to, each once."""
        return tuple(dict.fromkeys(ref.key for ref in _refs(self.properties)))

    @property
    def spec(self) -> str:
        """A hash of what this resource is: another spec means another resource."""
        fixed = {name: value for name, value in self.properties.items() if name not in self.loose}
        return digest({"kind": self.kind, "place": self.place, "properties": fixed})


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A resource as the world shows it. `attributes["id"]` identifies it; not `alive` means on its way out.

    `attached` things belong to another resource and go with it; only a leftover of them is deleted by itself.
    """

    key: str
    kind: str
    place: str
    attributes: Mapping[str, str]
    tags: Mapping[str, str] = field(default_factory=dict)
    state: str = ""
    alive: bool = True
    attached: bool = False
    is_machine: bool = False

    @property
    def id(self) -> str:
        return self.attributes["id"]

    @property
    def spec(self) -> str | None:
        return self.tags.get(TAG_SPEC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One thing to do. Creating steps carry the wanted resource, the others what is known of the existing one."""

    action: Action
    key: str
    kind: str
    place: str
    reason: str
    resource: Resource | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    is_machine: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeSet:
    """The steps from what exists to what is wanted, in the order they must run."""

    steps: tuple[Step, ...]

    @property
    def changes(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.action != "keep")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceRecord:
    """What is remembered of a resource. An `intent` may or may not exist: it has to be looked up."""

    key: str
    kind: str
    place: str
    phase: RecordPhase
    spec: str
    attempt: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    is_machine: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
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
            return replace(self, resources=(*self.resources, record))
        kept = tuple(record if item.key == record.key else item for item in self.resources)
        return replace(self, resources=kept)

    def without_record(self, key: str) -> Deployment:
        return replace(self, resources=tuple(item for item in self.resources if item.key != key))

    @property
    def places(self) -> tuple[str, ...]:
        """Everywhere this deployment has, or may have, something."""
        return tuple(dict.fromkeys((self.region, *(item.place for item in self.resources))))


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One line of a deployment's history."""

    at: Moment
    deployment: str
    code: str
    text: str
    level: Level = "info"
    step: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def digest(value: object) -> str:
    """A short stable hash of a JSON-like value (references included)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: object) -> object:
    if isinstance(value, Ref):
        return {"$ref": [value.key, value.attribute]}
    if isinstance(value, Mapping):
        return dict(value)
    return str(value.normalize() if isinstance(value, Decimal) else value)


def _refs(value: object) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _refs(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _refs(item)


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineState:
    """The machine as its cloud reports it. `address` is where the engine is reached, as `probe` takes it.

    `reclaimed`: the cloud has taken a spot machine back. `remedy` is what to do about its end, empty where only the
    tables of known failures have something.
    """

    state: Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated", "missing"]
    reason_code: str | None = None
    reason: str | None = None
    address: str | None = None
    reclaimed: bool = False
    remedy: str = ""

    @property
    def told(self) -> str:
        """`is stopped (why)`, `is gone`: what follows "the machine"."""
        state = "is gone" if self.state == "missing" else f"is {self.state}"
        return f"{state} ({self.why})" if self.why else state

    @property
    def why(self) -> str:
        """Code and text of its state, empty where there are none; clouds often begin the text with the code."""
        code, text = self.reason_code or "", self.reason or ""
        return text or code if text.startswith(code) else f"{code}: {text}" if text else code
