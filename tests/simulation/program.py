"""One command's view of its computer: a client like boto3's, a clock, and the faults of each. Everything above this is
the program's own code, including error handling, retries and records.
"""

from __future__ import annotations

import random
from datetime import timedelta

from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, ReadTimeoutError
from botocore.parsers import ResponseParserError
from fakes.cloud import BEGINNING
from simulation.api import CREATING, Api, refusal
from simulation.schedule import Killed

READ_TIMEOUT_S = 60.0
READING_ATTEMPTS = 5
_AGAIN = frozenset({"RequestLimitExceeded", "InternalError"})
LOOKS = ("describe", "get", "list")
_URL = "https://ec2.amazonaws.com"


class SimulatorError(BaseException):
    """A defect of the simulator, which the program would otherwise treat as an unreadable reply."""


class Program:
    """Runs one command of a run. `learned` are the machines that it knows of and has not recorded yet."""

    def __init__(self, number, command, run):
        self.number, self.command, self.run = number, command, run
        self.schedule, self.world, self.invariants = run.schedule, run.world, run.invariants
        self.faults = {(fault.among, fault.at): fault for fault in run.history.faults if fault.command == number}
        broken = {place: fault.kind for (among, place), fault in self.faults.items() if among == "machines"}
        self.api = Api(run.world, number, broken)
        self.chance = random.Random(f"{run.history.seed} {number}")  # noqa: S311 -- how long each call takes
        self.learned = set()
        self.ended_machines = set()
        self.gate = self.updates = None
        self.calls = self.changes = self.creations = self.writes = 0
        self.dead = self.ended = self.has_changed = False

    def pause(self, seconds):
        self.live()
        self.schedule.sleep(self.gate, seconds)
        self.live()

    def live(self):
        """Check that the program is alive: a dead one does nothing more, not even cleanup."""
        if self.dead:
            raise Killed

    def die(self):
        self.dead = True
        raise Killed

    def request(self, region, method, parameters, *, attempts):
        """Send a request like the SDK, which retries some failed reads."""
        for attempt in range(attempts):
            try:
                return self._send(region, method, parameters)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _AGAIN or attempt == attempts - 1:
                    raise
            except (ConnectionClosedError, EndpointConnectionError, ReadTimeoutError):
                if attempt == attempts - 1:
                    raise
            self.pause(self.chance.random() * min(2.0**attempt, 20.0))
        raise AssertionError("a request has at least one attempt")

    def _send(self, region, method, parameters):
        self.live()
        try:
            self.invariants.before_call(self, method, parameters, region)
        except Exception as error:
            raise SimulatorError(f"before {method}") from error
        fault = self._fault_of(method)
        took_s = 0.02 + self.chance.random() ** 3
        self.api.lag = self.chance.choice((1.0, self.chance.random()))
        self.pause(took_s / 2)
        if fault is not None:
            self.run.note(self, f"{fault.kind}: request {self.calls - 1}, {method} {_named(parameters)}")
        elif not method.startswith(LOOKS):
            self.run.note(self, f"{method} {_named(parameters)}")
        self._refuse(region, method, fault.kind if fault else "")
        if fault is not None:
            reply = self._with(fault, region, method, parameters)
        else:
            reply = self._reach(region, method, parameters)
        self.pause(took_s / 2)
        self.learned.update((self.command.user, item["InstanceId"]) for item in reply.get("Instances", ()))
        return reply

    def _fault_of(self, method):
        fault = self.faults.get(("requests", self.calls))
        self.calls += 1
        if method.startswith(LOOKS):
            first_look, self.has_changed = self.has_changed, False
            return fault or (self.faults.get(("looks", self.changes - 1)) if first_look else None)
        fault = fault or self.faults.get(("changes", self.changes))
        self.changes += 1
        if method in CREATING:
            fault = fault or self.faults.get(("creations", self.creations))
            self.creations += 1
        self.has_changed = True
        return fault

    def _refuse(self, region, method, kind):
        """Apply faults before a request reaches the cloud."""
        if kind == "killed before":
            self.die()
        happening = self.run.happening(region, method)
        if kind == "not sent" or "unreachable" in happening:
            raise EndpointConnectionError(endpoint_url=_URL)
        if kind == "throttled" or "throttling" in happening:
            raise refusal(method, "RequestLimitExceeded", status=503)
        if kind == "denied" or "forbidden" in happening:
            raise refusal(method, "UnauthorizedOperation", status=403)
        if kind == "dropped":
            raise ConnectionClosedError(endpoint_url=_URL)

    def _reach(self, region, method, parameters):
        try:
            return self.api.call(region, method, parameters)
        except ClientError:
            raise
        except Exception as error:
            raise SimulatorError(f"{method} of {parameters}") from error
        finally:
            self.invariants.after_step()

    def _with(self, fault, region, method, parameters):
        if fault.kind in {"late", "killed in flight"}:
            arrives = self.schedule.now + fault.seconds
            self.world.at(arrives, lambda _moment: self._reach_late(region, method, parameters, fault.seconds))
            if fault.kind == "late":
                raise ConnectionClosedError(endpoint_url=_URL)
            self.die()
        if fault.kind == "doubled" and not method.startswith(LOOKS):
            self._try(region, method, parameters)
            self.pause(fault.seconds + 0.1)
        if fault.kind == "stale":
            self.api.stale_s = fault.seconds
        try:
            reply = self._reach(region, method, parameters)
        except ClientError:
            self._spoil(fault.kind, method)
            raise
        finally:
            self.api.stale_s = 0.0
        self._spoil(fault.kind, method)
        return reply

    def _spoil(self, kind, method):
        """Apply faults after a request has taken effect or was rejected."""
        if kind == "killed after":
            self.die()
        if kind == "lost":
            self.pause(READ_TIMEOUT_S)
            raise ReadTimeoutError(endpoint_url=_URL)
        if kind == "cut":
            raise ResponseParserError("Unable to parse response (no element found: line 1, column 0)")
        if kind == "failed after":
            raise refusal(method, "InternalError", status=500)

    def _try(self, region, method, parameters):
        try:
            self._reach(region, method, parameters)
        except ClientError:
            return

    def _reach_late(self, region, method, parameters, delayed_s):
        """Carry out a delayed request, whose sender no longer waits."""
        known = set(self.world.things)
        try:
            self.api.call(region, method, parameters)
        except ClientError:
            return
        finally:
            self.invariants.after_step()
        for thing_id in self.world.things.keys() - known:
            self.world.things[thing_id].delayed_s = delayed_s
        if self.ended and not self.dead:
            self.invariants.what_is_left_is_on_record(self)

    def write(self, act):
        """Write to the disk, or apply a fault instead."""
        self.live()
        fault = self.faults.get(("writes", self.writes))
        self.writes += 1
        if fault is not None:
            self.run.note(self, f"{fault.kind} {self.writes - 1}")
        if fault is not None and fault.kind == "killed before write":
            self.die()
        result = act()
        self.run.known |= self.learned
        if fault is not None:
            self.die()
        return result


class Client:
    """A boto3 client with the methods that the program uses."""

    def __init__(self, program, region, *, creating):
        self._program, self._region = program, region
        self._attempts = 1 if creating else READING_ATTEMPTS

    def __getattr__(self, method):
        return lambda **parameters: self._program.request(self._region, method, parameters, attempts=self._attempts)

    def get_paginator(self, method):
        return Paginator(getattr(self, method))


class Paginator:
    """Return everything on one page, because the SDK handles paging."""

    def __init__(self, call):
        self._call = call

    def paginate(self, **parameters):
        yield self._call(**{name: value for name, value in parameters.items() if name != "PaginationConfig"})


class Sessions:
    """Creates these clients; replaces the program's SessionFactory."""

    def __init__(self, program, table):
        self._program, self.table = program, table

    def client(self, _service, region, *, creating=False):
        return Client(self._program, region, creating=creating)


class Clock:
    """The clock of one computer with its error; elapsed time is the same for all."""

    def __init__(self, program):
        self._program = program

    def now(self):
        return BEGINNING + timedelta(seconds=self._program.schedule.now + self._program.command.ahead_s)

    def monotonic(self):
        return self._program.schedule.now

    def sleep(self, seconds):
        self._program.pause(seconds)


def _named(parameters):
    """The ids and names in a request."""
    named = (parameters[key] for key in parameters if key.endswith(("Id", "Ids", "Name")))
    return " ".join(" ".join(value) if isinstance(value, list) else value for value in named)
