"""Runs this program as a child process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The result of one run. `envelope` is empty if the program was killed before printing it."""

    exit_code: int
    envelope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> Mapping[str, Any]:
        return self.envelope.get("data") or {}

    @property
    def error(self) -> Mapping[str, Any]:
        return next(iter(self.envelope.get("errors") or ()), {})


class Programs(Protocol):
    """Runs this program with other arguments."""

    def run(self, words: Sequence[str]) -> Reply: ...

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested, so that nothing new is brought up."""
