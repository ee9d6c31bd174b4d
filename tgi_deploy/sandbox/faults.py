"""Injected faults: failures of the real cloud that moto does not simulate.

A fault of a call (`CallFault`) is matched when a request arrives; a fault of a machine (`MachineFault`) when an
instance is launched. Each is used up after `times`.
"""

from __future__ import annotations

import math
import re
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.sandbox import signals
from tgi_deploy.sandbox.storm import Storm, Weather

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tgi_deploy.sandbox.wire import Call

ANY_ACTION: Final = "*"


class BadFaultError(ValueError):
    """An invalid fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallFault:
    """An error, a delay or a lost reply for matching calls. `when` compares parameters of the request.

    `delay_s` is real seconds. `after` means that the call takes effect and its reply is lost. An empty `code` with a
    delay only delays. `explicit_only` restricts it to calls that name their resources. The first `skip` matching calls
    pass. `signal` (KILL, INT, TERM, HUP) is sent to the calling process when the call arrives, with `after` when it has
    taken effect, with `replied` when its reply is sent. `vcpus` replaces the value of a quota response.
    """

    action: str
    code: str = ""
    message: str = ""
    status: int = 400
    times: int = 1
    when: Mapping[str, str] = field(default_factory=dict)
    after: bool = False
    delay_s: float = 0.0
    explicit_only: bool = False
    skip: int = 0
    signal: str = ""
    replied: bool = False
    vcpus: float | None = None

    def matches(self, call: Call) -> bool:
        if self.action not in {ANY_ACTION, call.action_name} or not call.action:
            return False
        if self.explicit_only and not _names_something(call):
            return False
        return all(str(call.params.get(name, "")) == value for name, value in self.when.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFault:
    """What happens to the next launched machines. `when` compares InstanceType, AvailabilityZone, SubnetId, Market.

    Times are real seconds. `reason` ends the instance `after_s` after its launch; `boot_s` replaces the boot's
    duration; `engine` is a fault of the stub engine; `failed_pulls` image pulls fail; `pull_mb_per_s` is their speed;
    `dark`: it never boots.
    """

    reason: str = ""
    after_s: float = 2.0
    boot_s: float | None = None
    engine: str = ""
    failed_pulls: int = 0
    pull_mb_per_s: float | None = None
    dark: bool = False
    times: int = 1
    when: Mapping[str, str] = field(default_factory=dict)

    def matches(self, facts: Mapping[str, str]) -> bool:
        return all(facts.get(name, "") == value for name, value in self.when.items())


Fault = CallFault | MachineFault | Storm

_NOT_FOUND: Final = {
    "DescribeInstances": "InvalidInstanceID.NotFound",
    "DescribeInstanceStatus": "InvalidInstanceID.NotFound",
    "DescribeSecurityGroups": "InvalidGroup.NotFound",
    "AuthorizeSecurityGroupIngress": "InvalidGroup.NotFound",
    "RevokeSecurityGroupIngress": "InvalidGroup.NotFound",
    "DescribeLaunchTemplates": "InvalidLaunchTemplateId.NotFound",
    "DescribeLaunchTemplateVersions": "InvalidLaunchTemplateId.NotFound",
    "CreateTags": "InvalidID",
    "RunInstances": "InvalidGroup.NotFound",
    "TerminateInstances": "InvalidInstanceID.NotFound",
    "DeleteSecurityGroup": "InvalidGroup.NotFound",
    "DeleteLaunchTemplate": "InvalidLaunchTemplateId.NotFound",
}


def _not_found(action: str) -> CallFault:
    code = _NOT_FOUND.get(action, "InvalidParameterValue")
    return CallFault(action=action, code=code, message="The ID does not exist (yet)", explicit_only=True)


_CALL_FAULTS: Final[Mapping[str, Callable[[str], CallFault]]] = {
    "capacity": lambda action: CallFault(
        action=action or "RunInstances",
        code="InsufficientInstanceCapacity",
        status=500,
        message="We currently do not have sufficient capacity in the Availability Zone you requested.",
    ),
    "throttle": lambda action: CallFault(
        action=action or ANY_ACTION, code="RequestLimitExceeded", status=503, message="Request limit exceeded."
    ),
    "quota": lambda action: CallFault(
        action=action or "RunInstances",
        code="VcpuLimitExceeded",
        message="You have requested more vCPU capacity than your current vCPU limit of 0 allows for.",
    ),
    "low-quota": lambda action: CallFault(action=action or "GetServiceQuota", vcpus=0.0),
    "spot-quota": lambda action: CallFault(
        action=action or "RunInstances", code="MaxSpotInstanceCountExceeded", message="Max spot instance count exceeded"
    ),
    "unauthorized": lambda action: CallFault(
        action=action or "RunInstances",
        code="UnauthorizedOperation",
        status=403,
        message="You are not authorized to perform this operation.",
    ),
    "unavailable": lambda action: CallFault(
        action=action or ANY_ACTION, code="Unavailable", status=503, message="The service is unavailable."
    ),
    "lost-reply": lambda action: CallFault(action=action or "RunInstances", after=True),
    "slow-reply": lambda action: CallFault(action=action or ANY_ACTION, delay_s=1.0),
    "not-found-yet": lambda action: _not_found(action or "DescribeInstances"),
    "signal": lambda action: CallFault(action=action or ANY_ACTION, signal="KILL"),
}
_MACHINE_FAULTS: Final[Mapping[str, MachineFault]] = {
    "insufficient-after-accept": MachineFault(reason="Server.InsufficientInstanceCapacity", after_s=0.0),
    "dead-host": MachineFault(reason="Server.InternalError"),
    "spot-reclaim": MachineFault(reason="Server.SpotInstanceTermination"),
    "slow-boot": MachineFault(boot_s=20.0),
    "engine": MachineFault(engine="oom-load"),
    "failed-pull": MachineFault(failed_pulls=1),
    "slow-pull": MachineFault(pull_mb_per_s=100.0),
    "dark": MachineFault(dark=True),
}
_STORM: Final = "storm"
NAMES: Final = tuple(sorted({*_CALL_FAULTS, *_MACHINE_FAULTS, _STORM}))


def _flag(value: object) -> bool:
    """Parse a flag, because `bool` takes any string, even "false", as true."""
    if isinstance(value, bool):
        return value
    raise TypeError


def _amount(value: Any) -> float:  # noqa: ANN401 -- any JSON
    """Parse an amount, because `float` accepts values that no clock can wait for."""
    amount = float(value)
    if not (math.isfinite(amount) and amount >= 0):
        raise ValueError(value)
    return amount


_FIELD_TYPES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "action": str,
    "code": str,
    "message": str,
    "status": int,
    "times": int,
    "after": _flag,
    "delay_s": _amount,
    "reason": str,
    "after_s": _amount,
    "boot_s": _amount,
    "engine": str,
    "failed_pulls": int,
    "pull_mb_per_s": _amount,
    "explicit_only": _flag,
    "skip": int,
    "signal": str,
    "replied": _flag,
    "dark": _flag,
    "vcpus": _amount,
    "seed": int,
    "throttle": _amount,
    "lost_reply": _amount,
    "capacity": _amount,
    "not_found": _amount,
}


def read_fault(document: Mapping[str, Any]) -> Fault:
    """Parse a fault from JSON: a known `name` with changes, or an `action` with all fields.

    Raises:
        BadFaultError: unknown name or member, or a value of the wrong type.
    """
    name = None if document.get("name") is None else str(document["name"])
    changes = _changes({key: value for key, value in document.items() if key != "name"})
    if name is None:
        base: Fault = CallFault(action=str(changes.get("action") or _missing_action()))
    elif name in _CALL_FAULTS:
        base = _CALL_FAULTS[name](str(changes.pop("action", "")))
    elif name in _MACHINE_FAULTS:
        base = _MACHINE_FAULTS[name]
    elif name == _STORM:
        base = Storm()
    else:
        raise BadFaultError(f"no fault is called {name!r}; there are {', '.join(NAMES)}")
    return _checked(name, base, changes)


def _checked(name: object, base: Fault, changes: dict[str, Any]) -> Fault:
    try:
        fault: Fault = replace(base, **changes)
    except TypeError as problem:
        raise BadFaultError(f"{name or 'this'} fault takes no such member: {problem}") from problem
    if isinstance(fault, CallFault) and fault.signal and fault.signal not in signals.NAMES:
        raise BadFaultError(f"signal cannot be {fault.signal!r}; there are {', '.join(signals.NAMES)}")
    return fault


def _missing_action() -> str:
    raise BadFaultError("a fault needs a name or an action")


def _changes(document: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for key, value in document.items():
        if key == "when" and isinstance(value, dict):
            changes["when"] = {str(name): str(wanted) for name, wanted in value.items()}
        elif key in _FIELD_TYPES:
            changes[key] = _converted(key, value)
        else:
            raise BadFaultError(f"a fault has no member {key!r}")
    return changes


def _converted(key: str, value: object) -> object:
    try:
        return _FIELD_TYPES[key](value)
    except (TypeError, ValueError, OverflowError) as problem:
        raise BadFaultError(f"{key} cannot be {value!r}") from problem


class FaultTable:
    """The injected faults, in order; the first match with uses left applies."""

    def __init__(self) -> None:
        self._faults: list[CallFault | MachineFault] = []
        self._weather = Weather()
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        if isinstance(fault, Storm):
            self._weather.set(fault)
            return
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        self._weather.set(None)
        with self._lock:
            self._faults.clear()

    def pending(self) -> tuple[Fault, ...]:
        storm = self._weather.now()
        with self._lock:
            return (*self._faults, *([storm] if storm else []))

    def take_for_call(self, call: Call) -> CallFault | None:
        """Return the fault for this call: an injected one, else a random one."""
        with self._lock:
            for index, fault in enumerate(list(self._faults)):
                if not isinstance(fault, CallFault) or not fault.matches(call):
                    continue
                if not fault.skip:
                    self._use_up(fault)
                    return fault
                self._faults[index] = replace(fault, skip=fault.skip - 1)
        return self._struck(call)

    def _struck(self, call: Call) -> CallFault | None:
        name = self._weather.strikes(call)
        fault = _CALL_FAULTS[name](call.action) if name else None
        return fault if fault and fault.matches(call) else None

    def take_for_machine(self, facts: Mapping[str, str]) -> tuple[MachineFault, ...]:
        """Return all matching machine faults: a machine may boot slowly and also die."""
        with self._lock:
            hits = [fault for fault in self._faults if isinstance(fault, MachineFault) and fault.matches(facts)]
            for fault in hits:
                self._use_up(fault)
        return tuple(hits)

    def _use_up(self, fault: CallFault | MachineFault) -> None:
        index = next(index for index, known in enumerate(self._faults) if known is fault)
        if fault.times <= 1:
            del self._faults[index]
        else:
            self._faults[index] = replace(fault, times=fault.times - 1)


_NAMED: Final = re.compile(
    r"^(InstanceId|GroupId|GroupName|LaunchTemplateId|LaunchTemplateName|ResourceId|SecurityGroupId)(\.\d+)?$"
    r"|^NetworkInterface\.\d+\.SecurityGroupId\.\d+$|^LaunchTemplate\.",
)


def _names_something(call: Call) -> bool:
    return any(_NAMED.match(name) for name in call.params)
