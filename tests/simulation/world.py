"""EC2 in memory: what really exists, since when, and what a read shows. It has no clock. A thing is a list of states
with their times, so a stale read shows an earlier state. Deletions take time, machines terminate themselves by their
user data, and a machine's disk and interface are deleted with it or left.
"""

from __future__ import annotations

import base64
import heapq
import re
from collections import defaultdict
from itertools import count

from tgi_deploy.values.resource import TAG_PREFIX

ZONES = {"us-east-1": ("us-east-1a", "us-east-1b"), "us-west-2": ("us-west-2a",)}
MOST_LATE_S = 55.0  # less than the minute that the program waits
REMEMBERED_S = 3600.0  # how long a terminated instance is still listed
ALIVE = ("pending", "running")
PAUSED = ("stopping", "stopped")
LOOK_S = 30.0  # how often a machine reads its tags
# A machine's original limit, in seconds since its boot, and the tag with its current one.
_LIMITS = {
    "expires": re.compile(r'"\$1" expires (\d+)'),
    "idle-s": re.compile(r"limit idle-s (\d+)"),
    "lease-until": re.compile(r'"\$1" lease-until (\d+)'),
}
_SAID = re.compile(r"(none|[\d-]{10}T[\d:]{8})?(?:Z|\+00:00)? ?([1-9][0-9]{0,9})?")
_PREFIX = {
    "instance": "i-",
    "security-group": "sg-",
    "launch-template": "lt-",
    "volume": "vol-",
    "network-interface": "eni-",
    "spot-request": "sir-",
    "address": "eipalloc-",
}


class ResourceRef:
    """`states` are (moment, members) in their order; members None: it is gone. `maker` is the command that made it.

    A machine is `proved` from when its engine has shown what it serves until it is stopped or rebooted.
    """

    def __init__(self, thing_id, kind, region, maker, at, members):
        self.id, self.kind, self.region, self.maker, self.made_at = thing_id, kind, region, maker, at
        self.delayed_s = 0.0
        self.states = [(at, members)]

    @property
    def now(self):
        return self.states[-1][1]

    def seen(self, at):
        """Return its members at that moment; None before its creation and after its deletion."""
        for since, members in reversed(self.states):
            if since <= at:
                return members
        return None

    def change(self, at, **members):
        if self.now is not None:
            self.states.append((at, {**self.now, **members}))

    def end(self, at):
        if self.now is not None:
            self.states.append((at, None))

    @property
    def tags(self):
        """The last that it had."""
        return next((members["tags"] for _, members in reversed(self.states) if members is not None), {})

    @property
    def state(self):
        """Return its state; empty if it is deleted or has none."""
        return "" if self.now is None else self.now.get("state", "")

    @property
    def alive(self):
        return self.state in ALIVE

    @property
    def exists(self):
        """Return whether it exists: a terminated instance is only listed."""
        return self.now is not None and self.state != "terminated"


class World:
    """All regions. `clock` returns the seconds that have passed; a shortage is (since, until, where, code, status)."""

    def __init__(self, clock, *, late_s, boot_s, ending_s):
        self._clock, self.late_s, self.boot_s, self.ending_s = clock, late_s, boot_s, ending_s
        self.things = {}
        self._by_kind = defaultdict(list)
        self.machines = []
        self.tokens = {}
        self.shortages = []
        self._numbers = count(1)
        self._orders = count()
        self._addresses = count()
        self._due = []
        self._moment = None

    def at(self, moment, act):
        """Schedule `act()` for that moment."""
        heapq.heappush(self._due, (moment, next(self._orders), act))

    def clock(self):
        """Return the time of the current event: its due time, or now."""
        return self._clock() if self._moment is None else self._moment

    def advance(self):
        """Carry out everything that is due by now, each at its own time."""
        outer, now = self._moment, self.clock()
        while self._due and self._due[0][0] <= now:
            self._moment, _, act = heapq.heappop(self._due)
            act(self._moment)
        self._moment = outer

    def add(self, kind, region, maker, at, **members):
        thing_id = f"{_PREFIX[kind]}{next(self._numbers):08x}"
        self.things[thing_id] = made = ResourceRef(thing_id, kind, region, maker, at, members)
        self._by_kind[kind, region].append(made)
        return made

    def of(self, kind, region):
        return self._by_kind[kind, region]

    def lag_of(self, thing, share, stale_s):
        """Return by how much a replica is behind with a thing. `share`: with machines, replicas differ in that.

        What a request made that was under way for long shows so much earlier: a minute is the most for both.
        """
        late_s = self.late_s.get(thing.kind, 0.0) * (share if thing.kind == "instance" else 1.0)
        return min(MOST_LATE_S - thing.delayed_s, late_s + stale_s)

    def launch(self, region, maker, at, request, fault=""):
        """Launch a machine with its disk, its interface and, for a spot machine, its request."""
        tags = request["tags"]
        machine = self.add(
            "instance",
            region,
            maker,
            at,
            state="pending",
            tags=tags.get("instance", {}),
            zone=request["zone"],
            type=request["type"],
            spot=request["spot"],
            reason=None,
            address=self.new_address(),
            launched_at=at,
            shutdown=request["shutdown"],
        )
        parts = []
        for kind in ("volume", "network-interface"):
            part = self.add(kind, region, maker, at, state="in-use", tags=tags.get(kind, {}), groups=request["groups"])
            parts.append((part, fault == f"keeps {kind}"))
        if request["spot"]:
            wanted = {"state": "active", "status": "fulfilled", "tags": tags.get("spot-instances-request", {})}
            parts.append((self.add("spot-request", region, maker, at, **wanted), False))
        machine.parts, machine.groups, machine.fault = parts, request["groups"], fault
        machine.user_data = base64.b64decode(request["user_data"]).decode()
        machine.running_at = machine.ends_at = machine.limits = None
        machine.proved = False
        self.machines.append(machine)
        if fault == "dies at start":
            reason = "Server.InternalError"
            self.at(at + min(3.0, self.boot_s), lambda moment: self.end(machine, moment, reason=reason))
        self.at(at + self.boot_s, lambda moment: self._boot(machine, moment))
        return machine

    def _boot(self, machine, at):
        if machine.state != "pending":
            return
        machine.change(at, state="running")
        machine.running_at = at
        if machine.limits is None:
            self._take_limits(machine, at)
        self.look(machine, at)

    @staticmethod
    def _take_limits(machine, at):
        """Start the original limits, which count from the first boot, also while it is stopped."""
        found = {name: pattern.search(machine.user_data) for name, pattern in _LIMITS.items()}
        machine.limits = {name: (int(first[1]) if first else None, at) for name, first in found.items()}
        machine.made_with = {name: length for name, (length, _) in machine.limits.items()}
        machine.result = {}

    def look(self, machine, at):
        """Let the machine read its limits, terminate if one is reached, and schedule the next check."""
        if machine.state != "running":
            return
        for name in _LIMITS:
            self._read_limit(machine, name, at)
        end = end_of(machine)
        if end is not None and end <= at:
            self._shut_down(machine, at)
        elif end is not None:
            self.at(end, lambda moment: self.look(machine, moment))

    def _read_limit(self, machine, name, at):
        """As templates/user-data/expire.j2 does: seconds count from when they are read."""
        read = _SAID.fullmatch(machine.now["tags"].get(f"{TAG_PREFIX}{name}", ""))
        result, seconds = read.groups() if read else (None, None)
        if seconds is None and name == "lease-until" and result is not None:
            seconds = machine.made_with[name]
        if (result, seconds) == machine.result.get(name) or not (seconds or result == "none"):
            return
        machine.result[name] = result, seconds
        machine.limits[name] = (None if result == "none" else int(seconds)), at

    def _shut_down(self, machine, at):
        """Power the machine off, according to its shutdown behavior."""
        if machine.state != "running":
            return
        if machine.now["shutdown"] == "terminate":
            self.end(machine, at, reason="Client.InstanceInitiatedShutdown")
        else:
            machine.change(at, state="stopped", reason="Client.InstanceInitiatedShutdown")

    def stop(self, machine, at):
        """Shut it down like a termination, but keep its disk and interface; it loses its address."""
        if machine.state == "running":
            machine.proved = False
            machine.change(at, state="stopping", reason="Client.UserInitiatedShutdown")
            self.at(at + self.ending_s, lambda moment: machine.state == "stopping" and self._rest(machine, moment))

    @staticmethod
    def _rest(machine, at):
        machine.change(at, state="stopped")

    def start(self, machine, at):
        if machine.state == "stopped":
            machine.change(at, state="pending", reason=None, address=self.new_address(), launched_at=at)
            self.at(at + self.boot_s, lambda moment: self._boot(machine, moment))

    def holder_of(self, address):
        """Return the machine that has an address, which keeps it until it is terminated; None for none."""
        machine = self.things.get(address.now["machine"]) if address.now else None
        return machine if machine is not None and machine.exists else None

    def address_of(self, machine, members):
        """Return the public address of a machine in this state: its own one is released while it has another."""
        held = (item for item in self.of("address", machine.region) if self.holder_of(item) is machine)
        return next((item.now["ip"] for item in held), members["address"])

    def new_address(self):
        number = next(self._addresses)
        return f"198.51.{number // 250 + 100}.{number % 250 + 1}"

    def end(self, machine, at, reason="Client.UserInitiatedShutdown"):
        if machine.state not in {*ALIVE, *PAUSED}:
            return
        machine.change(at, state="shutting-down", reason=reason)
        machine.ends_at = at
        self.at(at + self.ending_s, lambda moment: self._ended(machine, moment))

    def _ended(self, machine, at):
        machine.change(at, state="terminated")
        for part, kept in machine.parts:
            if part.kind == "spot-request":
                part.change(at, state="closed", status="instance-terminated-by-user")
            elif kept:
                part.change(at, state="available")
            else:
                part.end(at)
        self.at(at + REMEMBERED_S, machine.end)

    def reclaim(self, machine, at):
        """Reclaim a spot machine: the notice now, the termination two minutes later."""
        for part, _ in machine.parts:
            if part.kind == "spot-request" and part.now["state"] == "active":
                part.change(at, status="marked-for-termination")
        self.at(at + 120, lambda moment: self.end(machine, moment, reason="Server.SpotInstanceTermination"))

    def shortage(self, region, zone):
        """Return the (code, status) with which a launch there is rejected now, or None."""
        now = self.clock()
        short = (item for item in self.shortages if item[0] <= now < item[1] and item[2] in {region, zone})
        return next((item[3:] for item in short), None)


def end_of(machine):
    """Return when a running machine terminates itself, as far as it knows; None: never."""
    return min((since + length for length, since in machine.limits.values() if length is not None), default=None)
