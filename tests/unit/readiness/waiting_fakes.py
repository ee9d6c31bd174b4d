"""Fakes for waiting: a clock that only moves when asked, and a world that follows a script."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from builders.logs import GRAMMAR

from tgi_deploy.readiness.deadlines import PhaseDeadline
from tgi_deploy.readiness.waiting import Probe, WaitSettings, wait_until_ready
from tgi_deploy.values.resource import MachineState

RUNNING = MachineState(state="running", address="http://127.0.0.1:8080")
PENDING = MachineState(state="pending")
REFUSED = Probe(outcome="refused")
RESET = Probe(outcome="reset")
TIMEOUT = Probe(outcome="timeout")
OK = Probe(outcome="status", status=200)
SICK = Probe(outcome="status", status=503)

DEADLINES = (
    PhaseDeadline(phase="launching", expected_s=40, deadline_s=100),
    PhaseDeadline(phase="booting", expected_s=60, deadline_s=200),
    PhaseDeadline(phase="pulling", expected_s=100, deadline_s=300),
    PhaseDeadline(phase="downloading", expected_s=50, deadline_s=150),
    PhaseDeadline(phase="loading", expected_s=30, deadline_s=90),
    PhaseDeadline(phase="warming_up", expected_s=20, deadline_s=60),
    PhaseDeadline(phase="ready", expected_s=5, deadline_s=20),
)

BOOT = "[tgi-deploy] phase=booting\n"
PULL = BOOT + "[tgi-deploy] phase=pulling image=tgi:3.3.7\n"
ENGINE = PULL + "[tgi-deploy] phase=starting-engine\nStarting check and download process for m/m\n"
LOAD = ENGINE + "Starting shard rank=0\n"
WARM = LOAD + "Shard ready in 9.1s rank=0\nStarting Webserver\nKV-cache blocks: 9000, size: 1\n"
UP = WARM + "router: Connected\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory.\n"
EXIT = "[tgi-deploy] phase=engine-exited code=1\n"


@dataclass
class FakeClock:
    seconds: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return datetime(2026, 1, 9, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.seconds += seconds


@dataclass
class World:
    """From a second on: machine, console, probe. A console that is an exception is raised."""

    clock: FakeClock
    machines: list[tuple[float, Any]] = field(default_factory=lambda: [(0, RUNNING)])
    consoles: list[tuple[float, Any]] = field(default_factory=lambda: [(0, "")])
    probes: list[tuple[float, Any]] = field(default_factory=lambda: [(0, REFUSED)])
    probe_takes_s: float = 0.0
    asked: list[str] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.seconds

    def machine(self) -> MachineState:
        self.looks.append("machine")
        return self._at(self.machines)

    def console(self) -> str:
        self.looks.append("console")
        text = self._at(self.consoles)
        if isinstance(text, Exception):
            raise text
        return text

    def probe(self, address: str) -> Probe:
        self.asked.append(address)
        self.clock.seconds += self.probe_takes_s
        return self._at(self.probes)

    def _at(self, script):
        elapsed = self.clock.seconds - self.started
        return [value for since, value in script if since <= elapsed][-1]


@dataclass
class Recorder:
    phases: list[tuple[str, str, float, float]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:
        self.phases.append((phase, detail, elapsed_s, expected_s))

    def line(self, text: str) -> None:
        self.lines.append(text)

    def order(self) -> list[str]:
        names = [phase for phase, *_ in self.phases]
        return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


@dataclass
class Story:
    world: World
    recorder: Recorder

    @property
    def elapsed_s(self) -> float:
        return self.world.clock.seconds - self.world.started

    def wait(self, deadlines=DEADLINES, **settings):
        return wait_until_ready(
            self.world,
            deadlines,
            grammar=GRAMMAR,
            clock=self.world.clock,
            listener=self.recorder,
            settings=WaitSettings(**({"poll_s": 5.0, "probe_s": 5.0, "settle_s": 3.0} | settings)),
        )


def story(**script) -> Story:
    return Story(world=World(clock=FakeClock(), **script), recorder=Recorder())
