"""Injected faults: failures of the real cloud that moto does not simulate. Named ones are in `faults.json`.

A fault of a call (`CallFault`) is matched when a request arrives; a fault of a machine (`MachineFault`) when an
instance is launched. Each is used up after `times`.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, Struct, ValidationError

from tgi_deploy.sandbox.wire import BadRequestError
from tgi_deploy.values.base import converted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.sandbox.wire import Call

ANY_ACTION: Final = "*"
# The calling process opts in with its id in the SDK's application id (`AWS_SDK_UA_APP_ID=pid-4711`).
_CALLER: Final = re.compile(r"\bapp/pid-([1-9]\d{0,9})\b", re.ASCII)
_NAMED: Final = re.compile(
    r"^(InstanceId|GroupId|GroupName|LaunchTemplateId|LaunchTemplateName|ResourceId|SecurityGroupId)(\.\d+)?$"
    r"|^(EndpointName|EndpointConfigName|ModelName)$|^NetworkInterface\.\d+\.SecurityGroupId\.\d+$|^LaunchTemplate\.",
)
# An upper bound, because no timer accepts infinity.
Amount = Annotated[float, Meta(ge=0, le=1e9)]
Signal = Literal["", "KILL", "INT", "TERM", "HUP"]


class CallFault(Struct, kw_only=True, forbid_unknown_fields=True):
    """An error, a delay or a lost reply for matching calls. `when` compares parameters of the request.

    `delay_s` is real seconds. `after` means that the call takes effect and its reply is lost. An empty `code` with a
    delay only delays. `explicit_only` restricts it to calls that name their resources. The first `skip` matching calls
    pass. `signal` is sent to the calling process when the call arrives, with `after` when it has taken effect, with
    `replied` when its reply is sent. `vcpus` replaces the value of a quota response.
    """

    action: str
    code: str = ""
    message: str = ""
    status: int = 400
    times: int = 1
    when: dict[str, str] = {}
    after: bool = False
    delay_s: Amount = 0.0
    explicit_only: bool = False
    skip: int = 0
    signal: Signal = ""
    replied: bool = False
    vcpus: Amount | None = None

    def matches(self, call: Call) -> bool:
        if self.action not in {ANY_ACTION, call.action_name} or not call.action:
            return False
        if self.explicit_only and not any(_NAMED.match(name) for name in call.params):
            return False
        return all(str(call.params.get(name, "")) == value for name, value in self.when.items())


class MachineFault(Struct, kw_only=True, forbid_unknown_fields=True):
    """What happens to the next launched machines. `when` compares InstanceType, AvailabilityZone, SubnetId, Market.

    Times are real seconds. `reason` ends the instance `after_s` after its launch; `boot_s` replaces the boot's
    duration; `engine` is a fault of the stub engine; `failed_pulls` image pulls fail; `pull_mb_per_s` is their speed;
    `dark`: it never boots.
    """

    reason: str = ""
    after_s: Amount = 2.0
    boot_s: Amount | None = None
    engine: str = ""
    failed_pulls: int = 0
    pull_mb_per_s: Amount | None = None
    dark: bool = False
    times: int = 1
    when: dict[str, str] = {}

    def matches(self, facts: Mapping[str, str]) -> bool:
        return all(facts.get(name, "") == value for name, value in self.when.items())


class Storm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Probabilities from 0 to 1. `capacity` is for launches only, `not_found` for calls that name their resources.

    With the same seed, the n-th call of an action always has the same outcome, regardless of other calls.
    """

    seed: int = 0
    throttle: Amount = 0.3
    lost_reply: Amount = 0.1
    capacity: Amount = 0.2
    not_found: Amount = 0.1

    def strikes(self, action: str, ordinal: int) -> str:
        """Return the fault of the `ordinal`-th call of `action`, or empty."""
        chance = random.Random(f"{self.seed}/{action}/{ordinal}")  # noqa: S311 -- not a secret
        share = (
            ("throttle", self.throttle),
            ("lost-reply", self.lost_reply),
            ("capacity", self.capacity if action == "RunInstances" else 0.0),
            ("not-found-yet", self.not_found),
        )
        return next((name for name, likely in share if chance.random() < likely), "")


Fault = CallFault | MachineFault | Storm
_TABLE: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_KNOWN: Final[Mapping[str, tuple[type[Fault], dict[str, Any]]]] = {
    **{name: (CallFault, fields) for name, fields in _TABLE["call"].items()},
    **{name: (MachineFault, fields) for name, fields in _TABLE["machine"].items()},
    "storm": (Storm, {}),
}
NAMES: Final = tuple(sorted(_KNOWN))


def read_fault(document: Mapping[str, Any]) -> Fault:
    """Parse a fault: a known `name` with changes, or an `action` with all fields. Raises BadRequestError."""
    name = None if document.get("name") is None else str(document["name"])
    if name is not None and name not in _KNOWN:
        raise BadRequestError(f"there is no fault named {name!r}; the known ones are {', '.join(NAMES)}")
    kind, base = (CallFault, {}) if name is None else _KNOWN[name]
    fields = {**base, **{key: value for key, value in document.items() if key != "name"}}
    if name == "not-found-yet":
        code = _TABLE["not_found"].get(str(fields["action"]), "InvalidParameterValue")
        message = document.get("message") or _TABLE["not_found_messages"].get(code, fields["message"])
        fields = {"code": code, **fields, "message": message}
    try:
        return converted(fields, kind)
    except ValidationError as problem:
        raise BadRequestError(f"{name or 'this'} fault: {problem}") from problem


def send_signal(call: Call, name: str) -> None:
    """Signal the caller, to test kills at the worst moment, unless it did not opt in or has ended."""
    found = _CALLER.search(call.headers.get("HTTP_USER_AGENT", ""))
    if found is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(int(found[1]), signal.Signals[f"SIG{name}"])


class FaultTable:
    """The injected faults, in order; the first match with uses left applies. A storm comes after them.

    `skip` and `times` of a fault are what is left of them.
    """

    def __init__(self) -> None:
        self._faults: list[CallFault | MachineFault] = []
        self._storm: Storm | None = None
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        with self._lock:
            if isinstance(fault, Storm):
                self._storm = fault
                self._seen.clear()
            else:
                self._faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._storm = None
            self._faults.clear()

    def pending(self) -> tuple[Fault, ...]:
        with self._lock:
            return (*self._faults, *([self._storm] if self._storm else []))

    def take_for_call(self, call: Call) -> CallFault | None:
        """Return the fault for this call: an injected one, else a random one."""
        with self._lock:
            for fault in self._faults:
                if isinstance(fault, CallFault) and fault.matches(call):
                    if not fault.skip:
                        self._use(fault)
                        return fault
                    fault.skip -= 1
            if self._storm is None or not call.action:
                return None
            self._seen[call.action] += 1
            name = self._storm.strikes(call.action, self._seen[call.action])
        drawn = read_fault({"name": name, "action": call.action}) if name else None
        return drawn if isinstance(drawn, CallFault) and drawn.matches(call) else None

    def take_for_machine(self, facts: Mapping[str, str]) -> tuple[MachineFault, ...]:
        """Return all matching machine faults: a machine may boot slowly and also die."""
        with self._lock:
            hits = [fault for fault in self._faults if isinstance(fault, MachineFault) and fault.matches(facts)]
            for fault in hits:
                self._use(fault)
        return tuple(hits)

    def _use(self, fault: CallFault | MachineFault) -> None:
        fault.times -= 1
        if fault.times <= 0:
            self._faults = [known for known in self._faults if known is not fault]
