"""What happens in one run, as data: who runs which command when, and which faults occur. Generated from a seed and
stored as JSON. Nothing else affects a run, so a history from a file reproduces it.
"""

from __future__ import annotations

import random
from typing import Literal

import msgspec
from msgspec.structs import replace

KINDS = ("instance", "security-group", "launch-template", "volume", "network-interface", "spot-request")
REGIONS = ("us-east-1", "us-west-2")
NAMES = ("demo", "other")
ACTIONS = (
    "describe_instances",
    "describe_security_groups",
    "describe_launch_templates",
    "run_instances",
    "terminate_instances",
    "create_tags",
    "create_launch_template",
    "delete_security_group",
)
SECOND_HOME = 2  # the first user, with another home folder
TWO_REGIONS, FROM_THERE = 3, 6  # the requests whose second choice is in another region
MOST_AHEAD_S = 290.0  # AWS refuses requests that are signed more than 5 minutes off
_STATIC_EVERY = 6
# How late a resource may become visible; with a late request, less than the minute that the program waits.
LATEST_S = 45.0


class Fact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value of a history."""


class Command(Fact):
    """`user` runs `verb` on `name` from `at_s`; `plan` is the number of what is asked for (simulation/requests.py).

    With `after` it begins so long after the end of the command before it. `ahead_s` is how far that computer's clock is
    wrong while it runs. `waits`: for the engine; `recreates`: it ends an old machine first; `heals`: what can be cured
    is tried again. `copy`: the user gets a copy of the first user's home folder. `static`: it asks for an address that
    stays.
    """

    user: int
    verb: Literal["up", "down", "gc", "extend", "rollback", "stop", "start", "restart", "copy"]
    name: str
    at_s: float
    after: bool = False
    plan: int = 0
    ahead_s: float = 0.0
    waits: bool = False
    recreates: bool = False
    heals: bool = False
    static: bool = False


class Fault(Fact):
    """A fault of a command's request, write or machine number `at`, counted from 0 among those of `among`. `changes`
    are the requests that change something, `creations` those that create something, `looks` the first reads after each
    change. `seconds` is a delay or a length, by kind (simulation/rules.toml).
    """

    kind: str
    command: int
    among: Literal["requests", "changes", "creations", "looks", "writes", "machines"]
    at: int
    seconds: float = 0.0


class Event(Fact):
    """A fault of the cloud itself, from `at_s` on for `seconds`. `where` is a zone, region or name.

    `at_s` counts from the beginning of a command, where there is one.
    """

    kind: str
    at_s: float
    command: int | None = None
    seconds: float = 0.0
    where: str = ""


class History(Fact):
    """`late_s` is how late resources of a kind become visible. `end` is what happens at the end, without faults."""

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
        """The regions that are searched: one, unless a request uses a second one."""
        return REGIONS if any(command.plan in {TWO_REGIONS, FROM_THERE} for command in self.commands) else REGIONS[:1]

    @property
    def steps(self):
        return len(self.commands) + len(self.faults) + len(self.events)


CALL_FAULTS = {
    "killed before": 3,
    "killed in flight": 2,
    "killed after": 5,
    "throttled": 3,
    "not sent": 2,
    "dropped": 2,
    "lost": 4,
    "late": 2,
    "cut": 2,
    "doubled": 2,
    "failed after": 2,
    "denied": 2,
    "stale": 3,
}
WRITE_FAULTS = {"killed before write": 2, "killed after write": 3}
MACHINE_FAULTS = {"dies at start": 3, "wrong model": 5, "keeps volume": 1, "keeps network-interface": 1}
EVENTS = {
    "no capacity": 3,
    "no quota": 1,
    "throttling": 2,
    "spot notice": 2,
    "stranger": 1,
    "unreachable": 2,
    "forbidden": 2,
}
_ENDING_KINDS = (
    "killed after",
    "killed after",
    "killed in flight",
    "killed in flight",
    "killed before",
    "killed before",
)
_DOUBTFUL_KINDS = ("lost", "cut", "late", "dropped", "failed after")
_SECONDS = {"late": 30.0, "killed in flight": 30.0, "stale": 45.0, "doubled": 3.0}
# Where faults occur: a launch is the fourth change of a first `up`, and its third creation.
_STRIKES = {
    "requests": range(60),
    "changes": (0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 7),
    "creations": (0, 1, 2, 2),
    "looks": (0, 1, 2, 3, 3, 3, 4, 5),
    "writes": range(30),
    "machines": (0, 0, 0, 1),
}
_PLANS = (0, 0, 0, 0, 1, 1, 2, TWO_REGIONS, 4, 4, 5)
_SOON, _HOUR_LATER = (0.4, 20.0), (3600.0, 4200.0)
_PATTERNS = {
    ("up", "up", "down"): 5,
    ("up", "up", "up"): 3,
    ("up", "up"): 2,
    ("up", "down"): 3,
    ("up", "down", "up"): 1,
    ("up", "gc"): 1,
}


def make(seed):
    """Return the history of a seed."""
    chance = random.Random(seed)  # noqa: S311 -- a choice of cases, not a secret
    shape = chance.choices(tuple(_SHAPES), tuple(_SHAPES.values()))[0]
    made = shape(chance, seed)
    return _with_addresses(made) if seed % _STATIC_EVERY == 0 else made


def _with_addresses(history):
    """Return the history with static addresses, which become visible as late as groups."""
    late_s = {**history.late_s, "address": history.late_s.get("security-group", 0.0)}
    return replace(history, commands=tuple(replace(item, static=True) for item in history.commands), late_s=late_s)


def _mixed(chance, seed):
    """A random mix: one to five commands, with faults and events anywhere."""
    commands = _commands(chance)
    quiet = chance.random() < 0.1
    return History(
        seed=seed,
        commands=commands,
        faults=() if quiet else _faults(chance, len(commands), (1, 1, 2, 2, 3)),
        events=() if quiet else _events(chance, len(commands), (0, 0, 1, 1, 2, 3)),
        late_s=_late(chance, 0.25, instance=0.5),
        boot_s=_boot_s(chance),
        ending_s=_ending_s(chance),
        end=_end(chance),
    )


def _interrupted(chance, seed):
    """Commands that are interrupted one after another, often at the same point, and what their user does next."""
    first = _command(chance, 1, "up", 0.0)
    commands = []
    for number, verb in enumerate(chance.choices(tuple(_PATTERNS), tuple(_PATTERNS.values()))[0]):
        plan = first.plan if chance.random() < 0.8 else _plan(chance)
        at_s = chance.uniform(*(_HOUR_LATER if number == 1 and chance.random() < 0.4 else _SOON))
        when = {"at_s": round(at_s, 1), "after": True} if number else {}
        commands.append(replace(first, verb=verb, plan=plan if verb == "up" else 0, ahead_s=_ahead_s(chance), **when))
    if chance.random() < 0.3:  # as far apart as two clocks can be
        ahead_s = chance.choice((-MOST_AHEAD_S, MOST_AHEAD_S))
        commands = [replace(item, ahead_s=ahead_s * (-1) ** number) for number, item in enumerate(commands)]
    place = chance.choice((0, 0, 0, 1, 2, 3, 3, 3))
    broken = [
        fault
        for number in range(len(commands) - 1)
        for fault in _break(chance, number, place if chance.random() < 0.7 else chance.randrange(6))
    ]
    return History(
        seed=seed,
        commands=tuple(commands),
        faults=(*broken, *_faults(chance, len(commands), (0, 0, 1))),
        events=_events(chance, len(commands), (0, 0, 0, 1)),
        late_s=_late(chance, 0.3, instance=0.8),
        boot_s=_boot_s(chance),
        end=_end(chance),
    )


def _break(chance, command, place):
    """A command that is interrupted, or loses a reply and is rejected at the next request."""
    if chance.random() < 0.15:
        return [_fault_at(chance, chance.choice(tuple(WRITE_FAULTS)), command, "writes", chance.randrange(20))]
    kind = chance.choice(_ENDING_KINDS if chance.random() < 0.6 else _DOUBTFUL_KINDS)
    among, at = ("changes", place) if chance.random() < 0.5 else ("creations", min(place, 2))
    found = [_fault_at(chance, kind, command, among, at)]
    if kind in _DOUBTFUL_KINDS and chance.random() < 0.35:
        found.append(_fault_at(chance, chance.choice(("denied", "killed before")), command, among, at + 1))
    return found


def _updated(chance, seed):
    """A serving machine, then updates and rollbacks, perhaps by two users at once."""
    first = Command(user=0, verb="up", name=NAMES[0], at_s=0.0, plan=chance.choice((0, 0, 3, 4)), waits=True)
    second = _next(chance, first, "up")
    commands = [first, replace(second, plan=chance.choice([plan for plan in (0, 4, 5) if plan != first.plan]))]
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        verb = chance.choice(("up", "up", "up", "rollback", "rollback", "rollback", "down", "extend", "gc"))
        commands.append(_next(chance, commands[-1], verb))
    faults = [
        fault
        for _ in range(chance.choice((0, 1, 1, 1, 2)))
        for fault in _break(chance, chance.randrange(1, len(commands)), chance.randrange(7))
    ]
    faults.extend(_faults(chance, len(commands), (0, 0, 1)))
    if chance.random() < 0.3:
        faults = [_machine_fault(chance, 1)]
    elif chance.random() < 0.3:
        faults.append(_machine_fault(chance, chance.randrange(1, len(commands))))
    return History(
        seed=seed,
        commands=tuple(commands),
        faults=tuple(faults),
        events=_events(chance, len(commands), (0, 0, 0, 1)),
        late_s=_late(chance, 0.25, instance=0.4),
        boot_s=_boot_s(chance),
        ending_s=_ending_s(chance),
        end=_end(chance),
    )


def _lost(chance, seed):
    """A machine that dies or is reclaimed, before it serves or later, and what replaces it."""
    first = Command(user=0, verb="up", name=NAMES[0], at_s=0.0, plan=chance.choice((1, 1, 0)), waits=True)
    commands = [replace(first, heals=chance.random() < 0.6)]
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        following = _next(chance, commands[-1], chance.choice(("up", "up", "up", "rollback", "extend", "down", "gc")))
        again = following.verb == "up" and chance.random() < 0.7
        heals = following.verb == "up" and chance.random() < 0.6
        commands.append(replace(following, plan=first.plan if again else following.plan, heals=heals))
    notices = tuple(
        Event(kind="spot notice", at_s=round(chance.uniform(0, 400), 1), command=chance.randrange(len(commands)))
        for _ in range(chance.choice((1, 1, 2)))
    )
    dying = chance.choice((0, 1, 1, 2)) if first.plan == 0 else chance.choice((0, 0, 1))
    faults = tuple(
        _fault_at(chance, "dies at start", chance.randrange(len(commands)), "machines", number)
        for number in range(dying)
    )
    return History(
        seed=seed,
        commands=tuple(commands),
        faults=(*faults, *_faults(chance, len(commands), (0, 0, 1))),
        events=notices,
        late_s=_late(chance, 0.2, instance=0.4),
        boot_s=_boot_s(chance),
        ending_s=_ending_s(chance),
        end=_end(chance),
    )


def _troubled(chance, seed):
    """A running machine, and commands, some of which are denied, throttled or can't reach the account."""
    first = Command(user=0, verb="up", name=NAMES[0], at_s=0.0, plan=chance.choice((0, 0, 1, 4)), waits=True)
    commands, events = [first], []
    for number in range(1, chance.choice((2, 3, 3, 4))):
        verb = chance.choice(("up", "up", "down", "down", "down", "extend", "extend", "extend", "stop", "start", "gc"))
        following = _next(chance, commands[-1], verb)
        commands.append(replace(following, plan=first.plan) if chance.random() < 0.5 and verb == "up" else following)
        kind = chance.choice(("forbidden", "forbidden", "forbidden", "unreachable", "throttling"))
        actions = ("create_tags",) if verb == "extend" else ACTIONS
        where = chance.choice(actions) if kind == "forbidden" else REGIONS[0]
        began_s, length_s = chance.choice((0.0, 0.0, chance.uniform(0, 20))), chance.choice((20, 120, 300))
        trouble = Event(kind=kind, at_s=round(began_s, 1), command=number, seconds=length_s, where=where)
        events.extend([trouble] if chance.random() < 0.7 else [])
    return History(
        seed=seed,
        commands=tuple(commands),
        faults=_faults(chance, len(commands), (0, 0, 1)),
        events=tuple(events),
        late_s=_late(chance, 0.1, instance=0.3),
        boot_s=_boot_s(chance),
        ending_s=_ending_s(chance),
    )


def _paused(chance, seed):
    """A machine that is stopped and started by different users, with interruptions."""
    commands = [Command(user=0, verb="up", name=NAMES[0], at_s=0.0, plan=chance.choice((0, 0, 2, 3, 4)), waits=True)]
    for number in range(chance.choice((1, 2, 2, 3, 3))):
        verbs = ("stop",) if number == 0 else ("start", "start", "start", "up", "up", "stop", "restart", "down", "gc")
        commands.append(_next(chance, commands[-1], chance.choice(verbs)))
    if chance.random() < 0.15:
        commands[1] = replace(commands[1], verb="restart")
    faults = [
        fault
        for _ in range(chance.choice((0, 1, 1, 2)))
        for fault in _break(chance, chance.randrange(1, len(commands)), chance.choice((0, 0, 0, 1, 2)))
    ]
    return History(
        seed=seed,
        commands=tuple(commands),
        faults=(*faults, *_faults(chance, len(commands), (0, 0, 1))),
        events=_events(chance, len(commands), (0, 0, 1)),
        late_s=_late(chance, 0.1, instance=0.4),
        boot_s=_boot_s(chance),
        ending_s=_ending_s(chance),
    )


def _next(chance, command, verb):
    """The next command on the same name: by the same user afterwards, or by another one meanwhile."""
    after = chance.random() < 0.85
    return replace(
        command,
        user=command.user if after else 1 - command.user,
        verb=verb,
        plan={"up": chance.choice((0, 4, 4, 5, 5)), "extend": chance.randrange(5)}.get(verb, 0),
        after=after,
        at_s=round(chance.choice((5.0, 60.0, 1200.0)) * chance.uniform(0.3, 1) + (0.0 if after else 150.0), 1),
        ahead_s=_ahead_s(chance),
        waits=chance.random() < 0.9,
        recreates=chance.random() < 0.45,
    )


def _ending(chance, seed):
    """A machine close to its limit: what others do, with different clocks, and how its owner extends it."""
    first = replace(_command(chance, 1, "up", 0.0), plan=chance.choice((0, 0, 0, 1, 2, TWO_REGIONS)), waits=False)
    end_s = 1800.0 if first.plan in {1, 2} and chance.random() < 0.7 else 7200.0
    near_s = end_s + first.ahead_s + chance.uniform(-MOST_AHEAD_S, 60)
    near_s = near_s if chance.random() < 0.7 else chance.uniform(300, near_s)
    extension = replace(
        first, verb="extend", plan=chance.choice((1, 1, 2, 3, 4, 0)), at_s=round(chance.uniform(300, end_s - 300), 1)
    )
    later = Command(
        user=chance.choice((0, 1, 1)),
        verb=chance.choice(("gc", "gc", "gc", "gc", "up", "down", "extend")),
        name=first.name,
        at_s=round(near_s, 1),
        ahead_s=chance.choice((-MOST_AHEAD_S, MOST_AHEAD_S, MOST_AHEAD_S)),
    )
    commands = (first, extension, later) if chance.random() < 0.4 else (first, later)
    kind = chance.choice(("denied", "denied", "cut", "lost", "dropped"))
    faults = [_fault_at(chance, kind, 1, "changes", 0)] if chance.random() < 0.4 else []
    return History(
        seed=seed,
        commands=commands,
        faults=(*faults, *_faults(chance, len(commands), (0, 0, 0, 1))),
        boot_s=_boot_s(chance),
        end=_end(chance),
    )


def _unsettled(chance, seed):
    """Resources become visible late, and their user continues at once; perhaps after a request an hour before."""
    first = replace(_command(chance, 1, "up", 0.0), waits=False)
    soon_s, ending = round(chance.uniform(0.4, 15), 1), chance.choice(("killed after", "killed in flight"))
    if chance.random() < 0.5:
        other = chance.choice([plan for plan in (0, 1, 2, 1, 2, 4) if plan != first.plan])
        commands = (first, replace(first, plan=other, after=True, at_s=soon_s))
        faults = (_fault_at(chance, ending, 0, "creations", 2),)
    else:
        hour_later = replace(first, after=True, at_s=round(chance.uniform(*_HOUR_LATER), 1), ahead_s=_ahead_s(chance))
        verb = chance.choice(("down", "down", "up"))
        plan = first.plan if verb == "up" else 0
        commands = (first, hour_later, replace(first, verb=verb, plan=plan, after=True, at_s=soon_s))
        first_try = _fault_at(chance, "killed before", 0, "creations", chance.choice((0, 0, 1, 2)))
        faults = (first_try, _fault_at(chance, ending, 1, "creations", 0))
    return History(
        seed=seed,
        commands=commands,
        faults=(*faults, *_faults(chance, len(commands), (0, 0, 0, 1))),
        late_s={**_late(chance, 0.6), "instance": round(chance.uniform(LATEST_S / 2, LATEST_S), 1)},
        boot_s=_boot_s(chance),
        end=_end(chance),
    )


def _race(chance, seed):
    """Two users of one name, at once or while the first one waits."""
    first = replace(_command(chance, 1, "up", 0.0), name=NAMES[0])
    later_s = round(chance.choice((chance.uniform(0, 10), chance.uniform(10, 60), chance.uniform(60, 130))), 1)
    ahead_s = chance.choice((MOST_AHEAD_S, _ahead_s(chance)))
    second = replace(first, user=1, at_s=later_s, ahead_s=ahead_s, plan=_plan(chance))
    if chance.random() < 0.2:
        second = replace(second, verb="gc", plan=0, at_s=round(chance.uniform(0, 60), 1))
    kinds = ("lost", "lost", "lost", "killed after", "cut", "killed in flight")
    faults = tuple(
        _fault_at(chance, chance.choice(kinds), 0, "changes", chance.choice((0, 1, 2, 2, 3)))
        for _ in range(chance.choice((0, 1, 1, 2)))
    )
    return History(
        seed=seed,
        commands=(first, second),
        faults=faults,
        events=_events(chance, 2, (0, 0, 1)),
        late_s=_late(chance, 0.25, instance=0.4),
        boot_s=_boot_s(chance),
    )


def _update_race(chance, seed):
    """A serving machine that two users update to different specs at the same time."""
    first = Command(user=0, verb="up", name=NAMES[0], at_s=0.0, waits=True)
    one, other = chance.sample((4, 5), 2)
    recreates = [chance.random() < 0.6 for _ in range(2)]
    mine = replace(first, plan=one, recreates=recreates[0])
    rival = replace(
        first, user=chance.choice((1, SECOND_HOME)), plan=other, recreates=recreates[1], ahead_s=_ahead_s(chance)
    )
    later_s = round(chance.choice((chance.uniform(0, 5), chance.uniform(0, 30), chance.uniform(30, 200))), 1)
    later, sooner = chance.sample((mine, rival), 2)
    faults = [
        fault
        for _ in range(chance.choice((0, 0, 1, 1, 2)))
        for fault in _break(chance, chance.choice((2, 3)), chance.choice((0, 0, 1, 2)))
    ]
    return History(
        seed=seed,
        commands=(first, replace(rival, verb="copy", after=True), replace(later, after=True, at_s=later_s), sooner),
        faults=(*faults, *(fault for fault in _faults(chance, 4, (0, 0, 1)) if fault.command)),
        events=_events(chance, 4, (0, 0, 0, 1)),
        late_s=_late(chance, 0.25, instance=0.4),
        boot_s=_boot_s(chance),
        ending_s=_ending_s(chance),
    )


def _race_apart(chance, seed):
    """Two users of one name whose machines are in two regions, by choice or for lack of capacity."""
    first = replace(_command(chance, 1, "up", 0.0), name=NAMES[0], plan=TWO_REGIONS)
    second = replace(first, user=1, at_s=round(chance.uniform(0, 40), 1), ahead_s=_ahead_s(chance))
    events = (Event(kind="no capacity", at_s=0.0, seconds=round(chance.uniform(3, 40), 1), where=REGIONS[0]),)
    if chance.random() < 0.6:
        second, events = replace(second, plan=FROM_THERE, at_s=round(chance.uniform(0, 12), 1)), ()
    return History(
        seed=seed,
        commands=(first, second),
        faults=_faults(chance, 2, (0, 0, 0, 1)),
        events=events,
        late_s=_late(chance, 0.4, instance=0.3),
        boot_s=_boot_s(chance),
    )


def _commands(chance):
    """One to five commands of one to three users, most of them on one name, at the same time or one after the other."""
    users = chance.choice((1, 1, 2, 2, 3))
    pause_s = chance.choice((3.0, 60.0, 600.0, 4000.0, 7000.0))
    made = [_command(chance, users, "up", 0.0)]
    at_s = 0.0
    for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4))):
        at_s += chance.uniform(0, pause_s)
        if chance.random() < 0.7:
            made.append(_following(chance, made[-1], again=chance.random() < 0.55))
        else:
            verb = chance.choice(("up", "up", "up", "down", "down", "gc", "extend", "rollback"))
            made.append(_command(chance, users, verb, round(at_s, 1)))
    return tuple(made)


def _following(chance, command, *, again):
    """The same user's next command: the same again, perhaps with other options, or another one."""
    verb = command.verb if again else chance.choice(("down", "down", "down", "up", "up", "gc", "extend", "rollback"))
    plan = _plan(chance) if chance.random() < 0.2 else command.plan
    at_s = chance.choice((20.0, 20.0, 20.0, 4000.0)) * chance.uniform(0.02, 1)
    return replace(
        command,
        verb=verb,
        at_s=round(at_s, 1),
        after=True,
        plan=plan if verb == "up" else chance.randrange(5) if verb == "extend" else 0,
        ahead_s=_ahead_s(chance),
    )


def _plan(chance):
    return chance.choice(_PLANS)


def _command(chance, users, verb, at_s):
    return Command(
        user=chance.randrange(users),
        verb=verb,
        name=chance.choice((NAMES[0], NAMES[0], NAMES[0], NAMES[1])),
        at_s=at_s,
        plan=_plan(chance) if verb == "up" else chance.randrange(5) if verb == "extend" else 0,
        ahead_s=_ahead_s(chance),
        waits=chance.random() < 0.4,
    )


def _ahead_s(chance):
    return chance.choice(
        (0.0, 0.0, 0.0, -MOST_AHEAD_S, MOST_AHEAD_S, round(chance.uniform(-MOST_AHEAD_S, MOST_AHEAD_S), 1))
    )


def _boot_s(chance):
    return round(chance.uniform(1, 60), 1)


def _ending_s(chance):
    return round(chance.choice((1, 10, 60, 240, 1500)) * chance.uniform(0.5, 1), 1)


def _end(chance):
    return chance.choice(("again", "again", "leave"))


def _late(chance, share, **shares):
    """Return how late resources become visible, by kind; only that share of the kinds is late."""
    return {kind: round(chance.uniform(0, LATEST_S), 1) for kind in KINDS if chance.random() < shares.get(kind, share)}


def _faults(chance, commands, numbers):
    return tuple(_fault(chance, commands) for _ in range(chance.choice(numbers)))


def _events(chance, commands, numbers):
    return tuple(_event(chance, commands) for _ in range(chance.choice(numbers)))


def _fault(chance, commands):
    command, what = chance.randrange(commands), chance.random()
    if what < 0.1:
        return _machine_fault(chance, command)
    among = "writes" if what < 0.25 else chance.choice(("requests", "changes", "creations", "looks"))
    known = WRITE_FAULTS if among == "writes" else CALL_FAULTS
    kind = chance.choices(tuple(known), tuple(known.values()))[0]
    return _fault_at(chance, kind, command, among, chance.choice(_STRIKES[among]))


def _machine_fault(chance, command):
    kind = chance.choices(tuple(MACHINE_FAULTS), tuple(MACHINE_FAULTS.values()))[0]
    return _fault_at(chance, kind, command, "machines", chance.choice(_STRIKES["machines"]))


def _fault_at(chance, kind, command, among, at):
    seconds = round(_SECONDS.get(kind, 0.0) * chance.random(), 1)
    return Fault(kind=kind, command=command, among=among, at=at, seconds=seconds)


def _event(chance, commands):
    kind = chance.choices(tuple(EVENTS), tuple(EVENTS.values()))[0]
    somewhere = (REGIONS[0], REGIONS[0], REGIONS[1])
    places = {
        "no capacity": (*somewhere, "us-east-1a", "us-east-1b"),
        "no quota": somewhere,
        "unreachable": somewhere,
        "throttling": somewhere,
        "stranger": NAMES,
        "forbidden": ACTIONS,
    }
    return Event(
        kind=kind,
        at_s=round(chance.choice((0.0, chance.uniform(0, 60), chance.uniform(0, 3000))), 1),
        command=chance.randrange(commands) if chance.random() < 0.7 else None,
        seconds=round(chance.choice((20, 120, 900)) * chance.uniform(0.3, 1), 1),
        where=chance.choice(places.get(kind, ("",))),
    )


_SHAPES = {
    _interrupted: 22,
    _updated: 22,
    _unsettled: 8,
    _paused: 9,
    _lost: 8,
    _troubled: 11,
    _ending: 13,
    _race: 13,
    _race_apart: 6,
    _update_race: 9,
    _mixed: 13,
}


def as_json(history):
    return msgspec.json.format(msgspec.json.encode(history), indent=1).decode() + "\n"


def from_json(text):
    return msgspec.json.decode(text, type=History)
