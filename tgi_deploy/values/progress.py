"""Progress events of use cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import Problem
from tgi_deploy.values.base import Value
from tgi_deploy.values.pasted import Pasted
from tgi_deploy.values.resource import Step

if TYPE_CHECKING:
    from collections.abc import Callable

_BEGUN: Final = {
    "create": "creating",
    "delete": "removing",
    "adopt": "adopting",
    "keep": "keeping",
    "stop": "stopping",
    "start": "starting",
    "restart": "restarting",
}
_DONE: Final = {
    "create": "created",
    "delete": "removed",
    "adopt": "adopted",
    "keep": "kept",
    "stop": "stopped",
    "start": "started",
    "restart": "restarted",
}


class StepEvent(Value, frozen=True, kw_only=True):
    """A change of one resource has started or finished."""

    step: Step
    begun: bool

    def __str__(self) -> str:
        what = " ".join(filter(None, (self.step.kind, self.step.attributes.get("id", ""))))
        if self.begun:
            return f"{_BEGUN[self.step.action]} {what}"
        return f"{_DONE[self.step.action]} {what} in {self.step.place}"


class PhaseEvent(Value, frozen=True, kw_only=True):
    """One poll of a starting engine. `elapsed_s` counts from the beginning of the phase.

    `expected_s` is its expected duration, 0 if unknown.
    """

    phase: str
    detail: str
    elapsed_s: float
    expected_s: float

    def __str__(self) -> str:
        about = f" of about {self.expected_s:.0f} s" if self.expected_s else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.phase.replace('_', ' ')} {self.elapsed_s:.0f} s{about}{detail}"


class NoteEvent(Value, frozen=True, kw_only=True):
    """A sentence about something that was done or is being waited for."""

    text: str

    def __str__(self) -> str:
        return self.text


class WarningEvent(Value, frozen=True, kw_only=True):
    problem: Problem

    def __str__(self) -> str:
        return f"warning[{self.problem.code}]: {self.problem.message}"


ProgressEvent = StepEvent | PhaseEvent | NoteEvent | WarningEvent


class Events:
    """Passes what use cases report to `show`, as events."""

    def __init__(self, show: Callable[[ProgressEvent], None] | None, *, sandbox: bool = False) -> None:
        self._show = show or (lambda _event: None)
        self._pasted = Pasted(sandbox=sandbox)

    def step(self, step: Step, outcome: str) -> None:
        self._show(StepEvent(step=step, begun=outcome == "begun"))

    def note(self, text: str) -> None:
        self._show(NoteEvent(text=self._pasted.text(text)))

    def line(self, text: str) -> None:
        self.note(text)

    def warn(self, problem: Problem) -> None:
        self._show(WarningEvent(problem=self._pasted.problem(problem)))

    def phase(self, phase: str, detail: str, elapsed_s: float, expected_s: float) -> None:
        self._show(PhaseEvent(phase=phase, detail=detail, elapsed_s=elapsed_s, expected_s=expected_s))
