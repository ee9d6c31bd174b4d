"""The stub server's time: real durations divided by a speed. Every wait ends on a stop signal."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from tgi_deploy.sandbox.engine.failures import StoppedError


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    speed: float
    stopping: threading.Event = field(default_factory=threading.Event)

    def pause(self, real_s: float) -> None:
        """Wait `real_s` seconds of the real engine's time; infinity waits for the stop signal.

        Raises:
            StoppedError: if the stop signal arrived before or during the wait.
        """
        if self.stopping.wait(None if math.isinf(real_s) else real_s / self.speed):
            raise StoppedError
