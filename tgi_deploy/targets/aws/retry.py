"""Retry policies for single requests; callers handle missing capacity.

Throttled: back off with jitter, the same request each time. Not visible yet: short pauses, for at most a minute. An
unreadable reply: twice more, if the request is idempotent.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from tgi_deploy.reconcile.errors import NotYetError, ThrottledError
from tgi_deploy.targets.aws.errors import UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.errors import DeployError
    from tgi_deploy.reconcile.ports import Clock

_T = TypeVar("_T")

THROTTLED_ATTEMPTS: Final = 8
NOT_YET_ATTEMPTS: Final = 20
NOT_YET_PAUSE_S: Final = 3
READING_ATTEMPTS: Final = 3
_READING_PAUSE_S: Final = 1
_FIRST_PAUSE_S: Final = 1
_LONGEST_PAUSE_S: Final = 30


@dataclass(frozen=True, slots=True)
class Retrier:
    """Repeats calls that are throttled or not visible yet, sleeping on the injected clock."""

    clock: Clock

    def call(self, request: Callable[[], _T]) -> _T:
        """Return the result of `request`, repeating it if needed. Raises its last error."""
        return self._repeated(
            lambda: self._repeated(request, NotYetError, NOT_YET_ATTEMPTS, lambda _attempt: NOT_YET_PAUSE_S),
            ThrottledError,
            THROTTLED_ATTEMPTS,
            _jittered_s,
        )

    def read(self, request: Callable[[], _T]) -> _T:
        """Return the result of `request`, repeating it if its reply is unreadable. Raises its last error."""
        return self._repeated(request, UnreadableReplyError, READING_ATTEMPTS, lambda _attempt: _READING_PAUSE_S)

    def _repeated(
        self, request: Callable[[], _T], after: type[DeployError], attempts: int, pause_s: Callable[[int], float]
    ) -> _T:
        for attempt in range(attempts - 1):
            try:
                return request()
            except after:
                self.clock.sleep(pause_s(attempt))
        return request()


def _jittered_s(attempt: int) -> float:
    """Return a pause of anything up to a limit that doubles, so that those throttled together spread out."""
    return random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt))  # noqa: S311 -- a pause, not a secret
