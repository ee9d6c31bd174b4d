"""Requests to stop a run, from signals or from another thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tgi_deploy.values.resource import TAG_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tgi_deploy.values.resource import Found


class Stops:
    """The stop requests, and what this run has done so far.

    `holding` is whether a call that must not be cut off is in progress: only the first request waits for it.
    `from_before` has the ids of deployments found before this run wrote a record. `abandoned` is whether a creating
    call was cut off or its reply was lost, so that its resource may become visible later.
    """

    def __init__(self) -> None:
        self.count = 0
        self.urgent = self.holding = self.pending = self.abandoned = self.new_record = False
        self.made: list[str] = []
        self.adopted: list[str] = []
        self.from_before: set[str] = set()
        self._instead: Callable[[], None] | None = None

    @contextmanager
    def passed_on(self, to: Callable[[], None]) -> Iterator[None]:
        """Call `to` for each request during the block; the block is not interrupted."""
        if self.count:
            to()
        self._instead = to
        try:
            yield
        finally:
            self._instead = None

    def begin_another(self) -> None:
        """Begin another run. A stop request stays in effect; the previous run's resources are not this run's."""
        self.check()
        self.holding = self.abandoned = self.new_record = False
        self.made, self.adopted, self.from_before = [], [], set()

    def request(self) -> None:
        """Request a stop, from any thread. The run ends at the next safe point."""
        self.count += 1
        if self._instead:
            self._instead()
        else:
            self.pending = True

    def arrive(self, *, urgent: bool) -> None:
        """Handle a stop request; `urgent` (a termination signal) leaves no time to ask or to wait.

        Raises KeyboardInterrupt, at once or when the current call has ended.
        """
        self.count += 1
        self.urgent = self.urgent or urgent
        if self._instead:
            self._instead()
            return
        if self.holding and self.count == 1:
            self.pending = True
            return
        self.now()

    def now(self) -> None:
        """Raise KeyboardInterrupt even during a call."""
        self.holding = self.pending = False
        if not self._instead:
            raise KeyboardInterrupt

    def check(self) -> None:
        if self.pending:
            self.now()

    @contextmanager
    def held(self, *, on: bool = False) -> Iterator[None]:
        """Defer a stop request until the end of the block; with `on`, after a success, until a save ends."""
        if not self.holding:
            self.check()
        self.holding = True
        try:
            yield
        except BaseException:
            self.holding = False
            raise
        if not on:
            self.holding = False
            self.check()

    def note_found(self, found: tuple[Found, ...]) -> tuple[Found, ...]:
        if not self.new_record:
            self.from_before.update(item.tags.get(TAG_ID, "") for item in found)
        return found

    @property
    def owns_all(self) -> bool:
        """Return whether this run created all resources of the deployment."""
        return self.new_record and not self.adopted

    @property
    def created_any(self) -> bool:
        return bool(self.made) or self.abandoned or self.owns_all
