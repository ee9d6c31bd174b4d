"""The kill matrix: a signal at every AWS call of a command, and the commands that finish its work.

A point is the n-th call of an action, a signal, and a moment: as the call arrives (`before`), when it has taken effect
and its reply is lost (`lost`), or as the reply is on its way (`after`).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

NAME = "llama3-13b"
SHARDS = {"small": 1, "large": 4}
OTHER = {"small": "large", "large": "small"}
KEY = "DISRUPTIONS_API_KEY"
SIGNALS = ("KILL", "INT", "TERM")
MOMENTS = ("before", "lost", "after")
# Among the calls of a run, a change of one of the program's files.
WRITE = "write"
AT_MOMENT = {"before": {}, "lost": {"after": True}, "after": {"replied": True}}


def request(spec):
    return (NAME, "--budget", "5", "--ttl", "48h", "--quantize", "none", "--num-shard", str(SHARDS[spec]))


def bring_up(spec, *more):
    return ("up", *request(spec), "--yes", *more)


UP = bring_up("small", "--no-wait")
UP_WITH_EVERYTHING = (*UP, "--api-key-from-env", KEY, "--external-ttl")
DOWN = ("down", NAME, "--yes")
ROLLBACK = ("rollback", NAME, "--yes")
EXTEND = ("extend", NAME, "--ttl", "72h", "--idle-timeout", "24h")
STOP, START, RESTART = ("stop", NAME, "--yes"), ("start", NAME, "--yes"), ("restart", NAME, "--yes")
# Commands that depend on what serves when they start.
UPDATE, RECREATE, KEEP = "update", "recreate", "keep"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A command that is interrupted, and by name, the commands that finish it.

    `before` runs first. `waits`: machines boot, and one of the specs serves; otherwise nothing exists. `most`: how many
    machines may be launched from its start until it is finished; `at_once`: how many may exist at a time. `settles`: if
    interrupted, it removes what it has created, faster after SIGTERM; other commands treat that signal like SIGINT.
    """

    words: tuple[str, ...] | str
    then: dict[str, tuple[tuple[str, ...] | str, ...]]
    waits: bool = False
    before: tuple[str, ...] = ()
    most: int = 2
    at_once: int = 1
    settles: bool = False


ON_BACK_OR_DOWN = {"on": (UPDATE,), "back": (KEEP,), "down": (DOWN,)}
OPERATIONS = {
    "up": Operation(words=UP, then={"up": (UP,), "down": (DOWN,)}, settles=True),
    "up with everything": Operation(
        words=UP_WITH_EVERYTHING, then={"up": (UP_WITH_EVERYTHING,), "down": (DOWN,)}, settles=True
    ),
    "down": Operation(words=DOWN, then={"up": (UP,), "down": (DOWN,)}, before=UP),
    "down of everything": Operation(
        words=DOWN, then={"up": (UP_WITH_EVERYTHING,), "down": (DOWN,)}, before=UP_WITH_EVERYTHING
    ),
    "update": Operation(words=UPDATE, then=ON_BACK_OR_DOWN, waits=True, at_once=2, settles=True),
    "recreation": Operation(
        words=RECREATE, then={"on": (RECREATE,), "back": (KEEP,), "down": (DOWN,)}, waits=True, settles=True
    ),
    "rollback": Operation(words=ROLLBACK, then=ON_BACK_OR_DOWN, waits=True, at_once=2, settles=True),
    "extend": Operation(words=EXTEND, then={"on": (EXTEND,), "down": (DOWN,)}, waits=True, most=0),
    "stop": Operation(words=STOP, then={"on": (STOP, START), "start": (START,), "down": (DOWN,)}, waits=True, most=0),
    "start": Operation(words=START, then={"on": (START,), "down": (DOWN,)}, waits=True, before=STOP, most=0),
    "restart": Operation(words=RESTART, then={"on": (RESTART,), "down": (DOWN,)}, waits=True, most=0),
}


def result(words, serving):
    """Return the command's arguments; `serving` is the spec that served when the operation began."""
    if words == UPDATE:
        return bring_up(OTHER[serving])
    if words == RECREATE:
        return bring_up(OTHER[serving], "--strategy", "recreate")
    return bring_up(serving) if words == KEEP else words


@dataclass(frozen=True, kw_only=True)
class Point:
    """`ordinal` counts the calls of `action` in one run from 0; `then` names what finishes the operation."""

    operation: str
    action: str
    ordinal: int
    signal: str
    moment: str
    then: str

    def __str__(self):
        return f"{self.operation}: {self.signal} {self.moment} {self.action} #{self.ordinal + 1}, then {self.then}"


def numbered(actions):
    """Yield each call with its ordinal among those of its action."""
    seen = Counter()
    for action in actions:
        yield action, seen[action]
        seen[action] += 1


def points(recorded, signals=SIGNALS):
    """Return the points of each operation with every signal.

    A changing call is interrupted at every moment, and finished in every way; a read only at one moment, because
    nothing is lost with its reply, and finished in the first way.
    """
    return tuple(
        Point(operation=name, action=action, ordinal=ordinal, signal=signal, moment=moment, then=then)
        for signal in signals
        for name, actions in recorded.items()
        if signal != "TERM" or OPERATIONS[name].settles
        for number, then in enumerate(OPERATIONS[name].then)
        for action, ordinal in places(actions, signal)
        for moment in MOMENTS
        if changes(action) or (number == 0 and moment == "before")
    )


def places(actions, signal):
    """Yield each call with its ordinal among those of its action, except those that are equivalent to an earlier one.

    After SIGKILL only the cloud and the files matter, so the first call after a change of either represents all until
    the next change. After other signals the program continues: all calls differ, except within a wait, which repeats
    one read or alternates between two.
    """
    calls = [action for action in actions if action != WRITE]
    places_of = list(numbered(calls))
    number, fresh = 0, True
    for action in actions:
        if action == WRITE:
            fresh = True
            continue
        around = (calls[max(0, number - turn) : number + turn + 1 : turn] for turn in (1, 2))
        alike = not fresh if signal == "KILL" else [action] * 3 in around
        if changes(action) or not alike:
            yield places_of[number]
        number, fresh = number + 1, changes(action)


def changes(action):
    return not action.startswith(("Describe", "Get", "List", "DryRun"))


def sample(everything, size, seed):
    """Return a seeded sample, in which changing calls are more likely than reads."""
    chance = random.Random(seed)  # noqa: S311 -- a sample, no secret
    ranked = sorted(everything, key=lambda point: chance.random() * (1 if changes(point.action) else 6))
    return tuple(ranked[:size])
