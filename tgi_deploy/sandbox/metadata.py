"""Changing metadata of a machine: current tags and a spot notice."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tgi_deploy.sandbox import world

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tgi_deploy.sandbox.fast_clock import FastClock
    from tgi_deploy.sandbox.world import SandboxInstance

RECLAIMED: Final = "Server.SpotInstanceTermination"
# EC2 gives two minutes' notice, best effort (EC2 User Guide, "Spot Instance interruption notices").
_NOTICE_S: Final = 120.0
# Real seconds: an engine must have time to drain even with fast timers.
_LEAST_NOTICE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Metadata:
    _clock: FastClock

    def describe(self, region: str, instance: SandboxInstance, ends: Iterable[tuple[float, str]]) -> dict[str, object]:
        """`tags` is None unless enabled; `spot_action` is None without a notice."""
        return {"tags": self._tags(region, instance), "spot_action": self._spot_action(ends)}

    def _tags(self, region: str, instance: SandboxInstance) -> dict[str, str] | None:
        if instance.metadata_options.instance_metadata_tags != "enabled":
            return None
        return dict(world.tags_of(region, instance.id))

    def _spot_action(self, ends: Iterable[tuple[float, str]]) -> dict[str, str] | None:
        now = time.monotonic()
        due = min((moment for moment, reason in ends if reason == RECLAIMED), default=None)
        if due is None or due - now > max(_NOTICE_S / self._clock.speed, _LEAST_NOTICE_S):
            return None
        at = self._clock.text(time.time() + due - now).replace("+00:00", "Z")
        return {"action": "terminate", "time": at}
