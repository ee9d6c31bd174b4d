"""Rehearsal scenarios as data, with the sandbox faults behind them, chosen by seed."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tgi_deploy.sandbox import api

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.sandbox.control import SandboxInfo

Document = Mapping[str, Any]
_READS: Final = ("DescribeSecurityGroups", "DescribeInstances", "DescribeSubnets", "DescribeImages")
_CHANGES: Final = ("CreateSecurityGroup", "CreateLaunchTemplate", "RunInstances", "TerminateInstances")
_EVERY: Final = 1000
_ENDED: Final = frozenset({"terminated", "shutting-down"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """`documents` returns the initial faults.

    `strikes`, if any, is applied to the machine when the wait for its engine reaches `at_phase`; `delay_s` extends that
    phase (in the machine's seconds). `market`: applies only to machines of that market.
    """

    name: str
    description: str
    documents: Callable[[random.Random], tuple[Document, ...]] = lambda _chance: ()
    at_phase: str = ""
    strikes: Document | None = None
    delay_s: float = 0.0
    market: str = ""


def _always(**document: object) -> Callable[[random.Random], tuple[Document, ...]]:
    return lambda _chance: (document,)


def _refusals(chance: random.Random) -> tuple[Document, ...]:
    actions = (*chance.sample(_READS, 2), *chance.sample(_CHANGES, 2))
    return tuple({"name": "throttle", "action": action, "times": chance.randint(1, 2)} for action in actions)


_SLOW_BOOT_S: Final = 5.0
# Faults of the engine and its machine, which recur on every start.
_ENGINE: Final = {
    "oom-load": "the same as oom",
    "oom-warmup": "the warm-up's prefill needs more memory than the weights leave free",
    "oom-serving": "the longest promised request needs more memory than is left",
    "disk-full": "the disk fills up before the weights are downloaded",
    "bad-flag": "the launcher rejects an unknown option",
    "port-taken": "another process on the machine uses the engine's port",
    "network": "the machine can't reach the hub",
    "wrong-model": "the engine serves another model than the plan's",
    "driver-too-old": "the machine's driver is older than the image needs",
    "no-gpu": "the container sees no GPU",
}
TROUBLES: Final = (
    Trouble(
        name="capacity",
        description="the first zones have no room for the machine",
        documents=lambda chance: ({"name": "capacity", "times": chance.randint(1, 3)},),
    ),
    Trouble(
        name="quota",
        description="the account's quota does not allow the first machine",
        documents=_always(name="quota"),
    ),
    Trouble(
        name="throttle",
        description="calls are throttled, reads as well as changes",
        documents=_refusals,
    ),
    Trouble(
        name="lost-reply",
        description="the launch succeeds, but its reply never arrives",
        documents=_always(name="lost-reply"),
    ),
    Trouble(
        name="spot-reclaim",
        description="the cloud reclaims the spot machine while it starts",
        at_phase="pulling",
        strikes={"name": "spot-reclaim", "after_s": 0},
        market="spot",
    ),
    Trouble(
        name="slow-boot",
        description="the machine takes five minutes longer to boot",
        documents=_always(name="slow-boot", boot_s=_SLOW_BOOT_S, times=_EVERY),
        at_phase="booting",
        delay_s=300.0,
    ),
    Trouble(
        name="dead-host",
        description="the machine's host dies while it boots",
        at_phase="booting",
        strikes={"name": "dead-host", "after_s": 0},
    ),
    Trouble(
        name="oom",
        description="the weights do not fit in the GPU's memory after all",
        documents=_always(name="engine", engine="oom-load", times=_EVERY),
    ),
    Trouble(
        name="gated",
        description="the hub refuses the weights: their license was not accepted",
        documents=_always(name="engine", engine="gated", times=_EVERY),
    ),
    *(
        Trouble(name=name, description=text, documents=_always(name="engine", engine=name, times=_EVERY))
        for name, text in _ENGINE.items()
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxStage:
    """An isolated sandbox with fault injection."""

    sandbox: SandboxInfo
    ids: ClassVar = re.compile(r"\b(i|sg|lt|vol|eni|eipalloc|sir)-[0-9a-f]{8,17}\b")

    def prepare(self, name: str, seed: int) -> tuple[str, ...]:
        """Inject the faults and return one sentence per fault."""
        chance = random.Random(f"{seed} {name}")  # noqa: S311 -- a repeatable choice
        documents = trouble(name).documents(chance)
        for document in documents:
            self._ask("POST", "faults", document)
        return tuple(_sentence(document) for document in documents if document["name"] in _COUNTED)

    def strike(self, name: str, instance_id: str) -> None:
        """Apply it to the machine now."""
        self._ask("POST", "faults", {**(trouble(name).strikes or {}), "instance_id": instance_id})

    def calls(self) -> tuple[str, ...]:
        """Return the names of all calls, in order."""
        return tuple(call["action"] for call in self._ask("GET", "calls")["calls"])

    def running(self) -> tuple[str, ...]:
        """Return all machines that have not ended."""
        machines = self._ask("GET", "machines")["machines"]
        return tuple(one["instance_id"] for one in machines if one["state"] not in _ENDED)

    def _ask(self, method: str, path: str, document: Document | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = api.control(self.sandbox.endpoint, method, f"/_sandbox/{path}", document)
        return answer


_COUNTED: Final = {"capacity": "RunInstances", "quota": "RunInstances", "throttle": "", "lost-reply": "RunInstances"}


def trouble(name: str) -> Trouble:
    return next(item for item in TROUBLES if item.name == name)


def _sentence(document: Document) -> str:
    action = document.get("action") or _COUNTED[document["name"]]
    times = document.get("times", 1)
    how_often = {1: "once", 2: "twice"}.get(times, f"{times} times")
    return f"{action} meets {document['name']} {how_often}"
