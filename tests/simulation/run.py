"""The simulator: several people on several computers use the program with one EC2, in one process and virtual time.

A history (simulation/history.py) is data: commands, each with its user and its moment, and what goes wrong. `run` gives
every user a home folder and every command a program (simulation/program.py) whose client, disk and clock are the
simulator's; everything in between is the real program: use cases, executor, handlers, error translation, retries.
The boto3 client is replaced, so that rejected, lost, duplicated and truncated replies reach the program's own error
handling.

Programs take turns at every request and pause (simulation/schedule.py); who is next follows from how long each call
takes, which the seed decides. EC2 (simulation/world.py, simulation/api.py) holds the truth, and shows each kind of
resource as late as the history says. Possible faults are in simulation/rules.toml, each rule with its source.

After every request that reaches EC2 and every write to a disk, and at the end of every command, the invariants
(simulation/invariants.py) are checked against the truth. When all commands have ended, there are no more faults: either
the last commands are repeated and must succeed, and everything is removed (`again`); or no user comes back, everything
must terminate by itself, and `gc` removes the rest (`leave`).

A history that fails is shrunk (simulation/shrink.py) to the few steps it needs and kept under tests/cases/simulation.
Its effectiveness is measured with planted bugs (simulation/planted.py).
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache

from builders.logs import GRAMMAR
from fakes.computer import FakeEngine, Recorder, fake_ec2
from msgspec.structs import replace
from simulation import requests
from simulation.disk import Disk, Home
from simulation.history import REGIONS, Command, History
from simulation.invariants import Invariants, is_lawful, owner_of
from simulation.program import Clock, Program, Sessions
from simulation.schedule import Endless, Killed, Schedule
from simulation.world import World

from tgi_deploy.catalog.phases import read_edits
from tgi_deploy.catalog.store import Store
from tgi_deploy.errors import DeployError, NotHealthyError
from tgi_deploy.operations.context import Context
from tgi_deploy.operations.deploying.heal import Healer, up_and_heal
from tgi_deploy.operations.deploying.in_place import extend
from tgi_deploy.operations.deploying.pausing import SwitchRequest, restart, start, stop
from tgi_deploy.operations.deploying.up import up
from tgi_deploy.operations.removing.down import down
from tgi_deploy.operations.removing.gc import GcRequest, gc
from tgi_deploy.operations.watching.lookup import unrecorded_deployment
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.retry import Pace
from tgi_deploy.targets.aws.api import Api
from tgi_deploy.targets.aws.errors import ErrorTable
from tgi_deploy.targets.aws.retry import Retrier
from tgi_deploy.targets.ec2.cloud import Ec2Cloud
from tgi_deploy.values.base import replaced
from tgi_deploy.wiring import engine_named

ENGINE_STARTS_S = 40.0
QUIET_S = 1200.0
TRIES = 3
_SHORTAGES = {"no capacity": ("InsufficientInstanceCapacity", 500), "no quota": ("VcpuLimitExceeded", 400)}
LATE_GC = 1  # the plan of a `gc` that also removes running machines without a record
_IMAGES = [{"arch": "x86_64", "name": "/image"}]


@dataclass
class Outcome:
    """How a command ended. `error` is None after a success; `killed`: it was killed."""

    command: Command
    number: int
    began_s: float
    ended_s: float = 0.0
    error: BaseException | None = None
    killed: bool = False
    result: object = None

    @property
    def done(self):
        return self.result is not None and self.error is None and not self.killed


@dataclass
class Report:
    """The result of a run. `broken` are (invariant, observation); `log` describes what happened."""

    history: History
    broken: list[tuple[str, str]]
    outcomes: list[Outcome]
    log: list[str] = field(default_factory=list)

    @property
    def names(self):
        return {name for name, _ in self.broken}


def run(history):
    """Run a history and return the report."""
    known = random.getstate()
    random.seed(history.seed)  # pauses between tries are drawn from it
    try:
        return _Run(history).run()
    finally:
        random.setstate(known)


@cache
def _table():
    return ErrorTable.of(Store.behind().json("aws/errors.json"))


@cache
def _healer():
    """Fixes that don't need a new plan: the same again, and the plan's next machine."""
    edits = {
        code: [edit for edit in edits if edit in {"again", "other_machine"}] for code, edits in read_edits().items()
    }
    return Healer(engine=engine_named("tgi"), edits=edits, plan_again=None)


def _up(context, command):
    asked = requests.up_request(command)
    if not command.heals:
        return up(context, asked)
    return up_and_heal(context, None, lambda _texts, plan: replaced(asked, plan=plan), asked.plan, _healer())[0]


def _rollback(context, command):
    recorded = context.store.load(command.name)
    if recorded is None:
        raise unrecorded_deployment(context, command.name)
    return up(context, requests.rollback_request(command, recorded))


def _gc(context, command):
    late = command.plan == LATE_GC
    return gc(context, GcRequest(older_than_s=3600.0, confirm=lambda _groups: True, include_unrecorded=late))


_SWITCHES = {"stop": stop, "start": start, "restart": restart}
_ACTS = {
    "up": _up,
    "down": lambda context, command: down(context, [command.name], lambda _removals: True),
    "extend": lambda context, command: extend(context, command.name, requests.WANTED[command.plan]),
    "rollback": _rollback,
    "gc": _gc,
}


class _Engine(FakeEngine):
    """The engine at a machine's address; it counts as proved once it has answered."""

    def __init__(self, run, url):
        super().__init__()
        self._run, self._url = run, url

    def ask(self, probe):
        machine = self._run.serving(self._url)
        if machine is None:
            raise NotHealthyError("engine_unreachable", f"{self._url} does not answer")
        if machine.fault == "wrong model":
            self.model_id = "somebody/else"
        elif probe.step == "info":
            machine.proved = True
        return super().ask(probe)


class _Run:
    def __init__(self, history):
        self.history = history
        self.schedule = Schedule()
        self.world = World(
            lambda: self.schedule.now, late_s=history.late_s, boot_s=history.boot_s, ending_s=history.ending_s
        )
        self.homes = defaultdict(Home)
        self.known = set()
        self._ended = set()
        self.programs = []
        self.outcomes = []
        self.log = []
        self.ids = 0
        self.troubles = []
        self.invariants = Invariants(self)

    def run(self):
        self._arrange(None, 0.0)
        self._add_from(0)
        try:
            self.schedule.run()
            self._finish()
        except Endless as error:
            self.invariants.broken.append(("ends", str(error)))
        return Report(self.history, self.invariants.broken, self.outcomes, self.log)

    def _arrange(self, command, now):
        """Schedule the events that count from now: the start (None), or the start of a command."""
        for event in self.history.events:
            if event.command != command:
                continue
            at_s, until_s = now + event.at_s, now + event.at_s + event.seconds
            if event.kind in _SHORTAGES:
                self.world.shortages.append((at_s, until_s, event.where, *_SHORTAGES[event.kind]))
            elif event.kind in {"throttling", "unreachable", "forbidden"}:
                self.troubles.append((event.kind, event.where, at_s, until_s))
            elif event.kind == "spot notice":
                self.world.at(at_s, self._reclaim)
            elif event.kind == "stranger":
                name = f"tgi-deploy-{event.where}"
                members = {"name": name, "network": "vpc-us-east-1", "tags": {}, "rules": ()}
                self.world.at(at_s, lambda at, members=members: self._stranger(at, members))

    def happening(self, region, method):
        """Return the current faults of a region or an action."""
        now, places = self.schedule.now, {region, method}
        return {kind for kind, where, since, until in self.troubles if where in places and since <= now < until}

    def _reclaim(self, at):
        for machine in self.world.machines:
            if machine.alive and machine.now["spot"]:
                self.world.reclaim(machine, at)

    def _stranger(self, at, members):
        if not any(
            item.now and item.now["name"] == members["name"] for item in self.world.of("security-group", REGIONS[0])
        ):
            self.world.add("security-group", REGIONS[0], None, at, **members)

    def _add_from(self, number):
        """Add the commands from this one on, up to one that waits for the end of the one before it."""
        for command in self.history.commands[number:]:
            if command.after and number > 0 and number - 1 not in self._ended:
                return
            begins_s = command.at_s + (self.schedule.now if command.after else 0.0)
            self._add(replace(command, at_s=begins_s), number)
            number += 1

    def _add(self, command, number):
        program = Program(number, command, self)
        self.programs.append(program)
        self.schedule.add(max(command.at_s, self.schedule.now), lambda gate: self._execute(program, gate))

    def _execute(self, program, gate):
        program.gate = gate
        if program.number < len(self.history.commands):
            self._arrange(program.number, self.schedule.now)
        outcome = Outcome(program.command, program.number, self.schedule.now)
        self.outcomes.append(outcome)
        self.invariants.before_command(program)
        self.note(program, f"begins {program.command.verb} {program.command.name}")
        try:
            outcome.result = self._act(program)
        except DeployError as error:
            outcome.error = error
        except Killed:
            outcome.killed = True
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is a defect of the product
            outcome.error = error
        program.ended, outcome.ended_s = True, self.schedule.now
        self.world.advance()
        what = "is killed" if outcome.killed else "ends well" if outcome.done else f"ends: {outcome.error!r}"
        self.note(program, f"{what}, after {program.calls} calls")
        self.invariants.after_command(program, outcome)
        self._ended.add(program.number)
        following = program.number + 1
        if following == len(self.programs) < len(self.history.commands):
            self._add_from(following)

    def _copy_home(self, user):
        """Copy the first user's home folder to another user."""
        self.homes[user].take_over(self.homes[0])
        self.known |= {(user, machine_id) for known, machine_id in self.known if known == 0}
        self.invariants.after_copy(user)
        return user

    def all_records(self):
        return [record for home in self.homes.values() for record in home.records.values()]

    def note(self, program, text):
        who = f"user {program.command.user}, command {program.number}" if program else "EC2"
        self.log.append(f"{self.schedule.now:9.1f} s  {who}: {text}")

    def _act(self, program):
        command, context = program.command, self._context(program)
        if command.verb == "copy":
            return self._copy_home(command.user)
        if command.verb in _SWITCHES:
            return _SWITCHES[command.verb](context, SwitchRequest(name=command.name, level="fast"))
        return _ACTS[command.verb](context, command)

    def _context(self, program):
        user = program.command.user
        recorder, clock, sessions = Recorder(), Clock(program), Sessions(program, _table())

        @cache
        def region(name):
            api = Api(region=name, sessions=sessions, retrier=Retrier(clock))
            return Ec2Cloud(api=api, image_parameters=_IMAGES)

        return Context(
            store=Disk(program, self.homes[user]),
            clock=clock,
            reporter=recorder,
            listener=recorder,
            targets=(fake_ec2(region),),
            cloud=region,
            probe=lambda address: self._probe(program, address.url),
            engine=engine_named,
            engine_client=lambda address: _Engine(self, address.url),
            log_grammar=lambda _engine: GRAMMAR,
            regions=self.history.regions,
            version="0.1.0",
            command=f"tgi-deploy {program.command.verb}",
            new_id=self._new_id,
            owner=owner_of(user),
            loopback=True,
            pace=Pace(at_once=1, health_poll_s=5.0),
        )

    def _new_id(self):
        self.ids += 1
        return f"id{self.ids:06d}"

    def _probe(self, program, url):
        program.pause(0.05)
        self.world.advance()
        answers = self.serving(url) is not None
        return Probe(outcome="status", status=200) if answers else Probe(outcome="refused")

    def serving(self, url):
        """Return the machine whose engine answers at an address, or None."""
        for machine in self.world.machines:
            if not machine.alive or machine.running_at is None:
                continue
            if f"//{self.world.address_of(machine, machine.now)}:" in url:
                return machine if self.schedule.now - machine.running_at >= ENGINE_STARTS_S else None
        return None

    def _finish(self):
        """Finish without faults: every command must succeed."""
        ends_s = [*(until for *_, until in self.troubles), *(until for _, until, *_ in self.world.shortages)]
        self.pass_time(max(0.0, max(ends_s, default=0.0) - self.schedule.now) + QUIET_S)
        for machine in self.world.machines:
            machine.fault = ""
        self.note(None, f"is calm: {self.history.end}")
        if self.history.end == "again":
            self._say_again()
        else:
            self.pass_time(2 * 86_400.0)
            self.invariants.nothing_runs()
            self.say(Command(user=0, verb="gc", name="", at_s=0.0, plan=LATE_GC))
        self.invariants.nothing_left()

    def _say_again(self):
        commands = self.history.commands
        last = {(command.user, command.name): command for command in commands if command.verb in {"up", "down"}}
        for command in last.values():
            self.say(command)
        self.invariants.settled()
        recorded = [(user, name) for user, home in self.homes.items() for name in home.records]
        everybody = {command.name: command.user for command in commands}
        for user, name in dict.fromkeys([*recorded, *((user, name) for name, user in everybody.items())]):
            self.say(Command(user=user, verb="down", name=name, at_s=0.0))

    def say(self, command):
        """Run a command until it succeeds or fails with an allowed error, at most three times."""
        for _ in range(TRIES):
            self._add(replace(command, at_s=self.schedule.now, ahead_s=0.0), len(self.programs))
            self.schedule.run()
            outcome = self.outcomes[-1]
            if outcome.done or is_lawful(outcome.error):
                return
        self.invariants.did_not_converge(outcome)

    def pass_time(self, seconds):
        """Advance time. A delayed request is carried out at its own time."""
        self.schedule.now += seconds
        self.world.advance()
        self.invariants.after_time()
