"""A cloud in memory, with options for the faults of real ones. Every call of a handler passes `FakeWorld.enter` and
`leave`, where a test can count it, kill the caller, or make it fail. Request tokens are honored, group names are
unique, and a group in use can't be deleted. With `time` it has a separate clock, and new resources become visible
`shows_after_s` later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tgi_deploy.reconcile.ends import READS_TAGS
from tgi_deploy.reconcile.errors import ExistsError, InUseError, NoCapacityError
from tgi_deploy.targets.ec2.region import MachineImage, Placement
from tgi_deploy.values.base import replaced
from tgi_deploy.values.resource import STARTABLE, TAG_EXPIRES, TAG_KEY, Found, MachineState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KINDS = (
    "security-group",
    "launch-template",
    "address",
    "network-interface",
    "volume",
    "instance",
    "spot-request",
)


UNIQUE = ("security-group", "launch-template")
STATIC = "127.0.0.9"
BEGINNING = datetime(2026, 1, 9, tzinfo=UTC)


class KilledError(BaseException):
    """The process is killed here, as by SIGKILL; the program must not catch it."""


@dataclass
class FakeWorld:
    """All regions. `on_call(name, properties)` may raise; `zones` are where every type is offered.

    `hidden` are ids that exist and that no read shows yet, although they can be terminated by id. `time` returns the
    seconds since `BEGINNING`; no request, not even a deletion, knows what is hidden by it. Without `holds_groups` a
    group can be deleted although a machine uses it, as in simpler imitations of EC2.
    """

    zones: tuple[str, ...] = ("a", "b")
    kinds: tuple[str, ...] = KINDS
    things: dict[str, Found] = field(default_factory=dict)
    properties: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    creations: list[tuple[str, Mapping[str, Any], str]] = field(default_factory=list)
    on_call: Callable[[str, Mapping[str, Any]], None] | None = None
    after_call: Callable[[str], None] | None = None
    deaths: list[str] = field(default_factory=list)
    slow_to_end: int = 0
    slow_to_stop: int = 0
    silent_looks: int = 0
    leaves_volume: bool = False
    reasons: dict[str, str] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    next_number: int = 0
    refuses_batches: bool = False
    hidden: set[str] = field(default_factory=set)
    outside_ends: list[tuple[str, datetime | None]] = field(default_factory=list)
    time: Callable[[], float] | None = None
    shows_after_s: float = 0.0
    holds_groups: bool = True
    reported: str = ""
    made_at: dict[str, float] = field(default_factory=dict)

    def moment(self, thing_id: str) -> dict[str, str]:
        """Return its creation time by the cloud's clock."""
        if self.time is None:
            return {}
        self.made_at[thing_id] = self.time()
        return {"launched": (BEGINNING + timedelta(seconds=self.time())).isoformat()}

    def knows(self, thing_id: str) -> bool:
        """Return whether requests by id find it."""
        made_at = self.made_at.get(thing_id)
        return self.time is None or made_at is None or self.time() - made_at >= self.shows_after_s

    def shows(self, thing_id: str) -> bool:
        return thing_id not in self.hidden and self.knows(thing_id)

    def cloud(self, region: str) -> FakeCloud:
        return FakeCloud(world=self, region=region)

    def enter(self, name: str, properties: Mapping[str, Any]) -> None:
        self.calls.append((name, str(properties.get("id", ""))))
        if self.on_call is not None:
            self.on_call(name, properties)

    def leave(self, name: str) -> None:
        if self.after_call is not None:
            self.after_call(name)

    def kill_at(self, ordinal: int, *, after: bool = False) -> None:
        """Kill the process at the n-th call from now on."""
        left = [ordinal]

        def count(*_args: object) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise KilledError

        setattr(self, "after_call" if after else "on_call", count)

    def live_on(self) -> None:
        self.on_call = self.after_call = None

    def there(self, kind: str) -> list[Found]:
        return [found for found in self.things.values() if found.kind == kind and found.state != "terminated"]

    def users_of(self, group_id: str) -> list[Found]:
        return [item for item in self.there("instance") if group_id in str(self.properties.get(item.id))]

    def holds(self, group_id: str) -> bool:
        return self.holds_groups and bool(self.users_of(group_id))

    def holder_of(self, address: Found) -> Found | None:
        """Return the machine that has an address, also while it is stopped."""
        machine = self.things.get(address.attributes.get("machine", ""))
        return machine if machine is not None and machine.state != "terminated" else None

    def address_of(self, machine: Found) -> str:
        mine = (item for item in self.there("address") if item.attributes.get("machine") == machine.id)
        return next((item.attributes["address"] for item in mine), machine.attributes["address"])

    def running(self) -> list[Found]:
        return [found for found in self.there("instance") if found.alive]

    def left(self) -> list[Found]:
        return [found for kind in self.kinds for found in self.there(kind)]


@dataclass(frozen=True)
class FakeHandler:
    world: FakeWorld
    region: str
    kind: str

    @property
    def rare(self) -> bool:
        return self.kind in {"parameter", "role", "instance-profile", "schedule"}

    @property
    def runs_engines(self) -> bool:
        return self.kind == "instance"

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        self.world.enter(f"find {self.kind}", {})
        shown = [item for item in self._mine() if self.world.shows(item.id)]
        found = [item for item in shown if all(item.tags.get(k) == v for k, v in tags.items() if v)]
        self.world.leave(f"find {self.kind}")
        return tuple(sorted(found, key=lambda item: item.id))

    def create(self, properties: Mapping[str, Any], *, tags: Mapping[str, str], token: str) -> Found:
        self.world.enter(f"create {self.kind}", properties)
        self.world.creations.append((self.kind, properties, token))
        made = self.world.tokens.get(token) if self.kind not in {"security-group", "address"} else None
        if made is None:
            made = self._make(properties, tags)
            self.world.tokens[token] = made
        self.world.leave(f"create {self.kind}")
        return self.world.things[made]

    def _make(self, properties: Mapping[str, Any], tags: Mapping[str, str]) -> str:
        made = f"{self.kind}-{self.world.next_number}"
        if self.kind in UNIQUE and any(
            item.attributes["name"] == properties["name"] for item in self._rivals(properties)
        ):
            raise ExistsError(f"a {self.kind} of that name exists")
        self.world.next_number += 1
        self._add(Found(
            key=tags[TAG_KEY],
            kind=self.kind,
            place=self.region,
            attributes={"id": made, **self._attributes(properties), **self._moment(made)},
            tags=dict([*tags.items(), *([READS_TAGS] if self.kind == "instance" else ())]),
            state="running" if self.kind == "instance" else "available",
            is_machine=self.runs_engines,
            billed=self.kind == "address",
        ))  # fmt: skip
        self.world.properties[made] = properties
        if self.kind == "instance" and self.world.deaths:
            self.world.reasons[made] = self.world.deaths.pop(0)
        return made

    @property
    def unrepeatable(self) -> bool:
        return self.kind == "address"

    def _attributes(self, properties: Mapping[str, Any]) -> dict[str, str]:
        if self.kind == "address":
            return {"address": STATIC, "machine": ""}
        if self.kind != "instance":
            return {"name": properties["name"], "version": "1", "arn": f"arn:aws:iam::1:role/{properties['name']}"}
        request = properties["request"]
        return {
            "zone": request["Placement"]["AvailabilityZone"],
            "instance_type": request["InstanceType"],
            "market": "spot" if properties["spot"] else "on-demand",
            "address": "127.0.0.1",
        }

    def _moment(self, made: str) -> dict[str, str]:
        """EC2 reports a launch time for machines, but not for groups."""
        moment = self.world.moment(made)
        return moment if self.kind == "instance" else {}

    def update(self, attributes: Mapping[str, str], properties: Mapping[str, Any]) -> None:
        self.world.enter(f"update {self.kind}", attributes)
        if self.kind == "address":
            found = self.world.things[attributes["id"]]
            self._add(replaced(found, attributes={**found.attributes, "machine": properties["machine"]}))
            self.world.leave("update address")
            return
        if "tags" in properties:
            found = self.world.things[attributes["id"]]
            changed = replaced(found, tags={**found.tags, **properties["tags"]})
            self._add(changed)
            if properties["tags"].get(TAG_EXPIRES, "").endswith(" 1"):  # its machine reads that a limit is reached
                self._end(changed)
            self.world.leave(f"update {self.kind}")
            return
        known = self.world.properties.get(attributes["id"], {})
        if "cidrs" not in properties:
            self.world.properties[attributes["id"]] = {**known, **properties}
            self.world.leave(f"update {self.kind}")
            return
        cidrs = sorted({*known.get("allowed", ()), *properties["cidrs"]} - set(properties.get("revoked", ())))
        self.world.properties[attributes["id"]] = {**known, "allowed": cidrs}
        found = self.world.things[attributes["id"]]
        signed = {"cidrs": " ".join(cidrs), "signed_cidrs": " ".join(cidrs)}
        self._add(replaced(found, attributes={**found.attributes, **signed}))
        self.world.leave(f"update {self.kind}")

    def read(self, attributes: Mapping[str, str]) -> Found | None:
        self.world.enter(f"read {self.kind}", attributes)
        found = self.world.things.get(attributes["id"])
        if found is not None and found.state == "shutting-down":
            self._end_slowly(found)
            found = self.world.things.get(attributes["id"])
        self.world.leave(f"read {self.kind}")
        if found is None or found.state == "terminated" or not self.world.shows(found.id):
            return None
        return found

    def delete(self, attributes: Mapping[str, str]) -> None:
        self.world.enter(f"delete {self.kind}", attributes)
        found = self.world.things.get(attributes["id"]) if self.world.knows(attributes["id"]) else None
        if found is not None and self.kind == "security-group" and self.world.holds(found.id):
            raise InUseError("an interface holds the group")
        if self.kind == "address" and found is not None and self.world.holder_of(found) is not None:
            raise InUseError("a machine has the address")
        if found is not None:
            self._end(found)
        self.world.leave(f"delete {self.kind}")

    def stop(self, attributes: Mapping[str, str]) -> None:
        """Stop it; it stays in the state `stopping` for `slow_to_stop` polls."""
        self.world.enter("stop instance", attributes)
        self._switch(attributes["id"], "stopping" if self.world.slow_to_stop else "stopped")
        self.world.leave("stop instance")

    def start(self, attributes: Mapping[str, str]) -> None:
        self.world.enter("start instance", attributes)
        found = self.world.things[attributes["id"]]
        if found.state == "stopped":
            self._switch(found.id, "running")
            self._add(replaced(self.world.things[found.id], attributes={**found.attributes, "address": "127.0.0.2"}))
        self.world.leave("start instance")

    def restart(self, attributes: Mapping[str, str]) -> bool:
        self.world.enter("restart instance", attributes)
        self.world.silent_looks = 2
        self.world.leave("restart instance")
        return False

    def _switch(self, machine_id: str, state: str) -> None:
        found = self.world.things[machine_id]
        kept = {STARTABLE: "yes"} if state != "running" else {}
        attributes = {name: text for name, text in found.attributes.items() if name != STARTABLE} | kept
        self._add(replaced(found, state=state, alive=state == "running", attributes=attributes))

    def delete_many(self, many: Sequence[Mapping[str, str]]) -> frozenset[str]:
        """Delete several machines; other kinds are not supported."""
        if self.kind != "instance" or self.world.refuses_batches:
            return frozenset()
        self.world.enter("delete_many instance", {"id": " ".join(item["id"] for item in many)})
        for item in many:
            self._end(self.world.things[item["id"]])
        self.world.leave("delete_many instance")
        return frozenset(item["id"] for item in many)

    def _end(self, found: Found) -> None:
        if self.kind != "instance":
            del self.world.things[found.id]
            return
        state = "shutting-down" if self.world.slow_to_end else "terminated"
        self._add(replaced(found, state=state, alive=False))
        if self.world.leaves_volume:
            volume = replaced(
                found,
                key="volume:v",
                kind="volume",
                is_machine=False,
                attributes={"id": f"volume-of-{found.id}"},
                state="available",
                alive=True,
                attached=True,
            )
            self._add(volume)

    def _end_slowly(self, found: Found) -> None:
        self.world.looks[found.id] = self.world.looks.get(found.id, 0) + 1
        if self.world.looks[found.id] >= self.world.slow_to_end:
            self._add(replaced(found, state="terminated"))

    def _add(self, found: Found) -> None:
        self.world.things[found.id] = found

    def _rivals(self, properties: Mapping[str, Any]) -> list[Found]:
        """Return what has the same unique name: of groups in a network, of templates in a region."""
        network = properties.get("network")
        return [item for item in self._mine() if self.world.properties[item.id].get("network") == network]

    def _mine(self) -> list[Found]:
        return [item for item in self.world.there(self.kind) if item.place == self.region]


@dataclass(frozen=True)
class FakeCloud:
    world: FakeWorld
    region: str

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.world.kinds

    def handler(self, kind: str) -> FakeHandler:
        return FakeHandler(self.world, self.region, kind)

    def find(self, tags: Mapping[str, str]) -> tuple[Found, ...]:
        return tuple(found for kind in self.kinds for found in self.handler(kind).find(tags))

    def image(self, *, architecture: str, wanted: str | None) -> MachineImage:
        return MachineImage(id=wanted or "ami-0123456789abcdef0", root_device="/dev/xvda", minimum_gib=8, source="fake")

    def placements(self, instance_type: str, *, subnet: str | None) -> tuple[Placement, ...]:
        network = f"vpc-of-{subnet}" if subnet else "vpc-1"
        places = tuple(
            Placement(zone=f"{self.region}{zone}", subnet=subnet or f"subnet-{zone}", network=network)
            for zone in self.world.zones
        )
        if not places:
            raise NoCapacityError(f"{instance_type} is not offered")
        return places

    def machine(self, instance_id: str) -> MachineState:
        self.world.enter("machine", {"id": instance_id})
        found = self.world.things.get(instance_id)
        if found is None or not self.world.shows(instance_id):
            return MachineState(state="missing")
        if found.state == "stopping":
            self.world.looks[instance_id] = self.world.looks.get(instance_id, 0) + 1
            if self.world.looks[instance_id] >= self.world.slow_to_stop:
                self.world.looks.pop(instance_id)
                self.handler("instance")._switch(instance_id, "stopped")
                found = self.world.things[instance_id]
        reason = self.world.reasons.get(instance_id)
        if reason:
            self.world.things[instance_id] = replaced(found, state="terminated", alive=False)
            return MachineState(state="terminated", reason_code=reason, reason=reason)
        return MachineState(state=found.state, address=self.world.address_of(found))  # type: ignore[arg-type]

    def console(self, instance_id: str) -> str:
        return f"[tgi-deploy] phase=booting\nAPI_KEY=planted hf_abcdefghijkl of {instance_id}\n{self.world.reported}"

    def move_outside_end(self, seen: Sequence[Found], expires: datetime | None) -> None:
        self.world.outside_ends.append((next(found.id for found in seen if found.is_machine), expires))

    def check_death(self, state: MachineState, *, pool: str) -> None:
        if state.state == "terminated":
            raise NoCapacityError(f"{pool} died", pool=pool, cause=state.reason_code or "")
