"""Rehearsal scenarios of `rehearsal.json`, and the sandbox faults that they inject, chosen by seed."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.sandbox import api
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.sandbox.control import SandboxInfo

    Document = Mapping[str, Any]
_COUNTED: Final = {"capacity": "RunInstances", "quota": "RunInstances", "throttle": "", "lost-reply": "RunInstances"}


class Scenario(Frozen, frozen=True, kw_only=True):
    """`faults` are the initial ones; two numbers of `times` are limits, two of the actions in `sample` are drawn.

    `machine_fault`, if any, is applied to the machine when the wait for its engine reaches `at_phase`; `delay_s`
    extends that phase (in the machine's seconds). `market`: applies only to machines of that market.
    """

    name: str
    description: str
    faults: tuple[Document, ...] = ()
    at_phase: str = ""
    machine_fault: Document | None = None
    delay_s: float = 0.0
    market: str = ""

    def documents(self, chance: random.Random) -> tuple[Document, ...]:
        """Return the initial faults as the control interface takes them."""
        return tuple(document for fault in self.faults for document in _drawn(fault, chance))


def _drawn(fault: Document, chance: random.Random) -> tuple[Document, ...]:
    if "sample" in fault:
        actions = chance.sample(fault["sample"], 2)
        return tuple({"name": fault["name"], "action": action, "times": chance.randint(1, 2)} for action in actions)
    times = fault.get("times", 1)
    return ({**fault, "times": chance.randint(*times)} if isinstance(times, list) else fault,)


SCENARIOS: Final = tuple(
    Scenario(**item) for item in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxStage:
    """An isolated sandbox with fault injection."""

    sandbox: SandboxInfo
    ids: ClassVar = re.compile(r"\b(i|sg|lt|vol|eni|eipalloc|sir)-[0-9a-f]{8,17}\b")

    def prepare(self, name: str, seed: int) -> tuple[str, ...]:
        """Inject the faults and return one sentence per fault."""
        chance = random.Random(f"{seed} {name}")  # noqa: S311 -- a repeatable choice
        documents = scenario(name).documents(chance)
        for document in documents:
            self._ask("POST", "faults", document)
        return tuple(_sentence(document) for document in documents if document["name"] in _COUNTED)

    def strike(self, name: str, instance_id: str) -> None:
        """Apply the scenario's machine fault now."""
        self._ask("POST", "faults", {**(scenario(name).machine_fault or {}), "instance_id": instance_id})

    def calls(self) -> tuple[str, ...]:
        """Return the names of all calls, in order."""
        return tuple(call["action"] for call in self._ask("GET", "calls")["calls"])

    def running(self) -> tuple[str, ...]:
        """Return all machines that have not ended."""
        machines = self._ask("GET", "machines")["machines"]
        return tuple(one["instance_id"] for one in machines if one["state"] not in {"terminated", "shutting-down"})

    def _ask(self, method: str, path: str, document: Document | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = api.control(self.sandbox.endpoint, method, f"/_sandbox/{path}", document)
        return answer


def scenario(name: str) -> Scenario:
    return next(item for item in SCENARIOS if item.name == name)


def _sentence(document: Document) -> str:
    action = document.get("action") or _COUNTED[document["name"]]
    times = document.get("times", 1)
    how_often = {1: "once", 2: "twice"}.get(times, f"{times} times")
    return f"{document['name']} hits {action} {how_often}"
