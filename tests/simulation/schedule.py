"""Virtual time and scheduling: programs are threads of which only one runs at any moment. Time passes when a program
waits, at each cloud call and each pause. The program that wakes first continues; of two that wake at once, the one that
began to wait first. So a run depends only on its history. Threads need no library, and run the program's blocking code
unchanged; greenlet would need a compiled package.
"""

from __future__ import annotations

import heapq
from itertools import count
from math import inf, nextafter
from threading import Lock, Thread

LONGEST_S = 90 * 86_400.0


class Killed(BaseException):
    """The program was killed, as by SIGKILL: its code must not catch this or do anything more."""


class Endless(BaseException):
    """The history does not end: a program waits forever."""


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
        """Start `body(task)` at `at_s`."""
        gate = Lock()
        gate.acquire()
        thread = Thread(target=self._begin, args=(gate, body), daemon=True)
        heapq.heappush(self._waiting, (at_s, next(self._numbers), gate))
        thread.start()

    def run(self):
        """Run until every program has ended."""
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
