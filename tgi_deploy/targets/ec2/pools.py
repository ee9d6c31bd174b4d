"""Remembers pools without capacity, so that neither this run nor later ones retry them for some minutes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.errors import DeployError
from tgi_deploy.reconcile.ends import moment_of

if TYPE_CHECKING:
    from tgi_deploy.reconcile.ports import Clock, Store
    from tgi_deploy.targets.ec2.quota import Headroom

MEMORY_S: Final = 180.0
TOPIC: Final = "pools"
_SCHEMA: Final = 1
# If the clock is set back, that must not exclude a pool for hours.
_AHEAD: Final = timedelta(seconds=5)
_LONGEST_WHY: Final = 200


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """`clock` decides when a failure expires. Families without quota stay excluded for the whole run.

    With a `store`, failures are remembered across runs, by wall-clock time; errors of the store are ignored, because
    they only cost a request. `rooms` are the quotas of the excluded families.
    """

    clock: Clock
    store: Store | None = None
    failures: dict[str, tuple[float, str]] = field(default_factory=dict)
    families: dict[str, str] = field(default_factory=dict)
    rooms: dict[str, Headroom] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)

    def failed(self, pool: str, why: str) -> None:
        """Exclude a pool without capacity, in later runs too."""
        self.unusable(pool, why)
        if self.store is None:
            return
        known = self._recalled()
        known[pool] = (self.clock.now(), why[:_LONGEST_WHY])
        with suppress(DeployError):
            self.store.remember(TOPIC, _document(known))

    def unusable(self, pool: str, why: str) -> None:
        """Exclude the pool for this run."""
        self.failures[pool] = (self.clock.monotonic(), why)

    def no_quota(self, family: str, why: str, room: Headroom | None = None) -> None:
        self.families[family] = why
        if room is not None:
            self.rooms[family] = room

    def is_out(self, pool: str) -> bool:
        failure = self.failures.get(pool)
        return failure is not None and self.clock.monotonic() - failure[0] < MEMORY_S

    def earlier(self) -> dict[str, str]:
        """Return pools that an earlier run found without capacity in the last three minutes: pool → when and why."""
        now = self.clock.now()
        return {
            pool: f"{why} {max(0, (now - at).total_seconds()):.0f} s ago"
            for pool, (at, why) in self._recalled().items()
            if pool not in self.failures
        }

    def why(self) -> tuple[tuple[str, str], ...]:
        """Return the failed pools and families with reasons, in order of trying."""
        pools = ((pool, why) for pool, (_, why) in self.failures.items())
        return (*pools, *self.families.items())

    def _recalled(self) -> dict[str, tuple[datetime, str]]:
        if self.store is None:
            return {}
        try:
            document = self.store.recall(TOPIC)
        except DeployError:
            return {}
        pools = document.get("pools") if document.get("schema") == _SCHEMA else None
        read = {pool: _read(raw) for pool, raw in pools.items()} if isinstance(pools, dict) else {}
        now = self.clock.now()
        return {pool: entry for pool, entry in read.items() if entry is not None and _is_fresh(entry[0], now)}


def _document(pools: dict[str, tuple[datetime, str]]) -> dict[str, Any]:
    listed = {pool: {"at": at.isoformat(), "why": why} for pool, (at, why) in sorted(pools.items())}
    return {"schema": _SCHEMA, "pools": listed}


def _read(raw: object) -> tuple[datetime, str] | None:
    if not isinstance(raw, dict):
        return None
    at = moment_of(raw.get("at"))
    return None if at is None else (at, str(raw.get("why", ""))[:_LONGEST_WHY])


def _is_fresh(at: datetime, now: datetime) -> bool:
    return -_AHEAD < now - at < timedelta(seconds=MEMORY_S)
