"""The use case `rehearse`: runs the real `up` and `down` against a private cloud with injected faults.

The timeline is simulated, not measured: calls take a second, terminating a machine takes a minute, and phases take as
long as planned, so the same seed gives the same timeline on any computer.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Protocol

from tgi_deploy.errors import DeployError, InputError
from tgi_deploy.operations.deploying.up import UpRequest, up
from tgi_deploy.operations.planning.no_plan import without_plan
from tgi_deploy.operations.planning.option_texts import wanted_ends
from tgi_deploy.operations.planning.plan import plan
from tgi_deploy.operations.removing.down import down
from tgi_deploy.planner.time_to_ready import estimate
from tgi_deploy.values.change_results import (
    EndingData,
    FaultData,
    LeftoverData,
    MomentData,
    RehearsalData,
    RehearsedMachine,
)
from tgi_deploy.values.ends import WantedEnds
from tgi_deploy.values.plan import NoFeasiblePlan
from tgi_deploy.values.resource import TAG_ID

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.errors import Problem
    from tgi_deploy.operations.context import Context
    from tgi_deploy.operations.planning.option_texts import OptionTexts
    from tgi_deploy.targets.protocol import Target
    from tgi_deploy.values.plan import Plan
    from tgi_deploy.values.resource import Step

_CALL_S: Final = 1.0
_END_S: Final = 60.0
_HOUR_S: Final = 3600
_MICRO: Final = Decimal("0.000001")
_DONE: Final = {"create": "created", "adopt": "adopted", "keep": "kept", "delete": "removed"}
_PASSING: Final = "; waiting"


class Scenario(Protocol):
    """A fault to rehearse. `machine_fault` is applied to the machine in the startup phase `at_phase`."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def at_phase(self) -> str: ...

    @property
    def machine_fault(self) -> Mapping[str, Any] | None: ...

    @property
    def delay_s(self) -> float: ...

    @property
    def market(self) -> str: ...


class Stage(Protocol):
    """The isolated cloud of a rehearsal."""

    @property
    def ids(self) -> re.Pattern[str]:
        """Return the pattern of its ids; the first group is their prefix."""

    def prepare(self, name: str, seed: int) -> tuple[str, ...]: ...

    def strike(self, name: str, instance_id: str) -> None: ...

    def calls(self) -> tuple[str, ...]: ...

    def running(self) -> tuple[str, ...]: ...


def chosen(names: Sequence[str], known: Sequence[Scenario]) -> list[Scenario]:
    """Return the faults with these names. Raises InputError `bad_option_value`."""
    by_name = {item.name: item for item in known}
    for name in names:
        if name not in by_name:
            close = get_close_matches(name[:100], by_name, n=2)
            hint = f"did you mean {' or '.join(close)}?" if close else f"one of: {', '.join(by_name)}"
            raise InputError("bad_option_value", f"unknown fault {name[:60]!r}", hint=hint)
    return [by_name[name] for name in dict.fromkeys(names)]


def plan_to_rehearse(
    texts: OptionTexts, catalog: Catalog, environ: Mapping[str, str], scenarios: Sequence[Scenario]
) -> Plan:
    """Return the plan to rehearse. Raises NoPlanError, InputError `not_rentable`, `fault_not_applicable`."""
    made = plan(texts, catalog, environ)
    if isinstance(made, NoFeasiblePlan):
        raise without_plan("rehearse", texts, made)
    if made.chosen.offer.market == "owned":
        raise InputError(
            "not_rentable",
            f"{made.chosen.offer.instance_type.name} is your own machine, and only cloud deployments can be rehearsed",
            hint="leave --hardware out",
        )
    check_market(made, scenarios)
    return made


def request_of(made: Plan, texts: OptionTexts, catalog: Catalog, target: Target, name: str | None) -> UpRequest:
    """Return the request for `up` with its usual limits, without confirmation, that keeps nothing after a failure."""
    return UpRequest(
        plan=made,
        target=target.name,
        options=target.options(),
        ends=WantedEnds(ttl_s=wanted_ends(texts, os.environ).lifetime_s(made.chosen.cost.usd_per_hour)),
        environ={},
        confirm=lambda _proposal: True,
        on_failure=lambda _error: "remove",
        versions=catalog.release(made.chosen.engine.version).reported_as,
        name=name,
    )


def check_market(plan: Plan, scenarios: Sequence[Scenario]) -> None:
    """Raise InputError `fault_not_applicable` if the fault does not exist in the market of the plan's machine."""
    market = plan.chosen.offer.market
    for scenario in scenarios:
        if scenario.market and scenario.market != market:
            raise InputError(
                "fault_not_applicable",
                f"{scenario.name} cannot happen to this plan: its machine is {market}, not {scenario.market}",
                hint=f"add --market {scenario.market}, or leave the fault out",
            )


def rehearse(
    context: Context, stage: Stage, request: UpRequest, scenarios: Sequence[Scenario], *, seed: int
) -> RehearsalData:
    """Run `up` with the faults, then `down` if `up` left a record, and check that nothing is left."""
    name = request.deployment_name
    timeline = Timeline(context=context, stage=stage, plan=request.plan, name=name, scenarios=tuple(scenarios))
    observed = replace(context, reporter=timeline, listener=timeline)
    for scenario in scenarios:
        timeline.record("fault", f"{scenario.name}: {scenario.description}")
        for sentence in stage.prepare(scenario.name, seed):
            timeline.record("fault", sentence)
    endings = [timeline.play("up", lambda: up(observed, request))]
    if context.store.load(name) is not None:
        endings.append(timeline.play("down", lambda: down(observed, [name], lambda _removals: True)))
    timeline.end_machines()
    left, offer = _left(context, stage), request.plan.chosen.offer
    return RehearsalData(
        name=name,
        model=request.plan.chosen.engine.settings.model_id,
        machine=RehearsedMachine(instance_type=offer.instance_type.name, region=offer.region, market=offer.market),
        seed=seed,
        faults=tuple(FaultData(name=item.name, description=item.description) for item in scenarios),
        timeline=tuple(timeline.moments),
        calls=dict(sorted(Counter(stage.calls()).items())),
        machine_seconds=round(timeline.machine_s),
        usd=timeline.usd.quantize(_MICRO, ROUND_HALF_UP),
        endings=tuple(endings),
        left=left,
        safe=not left,
    )


def _left(context: Context, stage: Stage) -> tuple[LeftoverData, ...]:
    tagged = [found for region in context.regions for found in context.cloud(region).find({TAG_ID: ""})]
    known = {found.id for found in tagged}
    kind = context.targets[0].facts.machine_kind  # the sandbox is a cloud of that target
    machines = [LeftoverData(kind=kind, id=name) for name in stage.running() if name not in known]
    return (*(LeftoverData(kind=found.kind, id=found.id) for found in tagged), *machines)


@dataclass(kw_only=True, slots=True)
class Timeline:
    """Receives events as reporter and listener, and records them with the simulated time."""

    context: Context
    stage: Stage
    plan: Plan
    name: str
    scenarios: tuple[Scenario, ...]
    now_s: float = 0.0
    moments: list[MomentData] = field(default_factory=list)
    machine_s: float = 0.0
    usd: Decimal = Decimal(0)
    _ids: dict[str, str] = field(default_factory=dict)
    _machines: dict[str, tuple[float, Decimal]] = field(default_factory=dict)
    _existing: set[str] = field(default_factory=set)
    _phase: str = ""
    _struck: set[str] = field(default_factory=set)

    def record(self, code: str, text: str) -> None:
        self.moments.append(MomentData(at_s=round(self.now_s, 1), code=code, text=self.masked(text)))

    def masked(self, text: str) -> str:
        """Return `text` with ids replaced by numbers, in the order of their appearance."""
        return self.stage.ids.sub(self._number, text)

    def _number(self, match: re.Match[str]) -> str:
        kind = match[1]
        count = sum(known.startswith(f"{kind}-") for known in self._ids)
        return self._ids.setdefault(match[0], f"{kind}-{count + 1}")

    def play(self, command: str, run: Callable[[], object]) -> EndingData:
        self.record("command", f"tgi-deploy {command}")
        try:
            run()
        except DeployError as error:
            ending = EndingData(
                command=command,
                exit_code=error.exit_code,
                code=error.code,
                message=self.masked(error.message),
                hint=self.masked(error.hint or "") or None,
            )
            self.record("failed", f"{command}: {error.code}")
            return ending
        self.record("done", f"{command}: {'the engine answers' if command == 'up' else 'nothing is left'}")
        return EndingData(command=command, exit_code=0)

    def step(self, step: Step, outcome: str) -> None:
        """Record a step, unless it deletes a resource that is attached to a machine or already gone."""
        resource_id = step.attributes.get("id", "")
        if outcome == "begun" or (step.action == "delete" and resource_id not in self._existing):
            return
        self.now_s += _CALL_S
        if step.action == "delete":
            self._existing.remove(resource_id)
            self.now_s += _END_S if resource_id in self._machines else 0.0
            self._close(resource_id)
        else:
            self._existing.add(resource_id)
            if step.is_machine:
                self._machines[resource_id] = (self.now_s, self._price())
        self.record(step.action, f"{_DONE[step.action]} {step.kind} {resource_id} in {step.place}")

    def note(self, text: str) -> None:
        if not text.endswith(_PASSING):
            self.record("note", text)

    def warn(self, problem: Problem) -> None:
        self.now_s += _CALL_S
        self.record(problem.code, problem.message)

    def line(self, text: str) -> None:
        """Ignore messages of the wait, which depend on the computer's speed."""

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:  # noqa: ARG002 -- the signature of Listener
        """Record all phases up to this one, even if a poll missed them."""
        planned = {item.phase: item.expected_s for item in estimate(self._candidate())}
        order = list(planned)
        if phase not in planned or (self._phase and order.index(phase) <= order.index(self._phase)):
            return
        first = order.index(self._phase) + 1 if self._phase else 0
        for passed in order[first : order.index(phase) + 1]:
            if self._phase:
                self.now_s += planned[self._phase] + self._delay_s(self._phase)
            self._phase = passed
            self.record("phase", passed.replace("_", " "))
            if self._strike(passed):
                return

    def end_machines(self) -> None:
        for resource_id in list(self._machines):
            self._close(resource_id)

    def _candidate(self) -> Any:  # noqa: ANN401 -- a Candidate, whose import at run time the annotation would require
        return self.plan.chosen

    def _delay_s(self, phase: str) -> float:
        return sum(scenario.delay_s for scenario in self.scenarios if scenario.at_phase == phase)

    def _strike(self, phase: str) -> bool:
        """Apply this phase's fault to the machine, once. Return whether there was one."""
        machine = next(reversed(self._machines), None)
        due = [
            item
            for item in self.scenarios
            if item.machine_fault and item.at_phase == phase and item.name not in self._struck
        ]
        if machine is None or not due:
            return False
        for scenario in due:
            self._struck.add(scenario.name)
            self.stage.strike(scenario.name, machine)
            self.record("fault", f"{scenario.name}: {scenario.description}")
        self._close(machine)
        self._existing.discard(machine)
        return True

    def _price(self) -> Decimal:
        deployment = self.context.store.load(self.name)
        return (deployment.usd_per_hour if deployment else None) or Decimal(0)

    def _close(self, resource_id: str) -> None:
        begun = self._machines.pop(resource_id, None)
        if begun is not None:
            seconds = self.now_s - begun[0]
            self.machine_s += seconds
            self.usd += begun[1] * Decimal(str(seconds)) / _HOUR_S
