"""Virtual time, and who runs: programs are threads that hand each other one baton, so only one runs at any moment.

Time passes where a program waits: at each cloud call and each pause. The program that wakes first goes on; of two that
wake at once, the one that began to wait first. So a run depends on its history alone. Threads need no library, and
let the product's plain blocking code run as it is; greenlet would need a compiled package for the same.
"""

from __future__ import annotations

import heapq
from itertools import count
from math import inf, nextafter
from threading import Lock, Thread

LONGEST_S = 90 * 86_400.0


class Killed(BaseException):
    """The program is dead, as by SIGKILL: nothing of the product may catch it, or do anything more."""


class Endless(BaseException):
    """The history does not end: a program waits for ever."""


class Schedule:
    """`now` is the seconds that have passed. Programs are added before `run`."""

    def __init__(self):
        self.now = 0.0
        self.steps = 0
        self._numbers = count()
        self._waiting = []
        self._idle = Lock()
        self._idle.acquire()
        self._failure = None

    def add(self, at_s, body):
        """Have `body(task)` begin at `at_s`."""
        gate = Lock()
        gate.acquire()
        thread = Thread(target=self._begin, args=(gate, body), daemon=True)
        heapq.heappush(self._waiting, (at_s, next(self._numbers), gate))
        thread.start()

    def run(self):
        """Go on until every program has ended."""
        self._next()
        self._idle.acquire()
        if self._failure is not None:
            raise self._failure

    def sleep(self, gate, seconds):
        """Let that much time pass for the program of `gate`."""
        wake = max(self.now + seconds, nextafter(self.now, inf))  # however short a pause is, time passes
        if wake > LONGEST_S:
            raise Endless(f"a program waits until day {wake / 86_400:.0f}")
        if not self._waiting or wake < self._waiting[0][0]:
            self.now = wake
            return
        heapq.heappush(self._waiting, (wake, next(self._numbers), gate))
        self._next()
        gate.acquire()

    def _begin(self, gate, body):
        gate.acquire()
        try:
            body(gate)
        except BaseException as error:  # noqa: BLE001 -- a defect of the simulator: `run` raises it
            self._failure = self._failure or error
        self._next()

    def _next(self):
        if not self._waiting:
            self._idle.release()
            return
        self.now, _, gate = heapq.heappop(self._waiting)
        gate.release()
