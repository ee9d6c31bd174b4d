"""Desired and existing resources, and the steps between. A `place` is opaque to everything but its target."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from tgi_deploy.values.base import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.values.deployment import ResourceRecord

Action = Literal["create", "adopt", "keep", "delete", "stop", "start", "restart"]

# A note on resources that outlive their deployment by default; its value describes them.
KEPT: Final = "kept"
# An attribute of firewalls: rules that this tool did not add.
FOREIGN_RULES: Final = "foreign_rules"
# An attribute of what enforces limits: why it does not run.
UNENFORCED: Final = "unenforced"
# Of what leads callers to a deployment: why it does not.
UNSERVED: Final = "unserved"
# An attribute of resources reclaimed by the cloud: the cloud's term.
RECLAIMED: Final = "reclaimed"
# An attribute of a machine that is gone, except for its description, which costs nothing.
DESCRIPTION_ONLY: Final = "description-only"
# An attribute of a stopped machine that can be restarted with its disk.
STARTABLE: Final = "startable"
TAG_PREFIX: Final = "tgi-deploy:"
TAG_NAME: Final = f"{TAG_PREFIX}deployment"
TAG_ID: Final = f"{TAG_PREFIX}id"
TAG_KEY: Final = f"{TAG_PREFIX}key"
TAG_VERSION: Final = f"{TAG_PREFIX}version"
TAG_EXPIRES: Final = f"{TAG_PREFIX}expires"
TAG_CREATED: Final = f"{TAG_PREFIX}created"
TAG_PRICE: Final = f"{TAG_PREFIX}usd-per-hour"
TAG_STOPPED_PRICE: Final = f"{TAG_PREFIX}stopped-usd-per-hour"
TAG_SPEC: Final = f"{TAG_PREFIX}spec"
TAG_OWNER: Final = f"{TAG_PREFIX}owner"
TAG_UPDATE: Final = f"{TAG_PREFIX}update"


_OF_REVISION: Final = re.compile(r"@([1-9][0-9]{0,8})(?:\.[1-9][0-9]{0,8})?$", re.ASCII)


def machine_key(kind: str, revision: int) -> str:
    """Return the key of a revision's machine: `instance@3.1`."""
    return f"{kind}@{revision}.1"


def revision_key(kind: str, revision: int) -> str:
    """Return the key of a revision's other resources: `launch-template@3`."""
    return f"{kind}@{revision}"


def revision_of(key: str) -> int | None:
    """Return the revision number in a key; None for resources of the whole deployment."""
    found = _OF_REVISION.search(key)
    return int(found[1]) if found else None


def key_of(tags: Mapping[str, str], first: str) -> str:
    """Return a resource's key. Resources of the first release lack the revision: they get `first`."""
    key = tags.get(TAG_KEY, first)
    return first if key == first.partition("@")[0] else key


class Ref(Value, frozen=True, kw_only=True):
    """A reference to another resource's attribute, known only once that exists."""

    key: str
    attribute: str


class Resource(Value, frozen=True, kw_only=True):
    """A desired resource.

    `mutable` names the properties that can change in place; they are not part of `spec`. `notes` are in its record from
    the intent on. `is_machine`: the engine runs in it, and it is billed. `usd_per_hour` is the price of another
    resource that is billed separately.
    """

    key: str
    kind: str
    place: str
    properties: Mapping[str, Any]
    mutable: tuple[str, ...] = ()
    notes: Mapping[str, str] = {}
    is_machine: bool = False
    usd_per_hour: Decimal | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the resources that this one refers to, without duplicates."""
        return tuple(dict.fromkeys(ref.key for ref in _refs(self.properties)))

    @property
    def spec(self) -> str:
        """A hash of this resource; a different spec needs a new resource."""
        fixed = {name: value for name, value in self.properties.items() if name not in self.mutable}
        return digest({"kind": self.kind, "place": self.place, "properties": fixed})


class Found(Value, frozen=True, kw_only=True):
    """An existing resource. `attributes["id"]` identifies it; not `alive` means being deleted.

    `attached` resources belong to another one and are deleted with it; only leftovers are deleted separately. `billed`:
    it is not a machine and is billed while there is none.
    """

    key: str
    kind: str
    place: str
    attributes: Mapping[str, str]
    tags: Mapping[str, str] = {}
    state: str = ""
    alive: bool = True
    attached: bool = False
    is_machine: bool = False
    billed: bool = False

    @property
    def id(self) -> str:
        return self.attributes["id"]

    @property
    def spec(self) -> str | None:
        return self.tags.get(TAG_SPEC)


class Step(Value, frozen=True, kw_only=True):
    """One step. Creating steps have the desired resource, the others the known attributes of the existing one.

    `alive` is False if a resource to delete may have ended before: it was ending when last seen, or was not seen.
    `rests`: whether the machine is stopped; None if unknown.
    """

    action: Action
    key: str
    kind: str
    place: str
    reason: str
    resource: Resource | None = None
    attributes: Mapping[str, str] = {}
    is_machine: bool = False
    alive: bool = True
    rests: bool | None = None

    @classmethod
    def deletion(cls, thing: Found | ResourceRecord, reason: str) -> Step:
        """Return the step that deletes a resource that exists, or may exist."""
        rests = isinstance(thing, Found) and thing.is_machine and thing.state == "stopped"
        alive = rests or (isinstance(thing, Found) and thing.alive)
        return cls(
            action="delete",
            key=thing.key,
            kind=thing.kind,
            place=thing.place,
            reason=reason,
            attributes=thing.attributes,
            is_machine=thing.is_machine,
            alive=alive,
            rests=rests if alive and thing.is_machine else None,
        )


class ChangeSet(Value, frozen=True, kw_only=True):
    """The steps from the existing to the desired resources, in order."""

    steps: tuple[Step, ...]

    @property
    def changes(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.action != "keep")


def digest(value: object) -> str:
    """Return a short stable hash of a JSON-like value, including references."""
    import hashlib  # noqa: PLC0415 -- 4 ms that no plan needs

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


class ReplicaState(Value, frozen=True, kw_only=True):
    """One of several replicas. `created` is the cloud's own text of the moment."""

    id: str
    status: str
    created: str = ""


class AutoscalerState(Value, frozen=True, kw_only=True):
    """What changes the number of replicas by itself, and its bounds.

    `problem`: why it does not work, or empty. `latest`: its last change, in the cloud's words, or empty.
    """

    id: str
    least: int
    most: int
    problem: str = ""
    latest: str = ""


class MachineState(Value, frozen=True, kw_only=True):
    """A machine's state as reported by its cloud. `address` is the engine's, in the form for `probe`.

    `reclaimed`: the cloud reclaimed a spot machine. `refusal` is the code of why the cloud refuses to create it, which
    waiting does not change, else empty. `remedy` is what to do about its end, empty if only the tables of known
    failures have one. `replicas` are its parts, if it consists of several.
    """

    state: Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated", "missing"]
    reason_code: str | None = None
    reason: str | None = None
    address: str | None = None
    reclaimed: bool = False
    refusal: str = ""
    remedy: str = ""
    replicas: tuple[ReplicaState, ...] = ()

    @property
    def description(self) -> str:
        """The state as a predicate of "the machine": `is stopped (why)`, `is gone`."""
        state = "is gone" if self.state == "missing" else f"is {self.state}"
        return f"{state} ({self.why})" if self.why else state

    @property
    def why(self) -> str:
        """Code and text of its state, or empty; clouds often begin the text with the code."""
        code, text = self.reason_code or "", self.reason or ""
        return text or code if text.startswith(code) else f"{code}: {text}" if text else code
