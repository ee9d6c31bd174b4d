"""Idempotency by ClientToken: the same token and parameters are the same call, per region and zone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox.wire import Answer, Call, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEMBERED: Final = frozenset({"RunInstances", "CreateFleet", "CreateLaunchTemplate", "CreateLaunchTemplateVersion"})
_INSTANCE: Final = re.compile(r"<instanceId>(i-[0-9a-f]+)</instanceId>")
_RESERVATION: Final = re.compile(r"<reservationSet>\s*<item>(.*)</item>\s*</reservationSet>", re.DOTALL)
_PLACES: Final = ("SubnetId", "NetworkInterface.1.SubnetId", "Placement.AvailabilityZone")
_IGNORED: Final = frozenset({"ClientToken", "Version"})
_MISMATCH: Final = (
    "The client token you have provided is associated with a resource that was created with different parameters."
)

Key = tuple[str, str, str, str]
Params = tuple[tuple[str, str], ...]


class TokenMemory:
    def __init__(self) -> None:
        self._known: dict[Key, tuple[Params, Answer]] = {}

    def clear(self) -> None:
        self._known.clear()

    def replay(self, call: Call, ask_moto: Callable[[Call], Answer]) -> Answer | None:
        """Return the response to a repeated call: the first result with its current state. None for a new call."""
        known = self._known.get(_key(call)) if _has_token(call) else None
        if known is None:
            return None
        params, answer = known
        if params != _comparable(call):
            raise RefusedError("IdempotentParameterMismatch", _MISMATCH)
        return _current(call, answer, ask_moto) if call.action == "RunInstances" else answer

    def remember(self, call: Call, answer: Answer) -> None:
        if _has_token(call) and answer.ok:
            self._known[_key(call)] = (_comparable(call), answer)


def _has_token(call: Call) -> bool:
    return call.action in _REMEMBERED and bool(call.text("ClientToken"))


def _key(call: Call) -> Key:
    place = next((call.text(name) for name in _PLACES if call.text(name)), "")
    return call.region, call.action, call.text("ClientToken"), place


def _comparable(call: Call) -> Params:
    return tuple(sorted((name, str(value)) for name, value in call.params.items() if name not in _IGNORED))


def _current(call: Call, first: Answer, ask_moto: Callable[[Call], Answer]) -> Answer:
    """Return the launch's response with the present state of its instances."""
    ids = {f"InstanceId.{n}": one for n, one in enumerate(dict.fromkeys(_INSTANCE.findall(first.text)), start=1)}
    version = call.text("Version") or "2016-11-15"
    described = ask_moto(call.with_params({"Action": "DescribeInstances", "Version": version, **ids}))
    found = _RESERVATION.search(described.text)
    if not described.ok or found is None:
        return first
    namespace = f"http://ec2.amazonaws.com/doc/{version}/"
    return Answer(
        f'<RunInstancesResponse xmlns="{namespace}"><requestId>sandbox</requestId>{found[1]}</RunInstancesResponse>'
    )
