"""Which pools had no capacity lately: they are not asked again for some minutes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tgi_deploy.reconcile.ports import Clock

MEMORY_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """`clock` decides when a failure is forgotten. Families without quota stay excluded for the whole run."""

    clock: Clock
    failures: dict[str, tuple[float, str]] = field(default_factory=dict)
    families: dict[str, str] = field(default_factory=dict)

    def failed(self, pool: str, why: str) -> None:
        self.failures[pool] = (self.clock.monotonic(), why)

    def no_quota(self, family: str, why: str) -> None:
        self.families[family] = why

    def is_out(self, pool: str) -> bool:
        failure = self.failures.get(pool)
        return failure is not None and self.clock.monotonic() - failure[0] < MEMORY_S

    def why(self) -> tuple[tuple[str, str], ...]:
        """Everything tried in vain: (pool or family, reason), in the order of trying."""
        pools = ((pool, why) for pool, (_, why) in self.failures.items())
        return (*pools, *self.families.items())
