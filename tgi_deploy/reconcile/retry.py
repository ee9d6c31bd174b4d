"""Polling with a deadline on an injected clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tgi_deploy.reconcile.ports import Clock


@dataclass(frozen=True, kw_only=True, slots=True)
class PollPolicy:
    """How long to wait and how often to poll: every `poll_s` at first, growing to `longest_poll_s`."""

    deadline_s: float
    poll_s: float
    longest_poll_s: float
    growth: float = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """Poll intervals and deadlines. A local cloud is polled more often.

    `visibility_timeout_s`: how long after a creating request without a reply its result may still appear.
    `ready_poll_s`: for the cloud and the console while waiting for an engine; `health_poll_s`: for its health check
    when it may answer soon; `settle_s`: the pause between its first answer and the second.
    `at_once`: how many calls of one kind run in parallel over many deployments.
    """

    running: PollPolicy = field(default_factory=lambda: PollPolicy(deadline_s=300, poll_s=2, longest_poll_s=10))
    deletion: PollPolicy = field(default_factory=lambda: PollPolicy(deadline_s=900, poll_s=1, longest_poll_s=10))
    sweep: PollPolicy = field(default_factory=lambda: PollPolicy(deadline_s=120, poll_s=1, longest_poll_s=10))
    visibility_timeout_s: float = 60.0
    ready_poll_s: float = 5.0
    health_poll_s: float = 0.3
    settle_s: float = 0.1
    at_once: int = 8

    @property
    def visibility_timeout(self) -> PollPolicy:
        return replace(self.sweep, deadline_s=self.visibility_timeout_s)


def polls(clock: Clock, policy: PollPolicy) -> Iterator[float]:
    """Yield the seconds waited so far, immediately and after each pause, until the deadline.

    The last poll happens at the deadline, never before it.
    """
    started, pause = clock.monotonic(), policy.poll_s
    end = started + policy.deadline_s
    while True:
        yield clock.monotonic() - started
        left = end - clock.monotonic()
        if left <= 0:
            return
        clock.sleep(min(pause, left))
        pause = min(pause * policy.growth, policy.longest_poll_s)
