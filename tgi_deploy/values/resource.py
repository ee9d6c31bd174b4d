"""Resources: what is wanted, what exists, and the steps between. A `place` is a name that only its target reads."""

from __future__ import annotations

import hashlib
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

# A note on what outlives its deployment unless asked otherwise; its value says what it is.
KEPT: Final = "kept"
# An attribute of a thing that lets callers in: what it lets in that nobody asked this tool for.
STRANGE_RULES: Final = "strange_rules"
# An attribute of what the cloud takes back by itself: the word that the cloud has for it.
RECLAIMED: Final = "reclaimed"
# An attribute of a machine that is stopped, by whoever it was, and can be started with what is on its disk.
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


_OF_REVISION: Final = re.compile(r"@([1-9][0-9]{0,8})(?:\.[1-9][0-9]{0,8})?$", re.ASCII)


def machine_key(kind: str, revision: int) -> str:
    """Return the key of the machine of a revision, which has one: `instance@3.1`."""
    return f"{kind}@{revision}.1"


def revision_key(kind: str, revision: int) -> str:
    """Return the key of what is made for a revision beside its machine: `launch-template@3`."""
    return f"{kind}@{revision}"


def revision_of(key: str) -> int | None:
    """Return the number of the revision that a key is of; None for what the deployment as a whole has."""
    found = _OF_REVISION.search(key)
    return int(found[1]) if found else None


def key_of(tags: Mapping[str, str], first: str) -> str:
    """Return the key that a thing carries. The first release left out what it is of: its things are `first`."""
    key = tags.get(TAG_KEY, first)
    return first if key == first.partition("@")[0] else key


class Ref(Value, frozen=True, kw_only=True):
    """An attribute of another resource, known only once that one exists."""

    key: str
    attribute: str


class Resource(Value, frozen=True, kw_only=True):
    """One wanted thing.

    `loose` names properties that may change in place: they don't count in `spec`. `notes` are kept in its record
    from the intent on. `is_machine`: the engine runs in it, and it is billed.
    """

    key: str
    kind: str
    place: str
    properties: Mapping[str, Any]
    loose: tuple[str, ...] = ()
    notes: Mapping[str, str] = {}
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


class Found(Value, frozen=True, kw_only=True):
    """A resource as the world shows it. `attributes["id"]` identifies it; not `alive` means on its way out.

    `attached` things belong to another resource and go with it; only a leftover of them is deleted by itself.
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

    @property
    def id(self) -> str:
        return self.attributes["id"]

    @property
    def spec(self) -> str | None:
        return self.tags.get(TAG_SPEC)


class Step(Value, frozen=True, kw_only=True):
    """One thing to do. Creating steps carry the wanted resource, the others what is known of the existing one."""

    action: Action
    key: str
    kind: str
    place: str
    reason: str
    resource: Resource | None = None
    attributes: Mapping[str, str] = {}
    is_machine: bool = False

    @classmethod
    def deletion(cls, thing: Found | ResourceRecord, reason: str) -> Step:
        """Return the step that deletes what exists, or may exist."""
        return cls(
            action="delete",
            key=thing.key,
            kind=thing.kind,
            place=thing.place,
            reason=reason,
            attributes=thing.attributes,
            is_machine=thing.is_machine,
        )


class ChangeSet(Value, frozen=True, kw_only=True):
    """The steps from what exists to what is wanted, in the order they must run."""

    steps: tuple[Step, ...]

    @property
    def changes(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.action != "keep")


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


class MachineState(Value, frozen=True, kw_only=True):
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
