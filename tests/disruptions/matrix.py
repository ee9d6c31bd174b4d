"""The kill matrix: a signal at every AWS call that `up` and `down` make, and what must hold after it.

A point is the n-th call of an action, a signal, and a moment: as the call arrives (`before`), when it has taken effect
and its reply is lost (`lost`), or as the reply is on its way (`after`).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass

NAME = "llama3-13b"
REQUEST = (NAME, "--budget", "5", "--ttl", "2h")
UP = ("up", *REQUEST, "--yes")
KEY = "DISRUPTIONS_API_KEY"
EVERYTHING = ("--api-key-from-env", KEY, "--external-ttl")
DOWN = ("down", NAME, "--yes")
SIGNALS = ("KILL", "INT", "TERM")
MOMENTS = ("before", "lost", "after")
INTERRUPTED = 130
AT_MOMENT = {"before": {}, "lost": {"after": True}, "after": {"replied": True}}


@dataclass(frozen=True, kw_only=True)
class Point:
    """`ordinal` counts the calls of `action` in one run from 0; `then` is what is run after it, before `down`.

    `everything`: with a secret, a role, a profile and a schedule beside the machine.
    """

    command: str
    action: str
    ordinal: int
    signal: str
    moment: str
    wait: bool = False
    everything: bool = False
    then: str = "up"

    def __str__(self):
        words = f"{self.command}{' waiting' if self.wait else ''}: {self.signal} {self.moment} {self.action}"
        return f"{words} #{self.ordinal + 1}, then {self.then}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """`struck`: the point was reached; `failures` are sentences, none when all held."""

    point: Point
    struck: bool
    seconds: float
    failures: tuple[str, ...]


def up_words(*, wait, everything=False):
    return (*UP, *(() if wait else ("--no-wait",)), *(EVERYTHING if everything else ()))


def record(program, *, wait=False, everything=False):
    """The calls of an undisturbed `up` and `down`, in order."""
    program.empty(boots=wait)
    recorded = {}
    for command, words in (("up", up_words(wait=wait, everything=everything)), ("down", DOWN)):
        program.forget_calls()
        said = program.run(*words)
        if said.code != 0:
            raise RuntimeError(f"an undisturbed {command}: {said.told()}")
        recorded[command] = program.calls()
    return recorded


def numbered(actions):
    """Each call with its ordinal among those of its action."""
    seen = Counter()
    for action in actions:
        yield action, seen[action]
        seen[action] += 1


def points(recorded, signals=SIGNALS, *, everything=False):
    """Every call with every signal and moment; and for what `up` makes, a `down` right after the kill."""
    found = [
        Point(command=command, action=action, ordinal=ordinal, signal=signal, moment=moment, everything=everything)
        for signal in signals
        for command, actions in recorded.items()
        for action, ordinal in numbered(actions)
        for moment in MOMENTS
    ]
    making = [
        Point(
            command="up",
            action=action,
            ordinal=ordinal,
            signal=signal,
            moment=moment,
            everything=everything,
            then="down",
        )
        for signal in signals
        for action, ordinal in numbered(recorded["up"])
        for moment in MOMENTS
        if changes(action)
    ]
    return (*found, *making)


def waiting_points(recorded, waited, signals=SIGNALS):
    """One point for each action that only waiting makes, or makes once more."""
    before = Counter(recorded["up"])
    beyond = sorted(
        {(action, before[action]) for action, count in Counter(waited["up"]).items() if count > before[action]}
    )
    return tuple(
        Point(command="up", action=action, ordinal=ordinal, signal=signal, moment=moment, wait=True)
        for signal in signals
        for action, ordinal in beyond
        for moment in MOMENTS
    )


def changes(action):
    return not action.startswith(("Describe", "Get", "List"))


def sample(everything, size, seed):
    """A seeded choice, every signal and moment of a changing call more likely than a look."""
    chance = random.Random(seed)  # noqa: S311 -- a sample, no secret
    ranked = sorted(everything, key=lambda point: chance.random() * (1 if changes(point.action) else 6))
    return tuple(ranked[:size])


def try_point(program, account, point):
    begun = time.monotonic()
    program.empty(boots=point.wait)
    trial = _Trial(program, account, point)
    struck = trial.strike()
    trial.go_on()
    return Result(point=point, struck=struck, seconds=time.monotonic() - begun, failures=tuple(trial.failures))


class _Trial:
    def __init__(self, program, account, point):
        self.program, self.account, self.point = program, account, point
        self.failures = []

    def expect(self, holds, what, said):
        if not holds:
            self.failures.append(f"{what}; {said.told()}")

    def strike(self):
        """The run that is hit. True when the signal was sent."""
        point, program = self.point, self.program
        if point.command == "down":
            said = program.run(*up_words(wait=False, everything=point.everything))
            self.expect(said.code == 0, "the first up failed", said)
        program.fault(
            name="signal", action=point.action, skip=point.ordinal, signal=point.signal, **AT_MOMENT[point.moment]
        )
        up = up_words(wait=point.wait, everything=point.everything)
        said = program.run(*(up if point.command == "up" else DOWN))
        struck = not any(fault.get("signal") for fault in program.control("GET", "faults")["faults"])
        self._clear()
        self._check_end(said, struck=struck)
        return struck

    def _clear(self):
        self.program.calm()
        if not self.point.wait:
            self.program.fault(name="dark", times=1_000_000)

    def _check_end(self, said, *, struck):
        killed = {-9} if self.point.signal == "KILL" else {INTERRUPTED}
        late = {0} if self.point.moment == "after" or self.point.signal != "KILL" else set()
        self.expect(said.code in (killed | late if struck else {0}), "a strange end", said)
        alive = self.account.alive()
        self.expect(len(alive) <= 1, f"{len(alive)} machines after the signal", said)
        if self.point.command == "up" and said.code == INTERRUPTED:
            fate = said.document.get("data", {}).get("fate", "nothing")
            left = self.account.leftovers()
            self.expect(fate in {"removed", "nothing", "ending"}, f"it was {fate}", said)
            self.expect(not alive, "a machine outlived the interruption", said)
            self.expect(fate == "ending" or not left, f"{fate}, and there is {left}", said)

    def go_on(self):
        if self.point.then == "up":
            self._again()
        said = self.program.run(*DOWN)
        self.expect(said.code == 0, "the last down failed", said)
        left = self.account.leftovers()
        self.expect(not left, f"left after down: {left}", said)
        launched = len(self.account.launched())
        self.expect(launched <= self._most(), f"{launched} machines were launched in all", said)

    def _again(self):
        said = self.program.run(*up_words(wait=self.point.wait, everything=self.point.everything))
        alive = self.account.alive()
        self.expect(said.code == 0, "the next up failed", said)
        self.expect(len(alive) == 1, f"{len(alive)} machines after up", said)

    def _most(self):
        """How many machines may have been made in all: a kill in `up` is gone on with, not begun again."""
        return 1 if (self.point.command, self.point.signal) == ("up", "KILL") else 2
