"""Seeded random faults: `up` (often killed), `up` again and `down`, with randomly failing calls."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from disruptions.matrix import AT_MOMENT, DOWN, MOMENTS, NAME, SIGNALS, UP

WEATHER = {"throttle": 0.3, "lost_reply": 0.1, "capacity": 0.2, "not_found": 0.1}
HURRY = 20.0
_TRIES = 4
_KILLED = 0.5
_LAST_CALL = 45


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: `calls` were made in all, `repeated` commands had to be repeated, `ready` if an `up` succeeded."""

    seed: int
    calls: int
    repeated: int
    ready: bool
    calm_needed: bool
    seconds: float
    failures: tuple[str, ...]


def weather(program, seed):
    program.calm()
    program.fault(name="dark", times=1_000_000)
    program.fault(name="storm", seed=seed, **WEATHER)


def try_run(program, account, seed):
    begun = time.monotonic()
    program.empty()
    trial = _Trial(program, account, seed)
    trial.run()
    return Run(
        seed=seed,
        calls=trial.calls,
        repeated=trial.repeated,
        ready=trial.ready,
        calm_needed=trial.calm_needed,
        seconds=time.monotonic() - begun,
        failures=tuple(trial.failures),
    )


class _Trial:
    def __init__(self, program, account, seed):
        self.program, self.account, self.seed = program, account, seed
        self.chance = random.Random(f"storm {seed}")  # noqa: S311 -- weather, no secret
        self.failures, self.calls, self.repeated = [], 0, 0
        self.ready = self.calm_needed = False
        self.most = 0

    def run(self):
        weather(self.program, self.seed)
        if self.chance.random() < _KILLED:
            self._interrupted_up()
        self._up()
        self._down()

    def _said(self, *words):
        self.program.forget_calls()
        result = self.program.run(*words, hurry=HURRY)
        self.calls += len(self.program.calls())
        alive = self.account.alive()
        if len(alive) > 1:
            self.failures.append(f"{len(alive)} machines at once; {result.summary()}")
        if result.code is None or result.error == "internal_error":
            self.failures.append(f"it hung or crashed; {result.summary()}")
        return result

    def _interrupted_up(self):
        self.program.fault(
            name="signal",
            signal=self.chance.choice(SIGNALS),
            skip=self.chance.randrange(_LAST_CALL),
            **AT_MOMENT[self.chance.choice(MOMENTS)],
        )
        self._said(*UP)

    def _up(self):
        for _ in range(_TRIES):
            weather(self.program, self.seed + 1000)
            result = self._said(*UP)
            if result.code == 0:
                self._check_up(result)
                return
            self.repeated += 1
            self.seed += 100_000

    def _check_up(self, result):
        self.ready = True
        alive = self.account.alive()
        if len(alive) != 1:
            self.failures.append(f"up said yes, and there are {len(alive)} machines; {result.summary()}")

    def _down(self):
        for _ in range(_TRIES):
            result = self._said(*DOWN)
            if result.code == 0:
                break
            self.repeated += 1
        else:
            self.calm_needed = True
            self.program.calm()
            result = self._said(*DOWN)
        left = self.account.leftovers()
        if result.code != 0 or left:
            self.failures.append(f"{NAME}: left after down: {left}; {result.summary()}")
