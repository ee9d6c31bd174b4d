"""Spot interruption notices, which a watcher on the machine prints on its console."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_MARKER: Final = re.compile(r"\[tgi-deploy\] spot-notice action=(?P<action>[a-z]+) time=(?P<time>[0-9TZ:.+-]+|unknown)")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotNotice:
    """`action` and `time` as the cloud gave them; `unknown` if they could not be parsed."""

    action: str
    time: str

    def __str__(self) -> str:
        return f"the cloud is reclaiming the spot machine: {self.action} at {self.time}"


def notice_of(console: str) -> SpotNotice | None:
    """Return the notice on a console, or None."""
    found = _MARKER.search(console)
    return None if found is None else SpotNotice(action=found["action"], time=found["time"])
