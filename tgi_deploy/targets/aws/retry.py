"""Retry policies for single requests; callers handle missing capacity.

Throttled: back off with jitter, the same request each time. Not visible yet: short pauses, for at most a minute. An
unreadable reply: twice more, if the request is idempotent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed, wait_random_exponential

from tgi_deploy.reconcile.errors import NotYetError, ThrottledError
from tgi_deploy.targets.aws.errors import UnreadableReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tgi_deploy.reconcile.ports import Clock

_T = TypeVar("_T")

THROTTLED_ATTEMPTS: Final = 8
NOT_YET_ATTEMPTS: Final = 20
NOT_YET_PAUSE_S: Final = 3
READING_ATTEMPTS: Final = 3
_READING_PAUSE_S: Final = 1
_FIRST_PAUSE_S: Final = 1
_LONGEST_PAUSE_S: Final = 30


class Retrier:
    """Repeats calls that are throttled or not visible yet, sleeping on the injected clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        repeating = partial(Retrying, sleep=clock.sleep, reraise=True)
        self._throttled = repeating(
            retry=retry_if_exception_type(ThrottledError),
            stop=stop_after_attempt(THROTTLED_ATTEMPTS),
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
        )
        self._not_yet = repeating(
            retry=retry_if_exception_type(NotYetError),
            stop=stop_after_attempt(NOT_YET_ATTEMPTS),
            wait=wait_fixed(NOT_YET_PAUSE_S),
        )
        self._unreadable = repeating(
            retry=retry_if_exception_type(UnreadableReplyError),
            stop=stop_after_attempt(READING_ATTEMPTS),
            wait=wait_fixed(_READING_PAUSE_S),
        )

    def call(self, request: Callable[[], _T]) -> _T:
        """Return the result of `request`, repeating it if needed. Raises its last error."""
        return self._throttled(lambda: self._not_yet(request))

    def read(self, request: Callable[[], _T]) -> _T:
        """Return the result of `request`, repeating it if its reply is unreadable. Raises its last error."""
        return self._unreadable(request)
