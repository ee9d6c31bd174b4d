"""Running this program again, with other words: what it takes and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One run of the program. `envelope` is empty where it printed none: it was killed."""

    exit_code: int
    envelope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> Mapping[str, Any]:
        return self.envelope.get("data") or {}

    @property
    def error(self) -> Mapping[str, Any]:
        return next(iter(self.envelope.get("errors") or ()), {})


class Programs(Protocol):
    """Runs this program with other words."""

    def run(self, words: Sequence[str]) -> Reply: ...

    @property
    def stopping(self) -> bool:
        """Whether somebody wants all this to end: nothing new is brought up."""
