"""What happens in one run, as data: who runs which command when, and what goes wrong. Made from a seed, kept as JSON.

Nothing else decides a run: a history that is read from a file is the run that was written to it.
"""

from __future__ import annotations

import random
from typing import Literal

import msgspec
from msgspec.structs import replace

KINDS = ("instance", "security-group", "launch-template", "volume", "network-interface", "spot-request")
REGIONS = ("us-east-1", "us-west-2")
NAMES = ("demo", "other")
TWO_REGIONS = 3  # the number of the request whose second choice is in another region
MOST_AHEAD_S = 290.0  # AWS refuses requests that are signed more than 5 minutes off
LATEST_S = 45.0  # how late a thing may show; with what a late request adds, less than the minute that is waited


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value of a history."""


class Command(Fact):
    """`user` runs `verb` on `name` from `at_s`; `plan` is the number of what is asked for (simulation/requests.py).

    With `after` it begins so long after the end of the command before it. `ahead_s` is how far that computer's clock is
    wrong while it runs.
    """

    user: int
    verb: Literal["up", "down", "gc", "extend"]
    name: str
    at_s: float
    after: bool = False
    plan: int = 0
    ahead_s: float = 0.0
    waits: bool = False


class Fault(Fact):
    """What goes wrong with a command's request or write number `at`, counted from 0 among those of `among`.

    `changes` are the requests that change something. `seconds` is a delay or a length, by kind (simulation/rules.toml).
    """

    kind: str
    command: int
    among: Literal["requests", "changes", "writes"]
    at: int
    seconds: float = 0.0


class Event(Fact):
    """What goes wrong in the cloud by itself, from `at_s` on for `seconds`. `where` is a zone, kind or region."""

    kind: str
    at_s: float
    seconds: float = 0.0
    where: str = ""


class History(Fact):
    """`late_s` is how late things of a kind show. `end` is what is done at last, when nothing goes wrong any more."""

    seed: int
    commands: tuple[Command, ...]
    faults: tuple[Fault, ...] = ()
    events: tuple[Event, ...] = ()
    late_s: dict[str, float] = {}
    boot_s: float = 20.0
    ending_s: float = 15.0
    end: Literal["again", "leave"] = "again"

    @property
    def regions(self):
        """Where everybody looks: one region, unless something is asked for in a second one."""
        return REGIONS if any(command.plan == TWO_REGIONS for command in self.commands) else REGIONS[:1]

    @property
    def steps(self):
        return len(self.commands) + len(self.faults) + len(self.events)


CALL_FAULTS = {
    "killed before": 3,
    "killed after": 6,
    "throttled": 3,
    "not sent": 2,
    "lost": 4,
    "late": 2,
    "cut": 2,
    "doubled": 2,
    "failed after": 2,
    "stale": 3,
    "killed before write": 2,
    "killed after write": 3,
}
EVENTS = {
    "no capacity": 3,
    "throttling": 2,
    "dies at start": 2,
    "spot notice": 2,
    "keeps volume": 1,
    "keeps interface": 1,
    "stranger": 1,
    "unreachable": 2,
    "wrong model": 1,
}
_AGAIN, _FOLLOWS = 0.4, 0.7  # shares of commands that repeat the one before, or come right after it
# Where faults strike, by what they are among: a launch is the fourth change.
# Shares of histories, one after the other: a launch breaks off, a machine's end is near, two want one name.
_INTERRUPTED, _ENDING, _RACE = 0.3, 0.4, 0.55
_LATE = {"instance": 0.5}
_STRIKES = {"requests": range(60), "changes": (0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 7), "writes": range(20)}


def make(seed):
    """Return the history of a seed."""
    chance = random.Random(seed)  # noqa: S311 -- a choice of cases, not a secret
    how = chance.random()
    if how < _INTERRUPTED:
        return _interrupted(chance, seed)
    if how < _ENDING:
        return _ending(chance, seed)
    if how < _RACE:
        return _race(chance, seed)
    commands = _commands(chance)
    quiet = chance.random() < 0.1
    return History(
        seed=seed,
        commands=commands,
        faults=() if quiet else tuple(_fault(chance, len(commands)) for _ in range(chance.choice((1, 1, 2, 2, 3)))),
        events=() if quiet else tuple(_event(chance) for _ in range(chance.choice((0, 0, 1, 1, 2, 3)))),
        late_s={
            kind: round(chance.uniform(0, LATEST_S), 1) for kind in KINDS if chance.random() < _LATE.get(kind, 0.25)
        },
        boot_s=round(chance.uniform(1, 60), 1),
        ending_s=round(chance.choice((1, 10, 60, 240, 1500)) * chance.uniform(0.5, 1), 1),
        end=chance.choice(("again", "again", "leave")),
    )


def _interrupted(chance, seed):
    """A launch that breaks off, and what its user does right after it, while EC2 does not show the machine yet."""
    first = _command(chance, 1, "up", 0.0)
    second = _following(chance, first, again=chance.random() < 0.6)
    third = _following(chance, second, again=chance.random() < 0.5)
    if chance.random() < 0.4:  # as far apart as two clocks can be
        ahead_s = chance.choice((-MOST_AHEAD_S, MOST_AHEAD_S))
        first, second = replace(first, ahead_s=ahead_s), replace(second, ahead_s=-ahead_s)
    kind = chance.choice(("killed after", "killed after", "killed after write", "lost", "cut", "late"))
    among, places = ("writes", range(7, 14)) if kind.endswith("write") else ("changes", (3,))
    seconds = 10.0 if kind == "late" else 0.0
    return History(
        seed=seed,
        commands=(first, second, third)[: chance.choice((2, 2, 3))],
        faults=(
            Fault(kind=kind, command=0, among=among, at=chance.choice(places), seconds=seconds),
            *(_fault(chance, 2) for _ in range(chance.choice((0, 0, 1)))),
        ),
        events=tuple(_event(chance) for _ in range(chance.choice((0, 0, 1)))),
        late_s={"instance": round(chance.uniform(15, LATEST_S), 1)},
        boot_s=round(chance.uniform(1, 60), 1),
        end=chance.choice(("again", "again", "leave")),
    )


def _ending(chance, seed):
    """What others do when a machine's end is near, by clocks that differ."""
    first = replace(_command(chance, 1, "up", 0.0), plan=chance.choice((0, 0, 1, TWO_REGIONS)), waits=False)
    later = Command(
        user=1,
        verb=chance.choice(("gc", "gc", "up", "down")),
        name=first.name,
        at_s=round(chance.choice((1800.0, 7200.0, 7200.0)) + chance.uniform(-500, 500), 1),
        ahead_s=chance.choice((-MOST_AHEAD_S, MOST_AHEAD_S, MOST_AHEAD_S)),
    )
    return History(
        seed=seed,
        commands=(first, later),
        faults=tuple(_fault(chance, 2) for _ in range(chance.choice((0, 1)))),
        boot_s=round(chance.uniform(1, 60), 1),
        end=chance.choice(("again", "leave")),
    )


def _race(chance, seed):
    """Two who want one name, at once or while the first one waits; perhaps one has to go to another region for it."""
    first = replace(_command(chance, 1, "up", 0.0), name=NAMES[0])
    later_s = round(chance.choice((chance.uniform(0, 10), chance.uniform(0, 10), chance.uniform(65, 130))), 1)
    second = replace(first, user=1, at_s=later_s, ahead_s=_ahead_s(chance), plan=_plan(chance))
    events = ()
    if chance.random() < 0.5:
        first, second = replace(first, plan=TWO_REGIONS), replace(second, plan=TWO_REGIONS)
        short = Event(kind="no capacity", at_s=0.0, seconds=round(chance.uniform(5, 40), 1), where=REGIONS[0])
        events = (short,)
    kind = chance.choice(("lost", "lost", "killed after", "cut"))
    fault = Fault(kind=kind, command=0, among="changes", at=chance.choice((0, 1, 2, 3)))
    return History(
        seed=seed,
        commands=(first, second),
        faults=(fault,) if chance.random() < 0.6 else (),
        events=events,
        late_s={kind: round(chance.uniform(0, LATEST_S), 1) for kind in KINDS if chance.random() < 0.25},
        boot_s=round(chance.uniform(1, 60), 1),
    )


def _commands(chance):
    """One to five commands of one to three users, most of them on one name, at the same time or one after the other."""
    users = chance.choice((1, 1, 2, 2, 3))
    pause_s = chance.choice((3.0, 60.0, 600.0, 4000.0, 7000.0))
    made = [_command(chance, users, "up", 0.0)]
    at_s = 0.0
    for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4))):
        at_s += chance.uniform(0, pause_s)
        how = chance.random()
        if how < _FOLLOWS:
            made.append(_following(chance, made[-1], again=how < _AGAIN))
        else:
            verb = chance.choice(("up", "up", "up", "down", "down", "gc", "extend"))
            made.append(_command(chance, users, verb, round(at_s, 1)))
    return tuple(made)


def _following(chance, command, *, again):
    """What the same user does right after a command has ended: the same again, perhaps asked for otherwise, or more."""
    verb = command.verb if again else chance.choice(("down", "down", "up", "gc", "extend"))
    plan = _plan(chance) if chance.random() < 0.2 else command.plan
    return replace(
        command,
        verb=verb,
        at_s=round(chance.uniform(0.5, 20), 1),
        after=True,
        plan=plan if verb == "up" else 0,
        ahead_s=_ahead_s(chance),
    )


def _plan(chance):
    return chance.choice((0, 0, 0, 0, 1, 1, 2, TWO_REGIONS))


def _command(chance, users, verb, at_s):
    return Command(
        user=chance.randrange(users),
        verb=verb,
        name=chance.choice((NAMES[0], NAMES[0], NAMES[0], NAMES[1])),
        at_s=at_s,
        plan=_plan(chance) if verb == "up" else 0,
        ahead_s=_ahead_s(chance),
        waits=chance.random() < 0.25,
    )


def _ahead_s(chance):
    return chance.choice(
        (0.0, 0.0, 0.0, -MOST_AHEAD_S, MOST_AHEAD_S, round(chance.uniform(-MOST_AHEAD_S, MOST_AHEAD_S), 1))
    )


def _fault(chance, commands):
    kind = chance.choices(tuple(CALL_FAULTS), tuple(CALL_FAULTS.values()))[0]
    among = "writes" if kind.endswith("write") else chance.choice(("requests", "changes", "changes"))
    seconds = {"late": 10.0, "stale": 45.0, "doubled": 3.0}.get(kind, 0.0) * chance.random()
    return Fault(
        kind=kind,
        command=chance.randrange(commands),
        among=among,
        at=chance.choice(_STRIKES[among]),
        seconds=round(seconds, 1),
    )


def _event(chance):
    kind = chance.choices(tuple(EVENTS), tuple(EVENTS.values()))[0]
    where = {
        "no capacity": lambda: chance.choice((*REGIONS, "us-east-1a", "us-east-1b")),
        "unreachable": lambda: chance.choice(REGIONS),
        "throttling": lambda: chance.choice(REGIONS),
        "stranger": lambda: chance.choice(NAMES),
    }.get(kind, str)()
    return Event(
        kind=kind,
        at_s=round(chance.choice((0.0, chance.uniform(0, 120), chance.uniform(0, 120), chance.uniform(0, 3000))), 1),
        seconds=round(chance.choice((20, 120, 900)) * chance.uniform(0.3, 1), 1),
        where=where,
    )


def as_json(history):
    return msgspec.json.format(msgspec.json.encode(history), indent=1).decode() + "\n"


def from_json(text):
    return msgspec.json.decode(text, type=History)
