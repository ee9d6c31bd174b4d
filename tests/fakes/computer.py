"""A computer with fakes: an in-memory cloud, a manual clock, and the real store on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from builders.logs import GRAMMAR
from builders.plans import VERSION, candidate, instance_type, offer, profile
from fakes.cloud import BEGINNING, FakeWorld

from tgi_deploy.operations.context import Context
from tgi_deploy.operations.deploying.up import UpRequest
from tgi_deploy.readiness.waiting import Probe
from tgi_deploy.reconcile.retry import Pace
from tgi_deploy.state.local import LocalStore
from tgi_deploy.targets.docker.target import docker_target
from tgi_deploy.targets.ec2.options import Ec2Options
from tgi_deploy.targets.ec2.target import Ec2Target
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.plan import Plan
from tgi_deploy.values.probing import HttpReply, ProbeRequest
from tgi_deploy.values.request import Request
from tgi_deploy.wiring import engine_named, open_catalog

if TYPE_CHECKING:
    from tgi_deploy.targets.ec2.survey import Survey
    from tgi_deploy.targets.protocol import Target

if TYPE_CHECKING:
    from tgi_deploy.errors import Problem


@dataclass
class FakeClock:
    """`seconds` have passed; `ahead_s` is the error of the wall clock."""

    seconds: float = 0.0
    ahead_s: float = 0.0

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.seconds + self.ahead_s)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.seconds += seconds


@dataclass
class Recorder:
    """A reporter and listener that records events."""

    lines: list[str] = field(default_factory=list)

    def step(self, step: Any, outcome: str) -> None:
        self.lines.append(f"{outcome} {step.action} {step.key}")

    def note(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, problem: Problem) -> None:
        self.lines.append(f"{problem.code} {problem.message}")

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:
        self.lines.append(phase)

    def line(self, text: str) -> None:
        self.lines.append(text)


@dataclass
class FakeEngine:
    """Serves what the plan promised by default."""

    model_id: str = "example-org/example-13b"

    def ask(self, probe: ProbeRequest) -> HttpReply:
        if probe.streamed:
            token = '{"token":{"text":"yes"},"generated_text":null}'
            last = '{"token":{"text":"."},"generated_text":"yes."}'
            return HttpReply(status=200, events=(token, last), arrivals_ms=(1.0,))
        return HttpReply(status=200, body=self._body(probe))

    def _body(self, probe: ProbeRequest) -> Any:
        if probe.step == "info":
            limits = {"max_input_tokens": 8191, "max_total_tokens": 8192}
            return {"model_id": self.model_id, "version": VERSION, **limits}
        if probe.step == "chat":
            return {"choices": [{"message": {"role": "assistant", "content": "yes"}}]}
        return {"generated_text": "yes", "details": {"generated_tokens": 1}}


@dataclass
class FakeComputer:
    """A user's computer. `context()` returns the context of a new process, which shares only `world` and the files."""

    home: Any
    world: FakeWorld = field(default_factory=FakeWorld)
    clock: FakeClock = field(default_factory=FakeClock)
    recorder: Recorder = field(default_factory=Recorder)
    engine: FakeEngine = field(default_factory=FakeEngine)
    probe: Probe = field(default_factory=lambda: Probe(outcome="status", status=200))
    ids: int = 0
    owner: str = "ann@laptop"

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.home)

    def context(self, **changes: Any) -> Context:
        values: dict[str, Any] = {
            "store": self.store,
            "clock": self.clock,
            "reporter": self.recorder,
            "listener": self.recorder,
            "targets": self.targets(),
            "cloud": self.world.cloud,
            "probe": lambda _url: self._answer(),
            "engine": engine_named,
            "engine_client": lambda _url: self.engine,
            "log_grammar": lambda _engine: GRAMMAR,
            "regions": ("us-east-1",),
            "version": "0.1.0",
            "command": "test",
            "new_id": self._new_id,
            "owner": self.owner,
            "loopback": True,
            "pace": Pace(at_once=1),
        }
        return Context(**(values | changes))

    def _answer(self) -> Probe:
        """Return the engine's answer; there is none while its machine restarts."""
        if self.world.silent_looks:
            self.world.silent_looks -= 1
            return Probe(outcome="refused")
        return self.probe

    def targets(self, *, survey: Survey | None = None, region: Any = None) -> tuple[Target, ...]:
        """Return both targets: machines in the in-memory cloud, and an unreachable Docker host."""
        return fake_ec2(region or self.world.cloud, survey=survey), docker_target({})

    def _new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids:06d}"


def planner_request(**changes: Any) -> Request:
    values: dict[str, Any] = {
        "model": profile(),
        "engine_version": VERSION,
        "input_tokens": 1024,
        "output_tokens": 256,
        "concurrency": 8,
        "context_tokens": 8192,
        "budget_usd_per_hour": Decimal(5),
        "regions": ("us-east-1",),
    }
    return Request(**(values | changes))


def plan(*fallbacks: Any, chosen: Any = None, **request: Any) -> Plan:
    return Plan(
        request=planner_request(**request),
        chosen=chosen or candidate(),
        fallbacks=fallbacks,
        rejections=(),
        considered=1,
        assumptions=(),
        notices=(),
        catalog_date="2026-01-09",
    )


def on(name: str, *, region: str = "us-east-1", quota: str | None = None, **changes: Any) -> Any:
    """Return a candidate on another type, region or market."""
    kind = instance_type(name=name, quota_on_demand=quota)
    return candidate(offer=offer(instance_type=kind, region=region, **changes))


def fake_ec2(region: Any, *, survey: Survey | None = None) -> Ec2Target:
    return Ec2Target(
        region=region,
        survey=survey,
        catalog=open_catalog,
        default_region=lambda: "us-east-1",
        caller_cidr=lambda: "203.0.113.7/32",
    )


ENDS = WantedEnds.__struct_fields__


def request(wanted: Plan | None = None, **changes: Any) -> UpRequest:
    asked = changes.pop("settings", {})
    ends = WantedEnds(**{name: value for name, value in asked.items() if name in ENDS})
    own = {name: value for name, value in asked.items() if name not in ENDS}
    values: dict[str, Any] = {
        "plan": wanted or plan(),
        "target": "ec2",
        "options": Ec2Options(**own),
        "ends": ends,
        "environ": {},
        "confirm": lambda _proposal: True,
        "on_failure": lambda _error: "remove",
        "name": "demo",
        "wait": False,
    }
    return UpRequest(**(values | changes))
