"""EC2 in memory: what exists in truth, since when, and what a look at it shows. It has no clock of its own.

A thing is a list of its states with the moment of each: a look that is late by so much shows the state of then. Things
that end take time, machines end by their own user data, and what a machine brought along goes with it, or is left.
"""

from __future__ import annotations

import base64
import heapq
import re
from itertools import count

ZONES = {"us-east-1": ("us-east-1a", "us-east-1b"), "us-west-2": ("us-west-2a",)}
REMEMBERED_S = 3600.0  # how long an ended instance is still described
SHUTDOWN_CHECK_S = 60.0  # how often a machine reads its lease
ALIVE = ("pending", "running")
_TTL = re.compile(r'"\$1" expires (\d+)')
_IDLE = re.compile(r"limit idle-s (\d+)")
_LEASE = re.compile(r'"\$1" lease-until (\d+)')
_PREFIX = {
    "instance": "i-",
    "security-group": "sg-",
    "launch-template": "lt-",
    "volume": "vol-",
    "network-interface": "eni-",
    "spot-request": "sir-",
}


class Thing:
    """`states` are (moment, members) in their order; members None: it is gone. `maker` is the command that made it."""

    def __init__(self, thing_id, kind, region, maker, at, members):
        self.id, self.kind, self.region, self.maker, self.made_at = thing_id, kind, region, maker, at
        self.states = [(at, members)]

    @property
    def now(self):
        return self.states[-1][1]

    def seen(self, at):
        """Return its members as they were at that moment; None before it was made and after it was gone."""
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
        """Empty for what is gone, or has none."""
        return "" if self.now is None else self.now.get("state", "")

    @property
    def alive(self):
        return self.state in ALIVE

    @property
    def exists(self):
        """Whether it is there: an ended instance is only remembered."""
        return self.now is not None and self.state != "terminated"


class World:
    """All regions. `clock` returns the seconds that have passed; `deaths` are reasons of the next machines to die."""

    def __init__(self, clock, *, late_s, boot_s, ending_s):
        self.clock, self.late_s, self.boot_s, self.ending_s = clock, late_s, boot_s, ending_s
        self.things = {}
        self.machines = []
        self.tokens = {}
        self.deaths = []
        self.keeps = []
        self.no_capacity = []
        self._numbers = count(1)
        self._orders = count()
        self._due = []

    def at(self, moment, act):
        """Have `act()` happen at that moment."""
        heapq.heappush(self._due, (moment, next(self._orders), act))

    def advance(self):
        """Let everything happen that is due by now; each at its own moment."""
        now = self.clock()
        while self._due and self._due[0][0] <= now:
            moment, _, act = heapq.heappop(self._due)
            act(moment)

    def add(self, kind, region, maker, at, **members):
        thing_id = f"{_PREFIX[kind]}{next(self._numbers):08x}"
        self.things[thing_id] = made = Thing(thing_id, kind, region, maker, at, members)
        return made

    def of(self, kind, region):
        return [thing for thing in self.things.values() if thing.kind == kind and thing.region == region]

    def looked_at(self, thing, stale_s=0.0):
        """Return what a look shows of a thing that may be late, and answered by a replica that lags behind."""
        late_s = min(55.0, self.late_s.get(thing.kind, 0.0) + stale_s)
        return thing.seen(self.clock() - late_s)

    def launch(self, region, maker, at, request):
        """Make a machine, with its disk, its interface and, for a spot machine, its request."""
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
            address=f"198.51.{len(self.machines) // 250 + 100}.{len(self.machines) % 250 + 1}",
            shutdown=request["shutdown"],
        )
        keeps = self.keeps.pop(0) if self.keeps else ""
        parts = []
        for kind in ("volume", "network-interface"):
            part = self.add(kind, region, maker, at, state="in-use", tags=tags.get(kind, {}), groups=request["groups"])
            parts.append((part, kind == keeps))
        if request["spot"]:
            sir = self.add(
                "spot-request",
                region,
                maker,
                at,
                state="active",
                status="fulfilled",
                tags=tags.get("spot-instances-request", {}),
            )
            parts.append((sir, False))
        machine.parts = parts
        machine.user_data = base64.b64decode(request["user_data"]).decode()
        machine.running_at = None
        machine.ended_at = None
        self.machines.append(machine)
        if self.deaths:
            reason = self.deaths.pop(0)
            self.at(at + min(3.0, self.boot_s), lambda moment: self.end(machine, moment, reason=reason))
        self.at(at + self.boot_s, lambda moment: self._boot(machine, moment))
        return machine

    def _boot(self, machine, at):
        if machine.state != "pending":
            return
        machine.change(at, state="running")
        machine.running_at = at
        ttl, idle = _TTL.search(machine.user_data), _IDLE.search(machine.user_data)
        for found in filter(None, (ttl, idle)):
            self.at(at + int(found[1]), lambda moment: self._shut_down(machine, moment))
        if lease := _LEASE.search(machine.user_data):
            self.at(at + SHUTDOWN_CHECK_S, lambda moment: self._read_lease(machine, moment, int(lease[1])))

    def _read_lease(self, machine, at, first_s):
        if machine.state != "running":
            return
        until = self.lease_of(machine, first_s)
        if until <= at:
            self._shut_down(machine, at)
        else:
            self.at(max(at + SHUTDOWN_CHECK_S, until), lambda moment: self._read_lease(machine, moment, first_s))

    def lease_of(self, machine, first_s):
        raise NotImplementedError

    def _shut_down(self, machine, at):
        """The machine powers itself off: what that means is said by its shutdown behavior."""
        if machine.state != "running":
            return
        if machine.now["shutdown"] == "terminate":
            self.end(machine, at, reason="Client.InstanceInitiatedShutdown")
        else:
            machine.change(at, state="stopped", reason="Client.InstanceInitiatedShutdown")

    def end(self, machine, at, reason="Client.UserInitiatedShutdown"):
        if machine.state not in {*ALIVE, "stopped"}:
            return
        machine.change(at, state="shutting-down", reason=reason)
        self.at(at + self.ending_s, lambda moment: self._ended(machine, moment))

    def _ended(self, machine, at):
        machine.change(at, state="terminated")
        machine.ended_at = at
        for part, kept in machine.parts:
            if part.kind == "spot-request":
                part.change(at, state="closed", status="instance-terminated-by-user")
            elif kept:
                part.change(at, state="available")
            else:
                part.end(at)
        self.at(at + REMEMBERED_S, machine.end)

    def reclaim(self, machine, at):
        """EC2 takes a spot machine back: the notice now, the end two minutes later."""
        for part, _ in machine.parts:
            if part.kind == "spot-request" and part.now["state"] == "active":
                part.change(at, status="marked-for-termination")
        self.at(at + 120, lambda moment: self.end(machine, moment, reason="Server.SpotInstanceTermination"))

    def lacks_capacity(self, region, zone):
        now = self.clock()
        return any(since <= now < until and where in {region, zone} for since, until, where in self.no_capacity)
